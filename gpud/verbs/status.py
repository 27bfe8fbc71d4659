"""``gpud status``: the document that the agent publishes, on one screen or as it is."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpud import output, portholder
from gpud.arguments import OK, PROBLEM
from gpud.core.text import pasteable
from gpud.document.status import read
from gpud.place import document, legible
from gpud.show import status
from gpud.show.headline import unacknowledged

if TYPE_CHECKING:
    import argparse

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
    if options.json:
        import json

        print(json.dumps(published), flush=True)  # also what this release does not understand
    with legible():
        shown = read(portholder.with_listener(published))
        code = PROBLEM if published["state"] != "ok" or unacknowledged(shown) else OK
        if options.json:
            return code
        lines = status.screen(shown, time.time(), output.view(sys.stdout))
    colour = output.coloured(options.color, sys.stdout)
    print(pasteable(output.painted(lines, colour=colour), place.program), end="", flush=True)
    return code
