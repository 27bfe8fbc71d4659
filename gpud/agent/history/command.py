"""``gpud history``: the verb, what may be asked for, and the exit code."""

from __future__ import annotations

import io
import json
import math
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpud.agent import bringing, historyrows, historyscope, reader
from gpud.agent.history import backup, columns, table
from gpud.agent.history.request import numbering, understood
from gpud.agent.rolluprows import HOUR_S
from gpud.core.errors import GpudError
from gpud.core.sample import SCHEMA_VERSION
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

    from gpud.agent.bringing import Bring
    from gpud.agent.history.request import Request
    from gpud.agent.historyrows import Row
    from gpud.agent.wanted import Wanted
    from gpud.core.settings import Settings

USUAL: Final = 100
"""Rows, where neither a time nor a number is given."""
MOST: Final = 100_000
"""Rows that are drawn or kept in memory; an export has no such limit."""
RUNS_AT_ONCE: Final = 1000
HOURS_AT_ONCE_S: Final = 7 * 86400.0
STDOUT: Final = "-"


def show(settings: Settings, request: Request, *, form: str, now_s: float) -> int:
    """Print the newest rows, as ``table``, ``csv`` or ``json``; always 0.

    Errors: ``ConfigError`` for a moment, probe or GPU that is none, ``StoreError``.
    """
    directory, numbers = Path(settings.state_dir), numbering(settings)
    wanted = understood(directory, request, numbers, now_s)
    limit = request.limit or (USUAL if request.since is None else MOST)
    rows, from_s = reader.ask(
        directory,
        lambda c: (historyrows.newest(c, wanted, limit + 1), historyscope.raw_from_s(c)),
        patience_s=30,
    )
    cut = len(rows) > limit
    rows = rows[-limit:]
    if form == "json":
        told = [columns.record(row) for row in rows]
        print(json.dumps({"schema_version": SCHEMA_VERSION, "rows": told, "more": cut}))
    elif form == "csv":
        written = columns.Csv(sys.stdout)
        for row in rows:
            written.write(row)
        sys.stdout.flush()
    elif rows:
        print(*table.lines(rows, numbers), sep="\n")
    for line in _notes(rows, from_s, cut=cut, empty=form == "table"):
        print(line, file=sys.stdout if form == "table" else sys.stderr, flush=True)
    return 0


def export(  # noqa: PLR0913  # the verb's own words
    settings: Settings,
    request: Request,
    *,
    hourly: bool,
    output: str | None,
    now_s: float,
    bring: Bring = bringing.here,
) -> int:
    """Write every row as CSV, the oldest first, to a file or to stdout; always 0.

    Errors: likewise, and ``GpudError`` for the file.
    """

    def rows_of(stream: BinaryIO) -> str:
        return _exported(settings, request, stream, hourly=hourly, now_s=now_s)

    if output in {None, STDOUT}:
        rows_of(sys.stdout.buffer)
        return 0
    with _made(Path(str(output))) as file:
        count = bring(rows_of, file)
    print(f"{escaped(str(output))}: {count} rows")
    return 0


def _exported(
    settings: Settings, request: Request, stream: BinaryIO, *, hourly: bool, now_s: float
) -> str:
    """Write the rows and give their number.

    Slice by slice: the history may be larger than memory, and a reader that stays keeps the
    writer's log from being cut.
    """
    directory = Path(settings.state_dir)
    wanted = understood(directory, request, numbering(settings), now_s)
    from_s = reader.ask(directory, historyscope.raw_from_s)  # refuses before anything is written
    count = 0
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
    written = columns.Csv(text)
    for rows in (_hours if hourly else _runs)(directory, wanted):
        for row in rows:
            written.write(row)
        count += len(rows)
    text.flush()
    text.detach()  # it would close what is not its own
    if not hourly and wanted.since_s < from_s and math.isfinite(from_s):
        print(
            f"runs before {columns.rfc_3339(from_s)} are kept as hours: --hourly", file=sys.stderr
        )
    return str(count)


def copy(settings: Settings, target: str, bring: Bring | None = None) -> int:
    """Copy the history, while it is written, to a new file; always 0. Errors: ``GpudError``."""
    size = backup.copy(Path(settings.state_dir), Path(target), bring)
    print(f"{escaped(target)}: {size / 2**20:.1f} MiB")
    return 0


def _runs(directory: Path, wanted: Wanted) -> Iterator[list[Row]]:
    after: int | None = 0
    if wanted.since_s > -math.inf:
        after = reader.ask(directory, lambda c: historyrows.first_run(c, wanted.since_s))
    while after is not None:
        last = after
        rows, after = reader.ask(
            directory,
            lambda c, last=last: historyrows.runs_after(  # type: ignore[misc]
                c, wanted, after_run=last, most_runs=RUNS_AT_ONCE
            ),
        )
        yield rows


def _hours(directory: Path, wanted: Wanted) -> Iterator[list[Row]]:
    after: float | None = max(wanted.since_s - HOUR_S, -9e15)
    while after is not None:
        last = after
        rows, after = reader.ask(
            directory,
            lambda c, last=last: historyrows.hours_after(  # type: ignore[misc]
                c, wanted, after_s=last, most_s=HOURS_AT_ONCE_S
            ),
        )
        yield rows


@contextmanager
def _made(path: Path) -> Iterator[BinaryIO]:
    """Make the file, and leave none behind that is not whole."""
    try:
        file = path.open("xb")
    except FileExistsError:
        fix = "remove it, or choose another: -o FILE"
        raise GpudError(f"{path} is there already", fix=fix) from None
    except OSError as error:
        raise GpudError(f"cannot write {path}: {error.strerror}") from error
    with file:
        try:
            yield file
        except BaseException:  # Ctrl-C too
            path.unlink()
            raise


def _notes(rows: Sequence[Row], from_s: float, *, cut: bool, empty: bool) -> Iterator[str]:
    if not rows and empty:
        yield "nothing was measured then"
    if any(row.hourly for row in rows):
        until = columns.rfc_3339(from_s) if math.isfinite(from_s) else None
        yield f"runs before {until} are kept as hours" if until else "runs are kept as hours only"
    if cut:
        yield f"these are the newest {len(rows)}: --since and --limit choose more"
