"""Report of ``gpud doctor``: aligned lines or one JSON document, and the exit code."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

import gpud
from gpud.core.errors import ConfigError
from gpud.core.sample import SCHEMA_VERSION
from gpud.core.settings import Settings
from gpud.core.text import escaped, pasteable
from gpud.doctor.finding import Verdict
from gpud.doctor.machine import this_machine
from gpud.doctor.run import CheckResult, run_checks

STYLES = {Verdict.OK: "32", Verdict.UNKNOWN: "35", Verdict.ADVICE: "33", Verdict.PROBLEM: "1;31"}
"""SGR codes of terminals."""
WIDTH = max(map(len, Verdict))
NARROWEST = 20


def doctor(
    settings: Settings,
    settings_error: ConfigError | None,
    environ: Mapping[str, str],
    *,
    program: Sequence[str],
    as_json: bool,
) -> int:
    """Run all checks, print the results and return 1 if there is a problem, else 0.

    ``settings_error`` is why ``settings`` are the defaults; ``program`` starts this gpud.
    """
    results = [
        replace(result, fix=result.fix and pasteable(result.fix, program))
        for result in run_checks(this_machine(settings, environ, settings_error))
    ]
    if as_json:
        print(json.dumps(document(results)))
    elif sys.stdout.isatty():
        colour = not environ.get("NO_COLOR") and environ.get("TERM", "dumb") != "dumb"
        columns = shutil.get_terminal_size().columns
        print("\n".join(lines(results, columns=columns, colour=colour)), flush=True)
    else:
        print("\n".join(lines(results)), flush=True)
    return int(any(result.verdict is Verdict.PROBLEM for result in results))


def document(results: Sequence[CheckResult]) -> dict[str, Any]:
    """Return the report as plain JSON data; ``counts`` has every verdict."""
    counts = Counter(result.verdict for result in results)
    return {
        "schema_version": SCHEMA_VERSION,
        "version": gpud.__version__,
        "state": "problem" if counts[Verdict.PROBLEM] else "ok",
        "counts": {verdict: counts[verdict] for verdict in Verdict},
        "checks": msgspec.to_builtins(results),
    }


def lines(results: Sequence[CheckResult], *, columns: int = 0, colour: bool = False) -> list[str]:
    """Return a line for each result, its fix below it, and the counts; 0 columns wrap nothing."""
    titles = max((len(result.title) for result in results), default=0)
    indent = " " * (WIDTH + titles + 4)
    shown = []
    for result in results:
        word = str(result.verdict)
        word = f"{word.upper() if result.verdict is Verdict.PROBLEM else word:<{WIDTH}}"
        if colour:
            word = f"\x1b[{STYLES[result.verdict]}m{word}\x1b[0m"
        body = _wrapped(escaped(result.evidence), columns - len(indent))
        body += _wrapped(f"fix: {escaped(result.fix)}", columns - len(indent)) if result.fix else []
        shown.append(f"{word}  {result.title:<{titles}}  {body[0]}")
        shown += [indent + line for line in body[1:]]
    return [*shown, "", _summary(results)]


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width) or [text] if width >= NARROWEST else [text]


def _summary(results: Sequence[CheckResult]) -> str:
    counts = Counter(result.verdict for result in results)
    problems = counts[Verdict.PROBLEM]
    others = (Verdict.ADVICE, Verdict.OK, Verdict.UNKNOWN)
    words = [f"{problems} problem{'' if problems == 1 else 's'}"]
    return ", ".join([*words, *(f"{counts[verdict]} {verdict}" for verdict in others)])
