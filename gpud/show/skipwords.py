"""Words for probes that are skipped or whose runs do not count, the same everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.core.sample import Flag, Skip
from gpud.show.units import place, spaced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.show.document import Status

BECAUSE: Final = {
    Skip.NO_GPU: "CUDA offers no GPU",
    Skip.BOOT_GRACE: "WSL has just started",
    Skip.STUCK: "a probe that was ended does not go away",
    Skip.BREAKER_OPEN: "a call hung a while ago",
    Skip.CHILD_RUNNING: "another run was still going on",
    Skip.CLOCK_JUMPED: "the clock jumped",
    Skip.CONTAINER_RUNNING: "a container measures",
    Skip.IMAGE_ABSENT: "its image is not here",
    Skip.DOCKERD_DOWN: "Docker does not run",
    Skip.QUIET_HOURS: "quiet hours",
    Skip.ON_BATTERY: "on battery",
    Skip.RESUMED: "the machine had just come back",
    Skip.GPU_HOT: "the GPU is hot",
    Skip.VRAM_SHORT: "little GPU memory is free",
    Skip.GPU_BUSY: "somebody else uses the GPU",
}
GPU_WORK_BEGINS: Final = f"GPU work begins at {{moment}}: {BECAUSE[Skip.BOOT_GRACE]}"
"""The sentence while a boot's grace lasts; ``moment`` is written as each surface does."""
LASTING: Final = (
    Skip.GPU_BUSY,
    Skip.GPU_HOT,
    Skip.VRAM_SHORT,
    Skip.QUIET_HOURS,
    Skip.ON_BATTERY,
)
"""Reasons that may hold for hours while every component is well."""


def because(reason: str, used_ratio: float | None = None) -> str:
    """Say why a run was skipped; ``used_ratio`` is the share of the GPU that others used."""
    if reason == Skip.GPU_BUSY and used_ratio is not None:
        return f"other programs use {100 * used_ratio:.0f} % of the GPU"
    return BECAUSE[Skip(reason)] if reason in set(Skip) else spaced(reason)


def unmeasured(document: Status) -> str | None:
    """Say what is not measured, or is measured and not compared; None where all of it is."""
    return "; ".join([*_skipped(document), *_marked(document)]) or None


def _skipped(document: Status) -> Iterator[str]:
    for reason in LASTING:
        rows = [one for one in document.put_off if one.reason == reason]
        for gpu in sorted({one.gpu for one in rows}, key=lambda gpu: (gpu is None, gpu)):
            ratios = [one.utilization_gpu_ratio for one in rows if one.gpu == gpu]
            used = max((ratio for ratio in ratios if ratio is not None), default=None)
            many = "1 probe is" if len(ratios) == 1 else f"{len(ratios)} probes are"
            where = "the CPU" if gpu is None else place(gpu)
            yield f"{many} skipped on {where}: {because(reason, used)}"


def _marked(document: Status) -> Iterator[str]:
    """Name each GPU whose every probe last ran beside somebody else's work."""
    for gpu in sorted({one.gpu for one in document.probes if one.gpu is not None}):
        flags = [one.flags for one in document.probes if one.gpu == gpu and one.samples]
        if flags and all(Flag.BUSY in one for one in flags):
            why = "other programs use the GPU, so its runs are marked busy and not compared"
            yield f"{place(gpu)}: {why}"
