"""``gpud history``: the verb, what may be asked for, and the exit code."""

from __future__ import annotations

import json
import math
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpud.agent import historyrows, historyscope, reader
from gpud.agent.history import backup, columns, table
from gpud.agent.history.request import numbering, understood
from gpud.agent.rolluprows import HOUR_S
from gpud.core.errors import GpudError
from gpud.core.sample import SCHEMA_VERSION
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TextIO

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


def export(
    settings: Settings, request: Request, *, hourly: bool, output: str | None, now_s: float
) -> int:
    """Write every row as CSV, the oldest first, to a file or to stdout; always 0.

    Slice by slice: the history may be larger than memory, and a reader that stays keeps the
    writer's log from being cut. Errors: likewise, and ``GpudError`` for the file.
    """
    directory = Path(settings.state_dir)
    wanted = understood(directory, request, numbering(settings), now_s)
    from_s = reader.ask(directory, historyscope.raw_from_s)  # refuses before anything is written
    count = 0
    with _opened(output) as stream:
        written = columns.Csv(stream)
        for rows in (_hours if hourly else _runs)(directory, wanted):
            for row in rows:
                written.write(row)
            count += len(rows)
        stream.flush()
    if output not in {None, STDOUT}:
        print(f"{escaped(str(output))}: {count} rows")
    if not hourly and wanted.since_s < from_s and math.isfinite(from_s):
        print(
            f"runs before {columns.rfc_3339(from_s)} are kept as hours: --hourly", file=sys.stderr
        )
    return 0


def copy(settings: Settings, target: str) -> int:
    """Copy the history, while it is written, to a new file; always 0. Errors: ``GpudError``."""
    size = backup.copy(Path(settings.state_dir), Path(target))
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
def _opened(output: str | None) -> Iterator[TextIO]:
    """Make the file, and leave none behind that is not whole."""
    if output in {None, STDOUT}:
        yield sys.stdout
        return
    path = Path(str(output))
    try:
        file = path.open("x", encoding="utf-8", newline="")
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
