"""Words for figures, how they stand to what is usual, skipped probes, causes and known faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gpud.core.sample import Flag, Skip
from gpud.core.stats import FEWEST_USUAL, compared
from gpud.core.text import escaped
from gpud.units import clock, place, spaced

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpud.core.alerts import Cause
    from gpud.core.streams import StreamKey
    from gpud.document.runs import StreamReport
    from gpud.document.status import Status

    Named = StreamKey | StreamReport

WORDS: Final[Mapping[tuple[str, str], str]] = {
    ("launch", "submit"): "submission latency",
    ("launch", "roundtrip"): "launch round trip",
    ("launch", "pipelined"): "launches in a row",
    ("launch", "graph"): "graph launch",
    ("launch", "first_launch"): "first launch",
    ("launch", "submit_cold"): "submission latency after idling",
    ("launch", "roundtrip_cold"): "launch round trip after idling",
    ("launch", "pipelined_cold"): "launches in a row after idling",
    ("sync", "blocking"): "launch and blocking wait",
    ("sync", "query"): "launch and query",
    ("sync", "graph_10"): "graph of 10 launches and its wait",
    ("event", "pair"): "GPU time between two events",
    ("event", "kernel"): "GPU time of an empty kernel",
    ("event", "record"): "recording an event",
    ("small_copy", "host_to_device_4b"): "copy of 4 B to the GPU",
    ("small_copy", "host_to_device_4kib"): "copy of 4 KiB to the GPU",
    ("small_copy", "device_to_host_4b"): "copy of 4 B from the GPU",
    ("small_copy", "device_to_host_4kib"): "copy of 4 KiB from the GPU",
    ("small_copy", "round_trip_4b"): "copy of 4 B to the GPU and back",
    ("small_copy", "round_trip_4kib"): "copy of 4 KiB to the GPU and back",
    ("copy", "host_to_device"): "copies to the GPU",
    ("copy", "device_to_host"): "copies from the GPU",
    ("copy", "both"): "copies both ways at once",
    ("copy", "pageable_host_to_device"): "copies of ordinary memory to the GPU",
    ("copy", "pageable_device_to_host"): "copies of ordinary memory from the GPU",
    ("peer_copy", "to_peer"): "copies to the other GPU",
    ("peer_copy", "from_peer"): "copies from the other GPU",
    ("peer_copy", "staged_to_peer"): "copies to the other GPU through the host",
    ("peer_copy", "staged_from_peer"): "copies from the other GPU through the host",
    ("small_peer_copy", "to_peer_4b"): "copy of 4 B to the other GPU",
    ("small_peer_copy", "from_peer_4b"): "copy of 4 B from the other GPU",
    ("small_peer_copy", "staged_to_peer_4b"): "copy of 4 B to the other GPU through the host",
    ("small_peer_copy", "staged_from_peer_4b"): "copy of 4 B from the other GPU through the host",
    ("device_copy", "device_copy"): "copies within GPU memory",
    ("triad", "triad"): "GPU memory bandwidth",
    ("memory_latency", "dram"): "GPU memory latency",
    ("memory_latency", "l2"): "latency of the GPU's L2 cache",
    ("matmul", "matmul"): "matrix product",
    ("matmul", "pinned"): "matrix product in pinned code",
    ("tensor", "tensor"): "tensor cores",
    ("precision", "fp64"): "matrix product in FP64",
    ("precision", "tf32"): "tensor cores in TF32",
    ("precision", "bf16"): "tensor cores in BF16",
    ("precision", "int8"): "tensor cores in INT8",
    ("nbody", "nbody"): "arithmetic (n-body)",
    ("container_nbody", "nbody"): "n-body in a container",
    ("cpu_call", "call"): "foreign call on the CPU",
    ("cpu_matmul", "matmul"): "matrix product on the CPU",
}
"""By probe and mode, in the order in which they are shown; others have their own names."""
_PLACES: Final = {named: place for place, named in enumerate(WORDS)}


def figure_of(stream: Named) -> str:
    """Say what a stream measures; a probe of another release by its own name."""
    return called(stream.probe, stream.mode)


def called(probe: str, mode: str) -> str:
    """Say what a mode measures, in people's words where there are any, else by its name."""
    return WORDS.get((probe, mode)) or name_of(probe, mode)


