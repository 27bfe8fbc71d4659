"""Two GPUs and what the probes bring of them, as a laptop and a workstation would."""

from __future__ import annotations

from dataclasses import replace

from gpud.core.sample import (
    Backend,
    Buckets,
    Device,
    Pace,
    Point,
    ProbeSpec,
    RunReport,
    Sample,
    Unit,
)
from gpud.core.stats import LATENCY_BOUNDS_S
from gpud.show.probewords import WORDS

BIG = Device(
    index=0,
    uuid="GPU-7c6e2a14-5d0f-4b1e-9b7a-2f8f6f0d1c33",
    name="NVIDIA GeForce RTX 4070 Laptop GPU",
    pci_bus_id="0000:01:00.0",
    compute_capability="8.9",
    sm_count=36,
    l2_bytes=32 << 20,
    memory_total_bytes=8 << 30,
)
SMALL = replace(
    BIG,
    index=1,
    uuid="GPU-b1f6c9d2-0a35-4c77-8c60-93c5a1e07d48",
    name="NVIDIA RTX A2000 12GB",
    pci_bus_id="0000:41:00.0",
    compute_capability="8.6",
    sm_count=26,
    memory_total_bytes=12 << 30,
)
US = 1e-6
MEDIANS: dict[str, tuple[Unit, dict[str, float]]] = {
    "launch": (
        Unit.SECONDS,
        {
            "submit": 12.4 * US,
            "roundtrip": 31.8 * US,
            "pipelined": 6.1 * US,
            "graph": 9.7 * US,
            "first_launch": 1840 * US,
            "submit_cold": 48.2 * US,
            "roundtrip_cold": 96.5 * US,
            "pipelined_cold": 22.0 * US,
        },
    ),
    "event": (Unit.SECONDS, {"pair": 2.1 * US, "kernel": 4.4 * US, "record": 3.3 * US}),
    "small_copy": (
        Unit.SECONDS,
        {
            "host_to_device_4b": 18.1 * US,
            "host_to_device_4kib": 19.4 * US,
            "device_to_host_4b": 21.0 * US,
            "device_to_host_4kib": 22.6 * US,
            "round_trip_4b": 40.2 * US,
            "round_trip_4kib": 43.9 * US,
        },
    ),
    "copy": (
        Unit.BYTES_PER_SECOND,
        {
            "host_to_device": 12.6e9,
            "device_to_host": 12.9e9,
            "both": 20.1e9,
            "pageable_host_to_device": 6.2e9,
            "pageable_device_to_host": 5.8e9,
        },
    ),
    "device_copy": (Unit.BYTES_PER_SECOND, {"device_copy": 221e9}),
    "triad": (Unit.BYTES_PER_SECOND, {"triad": 228e9}),
    "matmul": (Unit.FLOPS_PER_SECOND, {"matmul": 11.9e12}),
    "tensor": (Unit.FLOPS_PER_SECOND, {"tensor": 41.3e12}),
    "nbody": (Unit.FLOPS_PER_SECOND, {"nbody": 9.8e12}),
    "cpu_call": (Unit.SECONDS, {"call": 0.35 * US}),
    "cpu_matmul": (Unit.FLOPS_PER_SECOND, {"matmul": 96e9}),
}
LARGE = frozenset({"copy", "device_copy", "triad", "matmul", "tensor", "nbody", "cpu_matmul"})
CURVE = tuple(
    Point(n, 2.1 * US + n**3 * 2.1e-11, 88 * US + n**3 * 8e-13) for n in (16, 32, 64, 128, 192, 256)
)


def specs() -> tuple[ProbeSpec, ...]:
    return tuple(
        ProbeSpec(
            probe,
            Backend.CPU if probe.startswith("cpu") else Backend.CUDA,
            Pace.LARGE if probe in LARGE else Pace.SMALL,
            unit,
            tuple(modes),
            10,
            WORDS[probe, next(iter(modes))],
        )
        for probe, (unit, modes) in MEDIANS.items()
    )


def sample(mode: str, unit: Unit, median: float) -> Sample:
    """A distribution with a tail, as launches have."""
    counts = [0] * (len(LATENCY_BOUNDS_S) + 1)
    place = next((i for i, bound in enumerate(LATENCY_BOUNDS_S) if median <= bound), 0)
    for step, count in enumerate((310, 2604, 802, 201, 60, 17, 5, 1)):
        counts[min(max(place - 1 + step, 0), len(counts) - 1)] += count
    return Sample(
        mode=mode,
        unit=unit,
        n=4000,
        median=median,
        p10=0.93 * median,
        p90=1.21 * median,
        p99=1.9 * median,
        minimum=0.9 * median,
        maximum=6.2 * median,
        buckets=Buckets(tuple(counts), 4000 * median) if unit is Unit.SECONDS else None,
    )


def run(probe: str, device: Device | None, slower: float = 1.0) -> RunReport:
    unit, modes = MEDIANS[probe]
    factor = slower if unit is Unit.SECONDS else 1 / slower
    return RunReport(
        probe,
        Backend.CPU if device is None else Backend.CUDA,
        device,
        samples=tuple(sample(mode, unit, factor * median) for mode, median in modes.items()),
        conditions={"after.ac": True},
        duration_s=0.6,
        gpu_seconds=0.0 if device is None else 0.04,
        vram_peak_bytes=0 if device is None else 96 << 20,
        pinned_peak_bytes=0 if device is None else 64 << 20,
    )


def crossed(device: Device) -> RunReport:
    size = 192.0**2
    found = Sample("crossover", Unit.ELEMENTS, 1, size, size, size, size, size, size)
    return RunReport("crossover", Backend.CUDA, device, (found,), duration_s=1.2, curve=CURVE)
