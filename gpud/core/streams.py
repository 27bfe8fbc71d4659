"""Names of streams: the figures of one mode of one probe on one GPU over time."""

from typing import Final

import msgspec

CPU: Final = "cpu"
"""Stands for the CPU where a GPU has its UUID."""


class StreamKey(msgspec.Struct, frozen=True):
    """Names one stream.

    ``gpu`` is a UUID, None for the CPU. Whether runs are cold or warm is part of ``mode``. Figures
    of two ``version``s of a probe's method never compare, nor do those on mains and on battery, nor
    copies to and from two ``peer``s.
    """

    gpu: str | None
    probe: str
    mode: str
    version: int = 1
    on_battery: bool = False
    peer: str | None = None

    def __str__(self) -> str:
        """Name it for logs: "launch submit on GPU-...", "cpu_call call on the CPU"."""
        place = "the CPU" if self.gpu is None else self.gpu
        place = place if self.peer is None else f"{place} and {self.peer}"
        return f"{self.probe} {self.mode} on {place}{', on battery' if self.on_battery else ''}"


class Choice(msgspec.Struct, frozen=True):
    """Streams that a person chooses. A part that is None means all; ``gpu``: a UUID, or ``CPU``."""

    gpu: str | None = None
    probe: str | None = None
    mode: str | None = None

    def holds(self, key: StreamKey) -> bool:
        """Return whether a stream is chosen."""
        parts = (self.gpu, key.gpu or CPU), (self.probe, key.probe), (self.mode, key.mode)
        return all(chosen in {None, part} for chosen, part in parts)

    def __str__(self) -> str:
        """Name it for a person: "launch submit on GPU-...", "everything"."""
        what = " ".join(part for part in (self.probe, self.mode) if part) or "everything"
        if self.gpu is None:
            return what
        return f"{what} on {'the CPU' if self.gpu == CPU else self.gpu}"


EVERYTHING: Final = Choice()