def name_of(probe: str, mode: str) -> str:
    """Name a mode as the commands do: "launch submit", or "triad" alone."""
    name = probe if mode == probe else f"{probe} {mode}"
    return escaped(name[:80].encode(errors="replace").decode())


def rank(stream: Named) -> int:
    """Return the place of a stream among those of one cause; unknown ones come last."""
    return place_of(stream.probe, stream.mode)


def place_of(probe: str, mode: str) -> int:
    """Return the place of a probe's mode among all; unknown ones come last."""
    return _PLACES.get((probe, mode), len(_PLACES))


ALIKE: Final = 0.03
"""Below what no detector tells from noise."""
RATES: Final = frozenset({"bytes_per_second", "flops_per_second"})
AS_USUAL: Final = "as usual"


class UsualVerdict(NamedTuple):
    """How a stream stands. ``much`` fits into a column, ``whole`` says since what.

    What fires has the size that its alert has: that of the runs which decided it.
    """

    much: str
    whole: str
    fires: bool = False


def standing(stream: StreamReport | None) -> UsualVerdict:
    """Say how a stream stands; foreign words in it are not escaped yet."""
    if stream is None:
        return UsualVerdict("", "not judged")
    if stream.open:
        worst = max(stream.open, key=lambda alarm: alarm.effect.slowdown)
        much = compared(worst.effect.slowdown)
        since = f" since driver {worst.new_driver}" if worst.kind == "driver" else ""
        return UsualVerdict(much, f"{much}{since}", fires=True)
    if stream.level is None or stream.slowdown is None:
        return UsualVerdict("", f"learning what is usual, {_runs_so_far(stream)}")
    much = _compared(stream.slowdown)
    return UsualVerdict(much, much if much == AS_USUAL else f"{much} than usual")


def _runs_so_far(stream: StreamReport) -> str:
    """Say how many runs count for what is usual, and how many it takes at least.

    The first three after a start count for nothing, nor do those beside other work. Under a new
    driver it is learned anew. Runs that follow each other quickly count together, so that it may
    take more than the least number.
    """
    trial = stream.verdict is not None and stream.verdict.state in {"learning", "undecided"}
    count = stream.verdict.samples if stream.verdict and trial else stream.judged
    least = f" of {FEWEST_USUAL}" if count < FEWEST_USUAL else ""
    return f"{count:,}{least} runs so far"


def _compared(ratio: float) -> str:
    return AS_USUAL if abs(ratio - 1) < ALIKE else compared(ratio)


