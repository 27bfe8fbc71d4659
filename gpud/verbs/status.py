"""``gpud status``: the document that the agent publishes, on one screen or as it is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpud import output
from gpud.arguments import NOT_RUNNING, OK, PROBLEM
from gpud.core.text import pasteable
from gpud.document.status import read
from gpud.place import document
from gpud.reports import short_status
from gpud.show import status
from gpud.show.headline import is_problem

if TYPE_CHECKING:
    import argparse

    from gpud.place import Place


def run(options: argparse.Namespace, place: Place) -> int:
    """Print the status; 1 for a problem that nobody has acknowledged, 3 where gpud does not run."""
    run_dir = Path(place.usable_settings().run_dir)
    if options.watch is not None:
        from gpud.verbs import screen

        return screen.watch(run_dir, place, every_s=options.watch, colour=options.color)
    if options.short:
        return _short(run_dir, place)
    published = document(run_dir)
    if published is None:
        return place.report_absent(run_dir, as_json=options.json)
    if options.json:
        import json

        print(json.dumps(published), flush=True)  # also what this release does not understand
    shown = read(published)
    code = PROBLEM if is_problem(shown) else OK
    if options.json:
        return code
    lines = status.screen(shown, time.time(), output.view())
    colour = output.coloured(options.color)
    print(pasteable(output.painted(lines, colour=colour), place.program), end="", flush=True)
    return code


def _short(run_dir: Path, place: Place) -> int:
    """Print the line that the agent wrote, or why there is none of now."""
    code, words = short_status(run_dir, time.time()) or (NOT_RUNNING, str(place.absence(run_dir)))
    output.say(words)
    return code
