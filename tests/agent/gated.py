"""The process that reads the history for charts, behind a gate that a test opens."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpud.agent.charts import HELPER, Charts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GATED = 'read _ <"$1/gate"; shift; tee "$0" | "$@"'


class Gate:
    """The first question waits until the gate is open; every line of them is written down."""

    def __init__(self, folder: Path) -> None:
        self._lines = folder / "asked"
        self._folder = folder
        os.mkfifo(folder / "gate")

    def charts(self) -> Charts:
        """Make the way to the gated process."""
        command = ("/bin/sh", "-c", GATED, str(self._lines), str(self._folder), *HELPER)
        return Charts(self._folder, command=command, deadline_s=60)

    def reached(self) -> Callable[[], None]:
        """Wait until somebody has asked; gives what opens the gate."""
        gate = os.open(self._folder / "gate", os.O_WRONLY)

        def opened_up() -> None:
            os.write(gate, b"go\n")
            os.close(gate)

        return opened_up

    def asked(self) -> int:
        """Count the questions."""
        return len(self._lines.read_bytes().splitlines())
