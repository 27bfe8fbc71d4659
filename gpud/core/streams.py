"""Names of streams: the figures of one mode of one probe on one GPU over time."""

import msgspec


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
