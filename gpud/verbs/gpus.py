"""``gpud gpus forget``: GPUs that were taken out on purpose are expected no longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud import client
from gpud.arguments import OK
from gpud.output import say
from gpud.requests import ForgetRequest, GpuLine

if TYPE_CHECKING:
    import argparse

    from gpud.place import Place


def run(options: argparse.Namespace, place: Place) -> int:
    """Forget GPUs, and print which. Errors: as those of ``client.ask_running``."""
    request = ForgetRequest(gpus=tuple(options.gpus))
    answer = client.ask_running(place, place.usable_settings(), request)
    gpus = [line for line in answer if isinstance(line, GpuLine)]
    for gpu in gpus:
        say(f"{gpu.name} ({gpu.uuid}) is forgotten")
    say("what is there is expected again" if gpus else "there was no GPU to forget")
    return OK
