"""Series of figures that compare with each other, each with a detector of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpud.core.detector import Direction
from gpud.core.sample import Unit

JUDGED: Final = {
    Unit.SECONDS: Direction.LOWER,
    Unit.BYTES_PER_SECOND: Direction.HIGHER,
    Unit.FLOPS_PER_SECOND: Direction.HIGHER,
}
"""Which way is good. A crossover is not judged: it moves in steps, and with the CPU as well."""


@dataclass(frozen=True, slots=True)
class StreamKey:
    """Names one stream.

    ``gpu`` is a UUID, None for the CPU. Whether runs are cold or warm is part of ``mode``. Figures
    of two ``version``s of a probe's method never compare, nor do those on mains and on battery.
    """

    gpu: str | None
    probe: str
    mode: str
    version: int = 1
    on_battery: bool = False

    def __str__(self) -> str:
        """Name it for logs: "launch submit on GPU-...", "cpu_call call on the CPU"."""
        place = "the CPU" if self.gpu is None else self.gpu
        return f"{self.probe} {self.mode} on {place}{', on battery' if self.on_battery else ''}"
