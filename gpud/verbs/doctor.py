"""``gpud doctor``: the checks of this machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpud.doctor.run import doctor

if TYPE_CHECKING:
    import argparse

    from gpud.place import Place


def run(options: argparse.Namespace, place: Place) -> int:
    """Run all checks and print the results; 1 if there is a problem."""
    settings, error = place.settings_or_defaults()
    program = place.program
    return doctor(settings, error, os.environ, program=program, as_json=options.json)
