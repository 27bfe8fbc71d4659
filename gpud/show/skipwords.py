"""Words for probes that are skipped or whose runs do not count: one sentence, the same everywhere.

The document is plain JSON that may come from another release: what it lacks is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpud.core.sample import Flag, Skip

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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
        return f"other programs use {used_ratio:.0%} of the GPU".replace("%", " %")
    known = {str(skip): words for skip, words in BECAUSE.items()}
    return known.get(reason, reason.replace("_", " "))


def unmeasured(document: Mapping[str, Any]) -> str | None:
    """Say what is not measured, or is measured and not compared; None where all of it is."""
    parts = [*_skipped(document.get("put_off") or ()), *_marked(document.get("probes") or ())]
    return "; ".join(parts) or None


def _skipped(put_off: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for reason in LASTING:
        rows = [one for one in put_off if one["reason"] == reason]
        for gpu in sorted({one["gpu"] for one in rows}, key=lambda gpu: (gpu is None, gpu)):
            of_one = [one for one in rows if one["gpu"] == gpu]
            ratios = [one.get("utilization_gpu_ratio") for one in of_one]
            used = max((ratio for ratio in ratios if ratio is not None), default=None)
            many = "1 probe is" if len(of_one) == 1 else f"{len(of_one)} probes are"
            place = "the CPU" if gpu is None else f"GPU {gpu}"
            yield f"{many} skipped on {place}: {because(reason, used)}"


def _marked(probes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Name each GPU whose every probe last ran beside somebody else's work."""
    for gpu in sorted({one["gpu"] for one in probes if one.get("gpu") is not None}):
        flags = [one["flags"] for one in probes if one["gpu"] == gpu and one.get("samples")]
        if flags and all(Flag.BUSY in one for one in flags):
            why = "other programs use the GPU, so its runs are marked busy and not compared"
            yield f"GPU {gpu}: {why}"
