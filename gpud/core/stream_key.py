"""The name of a stream: one GPU, probe and mode over time."""

from __future__ import annotations

from dataclasses import dataclass


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
