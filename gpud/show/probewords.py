"""Words for what the modes of the probes measure, in words for people who never read a probe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.core.sample import StreamKey
    from gpud.show.document import Stream

    Named = StreamKey | Stream

WORDS: Final[Mapping[tuple[str, str], str]] = {
    ("launch", "submit"): "submission latency",
    ("launch", "roundtrip"): "launch round trip",
    ("launch", "pipelined"): "launches in a row",
    ("launch", "graph"): "graph launch",
    ("launch", "first_launch"): "first launch",
    ("launch", "submit_cold"): "submission latency after idling",
    ("launch", "roundtrip_cold"): "launch round trip after idling",
    ("launch", "pipelined_cold"): "launches in a row after idling",
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
    ("device_copy", "device_copy"): "copies within GPU memory",
    ("triad", "triad"): "GPU memory bandwidth",
    ("matmul", "matmul"): "matrix product",
    ("tensor", "tensor"): "tensor cores",
    ("nbody", "nbody"): "arithmetic (n-body)",
    ("container_nbody", "nbody"): "n-body in a container",
    ("cpu_call", "call"): "foreign call on the CPU",
    ("cpu_matmul", "matmul"): "matrix product on the CPU",
}
"""By probe and mode, the simplest first; a test asks for each one whose figures are judged."""
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


def both(probe: str, mode: str) -> str:
    """Say what a mode measures and how it is called: "submission latency (launch submit)"."""
    words, name = called(probe, mode), name_of(probe, mode)
    return name if words == name else f"{words} ({name})"


def rank(stream: Named) -> int:
    """Say where a stream comes among those that tell the same; unknown ones come last."""
    return _PLACES.get((stream.probe, stream.mode), len(_PLACES))