BECAUSE: Final[Mapping[Skip, str]] = {
    Skip.NO_GPU: "CUDA offers no GPU",
    Skip.BOOT_GRACE: "WSL has just started",
    Skip.CONTEXTS_SPENT: "the GPU contexts of this boot are used up",
    Skip.CONTEXT_LOST: "two GPU contexts were lost before it in the round",
    Skip.STUCK: "a probe that hung in the driver has not ended",
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
    Skip.PEER_BUSY: "the other GPU is in use, hot or short of memory",
}
GPU_WORK_BEGINS: Final = f"GPU work begins at {{moment}}: {BECAUSE[Skip.BOOT_GRACE]}"
"""The sentence while a boot's grace lasts; ``moment`` is written as each surface does."""
LASTING: Final = (
    Skip.GPU_BUSY,
    Skip.PEER_BUSY,
    Skip.GPU_HOT,
    Skip.VRAM_SHORT,
    Skip.QUIET_HOURS,
    Skip.ON_BATTERY,
    Skip.CONTEXTS_SPENT,
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


def next_on_battery(document: Status) -> str:
    """Say when a GPU that rests on battery is measured again; empty where it does not rest."""
    moments_s = [skip.next_s for skip in document.put_off if skip.next_s is not None]
    at = clock(min(moments_s)) if moments_s else ""
    return f": small probes at {at}, large ones when plugged in" if at else ""


def _skipped(document: Status) -> Iterator[str]:
    for reason in LASTING:
        skips = [skip for skip in document.put_off if skip.reason == reason]
        for gpu in sorted({skip.gpu for skip in skips}, key=lambda gpu: (gpu is None, gpu)):
            ratios = [skip.utilization_gpu_ratio for skip in skips if skip.gpu == gpu]
            used = max((ratio for ratio in ratios if ratio is not None), default=None)
            many = "1 probe is" if len(ratios) == 1 else f"{len(ratios)} probes are"
            where = "the CPU" if gpu is None else place(gpu)
            yield f"{many} skipped on {where}: {because(reason, used)}"


def _marked(document: Status) -> Iterator[str]:
    """Name each GPU whose every probe last ran beside somebody else's work."""
    for gpu in sorted({run.gpu for run in document.probes if run.gpu is not None}):
        runs = [run for run in document.probes if run.gpu == gpu and run.samples]
        if runs and all(Flag.BUSY in run.flags for run in runs):
            why = "other programs use the GPU, so its runs are marked busy and not compared"
            yield f"{place(gpu)}: {why}"


CAUSES: Final = {
    "driver_version": "driver",
    "cuda_version": "CUDA",
    "nvml_version": "NVML",
    "wsl_version": "WSL",
    "windows_build": "Windows",
    "gpus": "GPUs",
    "windows": "Windows",
    "wsl": "WSL",
    "cuda": "CUDA",
    "nvml": "NVML",
    "pcie": "PCIe link",
    "throttle": "clocks held down",
    "sm_clock": "SM clock",
    "battery": "power",
    "memory": "free GPU memory",
    "clocksource": "clock source",
    "library": "CUDA library",
    "loading": "module loading",
    "python": "Python",
    "cpu_load": "load of the CPU",
    "compiler": "code by the driver's compiler",
    "dxg": "the channel to Windows",
    "cpu": "the machine",
}
"""Kinds of causes and changes that their slugs do not say."""


BY_NOTHING: Final = "by nothing"
"""The past of clocks that nothing held down."""


def cause_words(cause: Cause) -> str:
    """Write a cause for a person: "driver 572.16 -> 576.02"."""
    if cause.old is None and cause.new is None:
        return cause.detail or kind_words(cause.kind)
    moved = f"{cause.old or 'unknown'} -> {cause.new or 'unknown'}"
    if cause.old == BY_NOTHING:
        moved = cause.new or "unknown"
    detail = f" ({cause.detail})" if cause.detail else ""
    return f"{kind_words(cause.kind)} {moved}{detail}"


def kind_words(kind: str) -> str:
    """Name a kind of cause or change."""
    return CAUSES.get(kind, spaced(kind))


SURENESS: Final = {
    "maintainer_confirmed": "confirmed by its maintainers",
    "several_reports": "reported by several people",
    "one_report": "reported once",
}
"""How many people say so, by ``Confidence`` of the catalogue."""
EFFECTS: Final = {
    "no_gpu": "no GPU",
    "no_nvml": "no NVML",
    "windows_bugcheck": "a blue screen of Windows",
    "none": "no harm",
}
"""Effects that their slugs do not say."""
NO_FIX: Final = "none is known"


def sureness(confidence: str, source: str) -> str:
    """Return how many people say so, and where: "reported once, https://..."."""
    return f"{SURENESS.get(confidence, spaced(confidence))}, {source}"


def fault_effect(slug: str) -> str:
    """Write what others say a fault does."""
    return EFFECTS.get(slug, spaced(slug))
