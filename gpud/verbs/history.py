"""``gpud history``: rows of the running agent's history as a table, as CSV or as JSON.

Rows are runs, or with --telemetry minutes and hours of each GPU's telemetry.

CSV and JSON have the same columns, in base units; docs/history.md describes them.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpud import client, output
from gpud.arguments import OK
from gpud.core.errors import ConfigError, GpudError
from gpud.core.sample import SCHEMA_VERSION
from gpud.core.stats import human
from gpud.core.text import escaped
from gpud.place import document
from gpud.requests import HistoryRequest, RowLine, RowsLine
from gpud.show import model
from gpud.show.figures import FIELDS
from gpud.units import amount, local, spaced

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpud.core.settings import Settings
    from gpud.place import Place
    from gpud.requests import Cells

USUAL: Final = 100
"""Rows, where neither a time nor a number is given."""
MOST: Final = 100_000
"""Rows that are drawn or kept in memory; an export has no such limit."""
HEAD: Final = ("time", "on", "probe", "mode", "median", "p10 to p90", "driver", "")
FORMS: Final = {"hour": "%Y-%m-%d %Hh", "minute": "%Y-%m-%d %H:%M", "run": "%Y-%m-%d %H:%M:%S"}
"""How the time of each kind of row is written."""
SHORT: Final = 12
"""Characters of a UUID that tell GPUs apart where the agent has not numbered them."""
LEADS_A_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def run(options: argparse.Namespace, place: Place) -> int:
    """Print rows, or export them all.

    Errors: ``ConfigError`` for a probe or GPU that is none, and those of ``client.ask_running``.
    """
    exports = options.action == "export"
    since_s, until_s = options.since, options.until
    if since_s is not None and until_s is not None and since_s > until_s:
        raise ConfigError("--since is later than --until", fix="exchange the two")
    limit = None if exports else options.limit or (MOST if since_s is not None else USUAL)
    if options.telemetry and (options.probe or options.mode):
        fix = "leave out --probe and --mode, or --telemetry"
        raise ConfigError("telemetry is of a GPU, and of no probe", fix=fix)
    request = HistoryRequest(
        telemetry=options.telemetry,
        since_s=since_s,
        until_s=until_s,
        probes=tuple(options.probe),
        modes=tuple(options.mode),
        gpus=tuple(options.gpu),
        limit=limit,
        hourly=exports and options.hourly,
    )
    settings = place.usable_settings()
    answer = client.ask_running(place, settings, request)
    head = next(answer)
    if not isinstance(head, RowsLine):
        raise GpudError("gpud's agent is of another version", fix="gpud restart")
    rows = (line.cells for line in answer if isinstance(line, RowLine))
    if exports:
        _write_csv(rows, head)
        older = head.raw_from_s is not None and (since_s or 0.0) < head.raw_from_s
        if older and not request.hourly:
            print(
                f"{_rows_are(options)} before {head.raw_from} are kept as hours: --hourly",
                file=sys.stderr,
            )
    else:
        _show(list(rows), head, options, settings)
    return OK


def _rows_are(options: argparse.Namespace) -> str:
    return "minutes" if options.telemetry else "runs"


def _write_csv(rows: Iterable[Cells], head: RowsLine) -> None:
    """Write rows below their heading, as RFC 4180 has it but for line feeds."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(head.columns)
    writer.writerows(map(_cell, row) for row in rows)
    sys.stdout.flush()


def _cell(value: object) -> str:
    """Write a number as Python reads it back, and a foreign text so that no program obeys it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    text = escaped(" ".join(map(str, value)) if isinstance(value, tuple) else str(value))
    # A spreadsheet takes such a cell for a formula; the apostrophe makes it text again.
    return f"'{text}" if text.startswith(LEADS_A_FORMULA) else text


def _show(
    rows: Sequence[Cells], head: RowsLine, options: argparse.Namespace, settings: Settings
) -> None:
    table = not (options.json or options.csv)
    named = [dict(zip(head.columns, row, strict=True)) for row in rows]
    if options.json:
        print(json.dumps({"schema_version": SCHEMA_VERSION, "rows": named, "more": head.more}))
    elif options.csv:
        _write_csv(rows, head)
    elif rows:
        gpus = (document(Path(settings.run_dir)) or {}).get("gpus") or {}
        numbers = {uuid: gpu["number"] for uuid, gpu in gpus.items()}
        if options.telemetry:
            headings = model.headings("time", "on", *FIELDS, "slowed by", numbers=FIELDS)
            cells = [_telemetry_cells(row, numbers) for row in named]
        else:
            headings = model.headings(*HEAD)
            cells = [_cells(row, numbers) for row in named]
        print(output.drawn(model.listing(headings, cells)), end="")
    elif table:
        print("nothing was measured then")
    for note in _notes(named, head, _rows_are(options)):
        print(note, file=sys.stdout if table else sys.stderr, flush=True)


def _notes(rows: Sequence[Mapping[str, Any]], head: RowsLine, what: str) -> Iterator[str]:
    if any(row["kind"] == "hour" for row in rows):
        yield (
            f"{what} before {head.raw_from} are kept as hours"
            if head.raw_from
            else f"{what} are kept as hours only"
        )
    if head.more:
        yield f"these are the newest {len(rows)}: --since and --limit choose more"


def _telemetry_cells(row: Mapping[str, Any], numbers: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of a row of telemetry: means, and how long each reason was in force."""
    means = ((field, row[f"{field}_mean"]) for field in FIELDS.values())
    amounts = ("" if mean is None else amount(mean, field) for field, mean in means)
    reasons = (
        spaced(reason) if share == 1.0 else f"{spaced(reason)} {100 * share:.0f} %"
        for name, share in row.items()
        if (reason := name.removeprefix("throttle_").removesuffix("_ratio")) != name and share
    )
    when = local(FORMS[row["kind"]], row["unix_s"])
    return when, _gpu(row["gpu_uuid"], numbers), *amounts, ", ".join(reasons)


def _cells(row: Mapping[str, Any], numbers: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of a row; ``numbers`` are those of GPUs by UUID."""
    if row["gpu_uuid"] is None:
        where = "a GPU" if row["backend"] == "cuda" else "CPU"
    else:
        where = _gpu(row["gpu_uuid"], numbers)
    driver = str(row["driver_version"] or "")
    texts = (where, row["probe"], row["mode"] or "", *_figures(row), driver, _marks(row))
    return local(FORMS[row["kind"]], row["unix_s"]), *texts


def _gpu(uuid: str, numbers: Mapping[str, Any]) -> str:
    number = numbers.get(uuid)
    return uuid[:SHORT] if number is None else f"GPU {number}"


def _figures(row: Mapping[str, Any]) -> tuple[str, str]:
    if row["failure"] is not None:
        return f"failed: {row['failure']}", ""
    unit, mode = row["unit"], row["mode"]
    if unit is None or row["median"] is None:
        return "-", ""
    spread = [human(end, unit, mode) for end in (row["p10"], row["p90"]) if end is not None]
    return human(row["median"], unit, mode), " to ".join(spread)


def _marks(row: Mapping[str, Any]) -> str:
    if row["failure"] is not None:
        return row["failure_detail"] or ""
    if row["kind"] == "run":
        return ", ".join(row["flags"])
    marked = f", {row['flagged_runs']} marked" if row["flagged_runs"] else ""
    return f"{row['n']} run{'s' if row['n'] != 1 else ''}{marked}"
