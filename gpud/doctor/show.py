"""The lines on a terminal, or one JSON document; and the exit code."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gpud
from gpud.core.sample import SCHEMA_VERSION
from gpud.core.text import escaped, pasteable
from gpud.doctor import run
from gpud.doctor.finding import Verdict
from gpud.doctor.machine import here

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpud.core.errors import ConfigError
    from gpud.core.settings import Settings
    from gpud.doctor.run import Line

WORDS = {verdict: str(verdict) for verdict in Verdict} | {Verdict.PROBLEM: "PROBLEM"}
STYLES = {
    Verdict.OK: "green",
    Verdict.UNKNOWN: "magenta",
    Verdict.ADVICE: "yellow",
    Verdict.PROBLEM: "bold red",
}
WIDTH = max(map(len, WORDS.values()))


def doctor(
    settings: Settings,
    trouble: ConfigError | None,
    environ: Mapping[str, str],
    *,
    program: Sequence[str],
    as_json: bool,
) -> int:
    """Look at everything, print it, and give 1 when there is a problem, else 0.

    ``trouble`` says why ``settings`` are the defaults and not what the file says; ``program``
    starts this gpud.
    """
    found = run.everything(here(settings, environ, trouble))
    lines = [
        replace(line, finding=replace(line.finding, fix=pasteable(line.finding.fix, program)))
        if line.finding.fix
        else line
        for line in found
    ]
    if as_json:
        print(json.dumps(document(lines)))
    elif sys.stdout.isatty():
        _coloured(lines)
    else:
        print("\n".join(text(lines)), flush=True)
    return 1 if any(line.finding.verdict is Verdict.PROBLEM for line in lines) else 0


def document(lines: Sequence[Line]) -> dict[str, Any]:
    """Give everything as plain JSON data; ``counts`` has every verdict."""
    verdicts = [line.finding.verdict for line in lines]
    return {
        "schema_version": SCHEMA_VERSION,
        "version": gpud.__version__,
        "state": "problem" if Verdict.PROBLEM in verdicts else "ok",
        "counts": {verdict: verdicts.count(verdict) for verdict in Verdict},
        "checks": [
            {
                "name": line.name,
                "title": line.title,
                "verdict": line.finding.verdict,
                "evidence": line.finding.evidence,
                "fix": line.finding.fix,
            }
            for line in lines
        ],
    }


def text(lines: Sequence[Line]) -> list[str]:
    """One aligned line per check, its fix indented below, and the count; nothing else gets out."""
    shown = []
    for line, head in _heads(lines):
        shown.append(head + escaped(line.finding.evidence))
        if line.finding.fix:
            shown.append(f"{'':<{len(head)}}fix: {escaped(line.finding.fix)}")
    return [*shown, "", _sum(lines)]


def _coloured(lines: Sequence[Line]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for line in lines:
        verdict, said = line.finding.verdict, Text(escaped(line.finding.evidence))
        table.add_row(Text(WORDS[verdict], style=STYLES[verdict]), Text(line.title), said)
        if line.finding.fix:
            table.add_row("", "", Text(f"fix: {escaped(line.finding.fix)}", style="bold"))
    console = Console()
    console.print(table)
    console.print(Text(f"\n{_sum(lines)}"))


def _heads(lines: Sequence[Line]) -> list[tuple[Line, str]]:
    width = max((len(line.title) for line in lines), default=0)
    return [(ln, f"{WORDS[ln.finding.verdict]:<{WIDTH}}  {ln.title:<{width}}  ") for ln in lines]


def _sum(lines: Sequence[Line]) -> str:
    counts = document(lines)["counts"]
    problems = "problem" if counts[Verdict.PROBLEM] == 1 else "problems"
    others = (Verdict.ADVICE, Verdict.OK, Verdict.UNKNOWN)
    return ", ".join(
        [f"{counts[Verdict.PROBLEM]} {problems}", *(f"{counts[v]} {v}" for v in others)]
    )
