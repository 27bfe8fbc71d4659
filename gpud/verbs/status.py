"""``gpud status``: the document that the agent publishes, on one screen or as it is."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpud import output, portholder
from gpud.arguments import OK, PROBLEM
from gpud.core.text import pasteable
from gpud.place import document, legible
from gpud.show import status
from gpud.show.document import read
from gpud.show.headline import unacknowledged

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gpud.place import Place


def run(options: argparse.Namespace, place: Place) -> int:
    """Print the status; 1 for a problem that nobody has acknowledged, 3 where gpud does not run."""
    run_dir = Path(place.usable_settings().run_dir)
    if options.watch is not None:
        from gpud.verbs import watch

        return watch.run(run_dir, place, every_s=options.watch, colour=options.color)
    published = document(run_dir)
    if published is None:
        return place.report_absent(run_dir, as_json=options.json)
    if (program := place.program) != ["gpud"]:
        published = with_fixes(published, program)
    if options.json:
        print(json.dumps(published), flush=True)  # also what this release does not understand
    with legible():
        shown = read(portholder.with_listener(published))
        code = PROBLEM if published["state"] != "ok" or unacknowledged(shown) else OK
        if options.json:
            return code
        lines = status.screen(shown, time.time(), output.view(sys.stdout))
    colour = output.coloured(options.color, sys.stdout)
    print(output.painted(lines, colour=colour), end="", flush=True)
    return code


def with_fixes(value: Any, program: Sequence[str]) -> Any:  # noqa: ANN401  # JSON
    """Write the commands in all fixes of a document with the words that start this gpud."""
    if isinstance(value, list):
        return [with_fixes(item, program) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: pasteable(item, program)
        if name == "fix" and isinstance(item, str)
        else with_fixes(item, program)
        for name, item in value.items()
    }
