"""GPU contexts of a check, counted by the gpud that runs here.

In WSL2 a virtual machine has few of them, and gpud's schedule spares them. Its agent is asked over
its socket, as `gpud probe` asks; a request is a line of JSON, see ``gpud/requests.py``.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.core.text import escaped

from .processes import wsl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AT_ONCE = 10
"""Each request is an event in gpud's history."""
MOST = 1000
SILENT_S = 5.0
HOME = os.environ.get("GPUD_HOME")
PLACES = (Path(HOME),) if HOME else (Path(__file__).parents[2] / ".gpud", Path("/"))
"""Homes of a gpud: that of a development run, and that of the machine."""


class Contexts:
    """Contexts that the check makes. ``say`` takes what a person should know of them."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._uncounted = 0
        self._absent = 0
        self._refusals: dict[str, None] = {}

    def add(self, count: int = 1) -> None:
        """Count contexts that are about to be made. Errors: none."""
        self._uncounted += count
        if self._uncounted >= AT_ONCE:
            self.send()

    def send(self) -> None:
        """Send what no agent has counted yet. Errors: none."""
        while count := min(self._uncounted, MOST):
            self._uncounted -= count
            counted = False
            for home in PLACES:
                try:
                    for line in _asked(home / "run/gpud/api", count):
                        self._say(line)
                    counted = True
                except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
                    continue
                except (OSError, ValueError) as error:
                    self._refusals[str(error)] = None
            self._absent += 0 if counted else count

    def close(self) -> None:
        """Send the rest; in WSL2 say how many nobody has counted, and why."""
        self.send()
        if self._absent and wsl():
            why = "; ".join(self._refusals) or "no gpud runs (`gpud up` before the check)"
            self._say(f"{self._absent} GPU contexts of this check are in no count of gpud: {why}")


def _asked(folder: Path, count: int) -> Iterator[str]:
    """Have one agent count, and give what it says. ``Errors: OSError``, ``ValueError``."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(SILENT_S)
        directory = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:  # a long name does not fit into an address
            connection.connect(f"/proc/self/fd/{directory}/api.sock")
        finally:
            os.close(directory)
        connection.sendall(json.dumps({"request": "contexts", "count": count}).encode() + b"\n")
        with connection.makefile("rb") as lines:
            for text in lines:
                answer = json.loads(text.strip() or b'{"line": "alive"}')
                if answer["line"] == "error":
                    words = ", ".join(filter(None, (answer["message"], answer.get("fix"))))
                    raise ValueError(escaped(words))
                if answer["line"] == "wait":
                    yield escaped(answer["message"])
