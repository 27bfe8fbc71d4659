"""``gpud capture``: this machine recorded for a bug report, by the user who asks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpud.agent.capture import command
from gpud.core.errors import GpudError
from gpud.place import become

if TYPE_CHECKING:
    import argparse

    from gpud.place import Place


def run(options: argparse.Namespace, place: Place) -> int:
    """Record it; through sudo as the user who called it. Errors: ``GpudError`` for root."""
    settings = place.usable_settings()
    if os.geteuid() == 0:
        caller = os.environ.get("SUDO_UID", "")
        if not (caller.isascii() and caller.isdigit() and int(caller)):
            fix = "run it as an ordinary user, without sudo"
            raise GpudError("gpud capture does not run as root", fix=fix)
        become(int(caller), settings, place, groups=True)
    return command.run(settings, place.config, options.output, programs=options.with_programs)
