"""``gpud doctor``: the checks of this machine."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from gpud import output
from gpud.arguments import OK, PROBLEM
from gpud.core.text import pasteable
from gpud.doctor.finding import Verdict
from gpud.doctor.machine import this_machine
from gpud.doctor.run import document, lines, run_checks

if TYPE_CHECKING:
    import argparse

    from gpud.place import Place


def run(options: argparse.Namespace, place: Place) -> int:
    """Run all checks and print the results; 1 if there is a problem."""
    settings, error = place.settings_or_defaults()
    results = [
        replace(result, fix=result.fix and pasteable(result.fix, place.program))
        for result in run_checks(this_machine(settings, os.environ, error))
    ]
    if options.json:
        print(json.dumps(document(results)))
    else:
        columns = output.view().width if sys.stdout.isatty() else 0
        shown = lines(results, columns=columns, colour=output.coloured("auto"))
        print("\n".join(shown), flush=True)
    problem = any(result.verdict is Verdict.PROBLEM for result in results)
    return PROBLEM if problem else OK
