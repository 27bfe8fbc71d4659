"""The condition of each GPU, and how telemetry itself is doing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

from gpud.agent.export.labels import clean
from gpud.core import telemetry
from gpud.core.sample import Absent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from gpud.core.clock import Instant
    from gpud.core.sample import Reading
    from gpud.core.snapshot import Snapshot

TELEMETRY = {
    "memory_total_bytes": ("gpud_gpu_memory_total_bytes", "NVML nvmlDeviceGetMemoryInfo."),
    "memory_used_bytes": ("gpud_gpu_memory_used_bytes", "NVML nvmlDeviceGetMemoryInfo."),
    "memory_free_bytes": ("gpud_gpu_memory_free_bytes", "NVML nvmlDeviceGetMemoryInfo."),
    "temperature_celsius": ("gpud_gpu_temperature_celsius", "NVML nvmlDeviceGetTemperature."),
    "power_watts": ("gpud_gpu_power_watts", "NVML nvmlDeviceGetPowerUsage."),
    "power_limit_watts": (
        "gpud_gpu_power_limit_watts",
        "NVML nvmlDeviceGetEnforcedPowerLimit.",
    ),
    "pstate": ("gpud_gpu_pstate", "NVML nvmlDeviceGetPerformanceState; 0 is the fastest."),
}
CLOCKS = {
    "clock_graphics_hertz": "graphics",
    "clock_sm_hertz": "sm",
    "clock_memory_hertz": "memory",
}
UTILIZATIONS = {"utilization_gpu_ratio": "gpu", "utilization_memory_ratio": "memory"}


def families(snapshot: Snapshot, now: Instant) -> Iterator[Metric]:
    """Yield every reading that is fresh enough, under the number of its GPU."""
    readings = telemetry.current(snapshot.telemetry, now.mono_s)
    yield _gpu_info(snapshot, readings)
    for field, (name, text) in TELEMETRY.items():
        family = GaugeMetricFamily(name, text, labels=["gpu"])
        for reading, value in _numbers(readings, field):
            family.add_metric([str(reading.gpu)], value)
        yield family
    for name, text, label, fields in (
        ("gpud_gpu_clock_hertz", "NVML nvmlDeviceGetClockInfo.", "clock", CLOCKS),
        (
            "gpud_gpu_utilization_ratio",
            "NVML nvmlDeviceGetUtilizationRates: share of time busy.",
            "unit",
            UTILIZATIONS,
        ),
    ):
        labelled = GaugeMetricFamily(name, text, labels=["gpu", label])
        for field, kind in fields.items():
            for reading, value in _numbers(readings, field):
                labelled.add_metric([str(reading.gpu), kind], value)
        yield labelled
    energy = CounterMetricFamily(
        "gpud_gpu_energy_joules", "NVML nvmlDeviceGetTotalEnergyConsumption.", labels=["gpu"]
    )
    for reading, value in _numbers(readings, "energy_joules_total"):
        energy.add_metric([str(reading.gpu)], value)
    yield energy
    yield from _telemetry_about_itself(snapshot, readings)


def _gpu_info(snapshot: Snapshot, readings: tuple[Reading, ...]) -> Metric:
    family = InfoMetricFamily("gpud_gpu", "Identity of each GPU.", labels=["gpu"])
    drivers = {r.gpu: r.value for r in readings if r.field == "driver_version"}
    inventory = snapshot.inventory
    seen: dict[int, dict[str, str]] = {
        reading.gpu: {"name": str(reading.value)}
        for reading in readings
        if reading.field == "name"
        and reading.gpu is not None
        and not isinstance(reading.value, Absent)
    }
    for device in inventory.devices if inventory is not None else ():
        known = seen[snapshot.gpus[device.uuid].number] = {
            "uuid": device.uuid,
            "name": device.name,
            "compute_capability": device.compute_capability,
            "cuda_version": (inventory.cuda_version if inventory else None) or "",
        }
        if device.mig is not None:
            known["mig"] = device.mig
        if device.mps:
            known["mps"] = "true"
    for gpu, labels in sorted(seen.items()):
        driver = drivers.get(gpu, drivers.get(None))
        if isinstance(driver, str) and not isinstance(driver, Absent):
            labels["driver_version"] = driver
        family.add_metric([str(gpu)], {key: clean(value) for key, value in labels.items()})
    return family


def _telemetry_about_itself(snapshot: Snapshot, readings: tuple[Reading, ...]) -> Iterator[Metric]:
    sources = InfoMetricFamily(
        "gpud_telemetry_source", "Where each telemetry field came from.", labels=["field"]
    )
    for field, source in {
        reading.field: reading.source
        for reading in readings
        if not isinstance(reading.value, Absent)
    }.items():
        sources.add_metric([field], {"source": source})
    last = GaugeMetricFamily(
        "gpud_telemetry_last_success_timestamp_seconds",
        "Unix time of the last collection that brought readings.",
        labels=[],
    )
    said = snapshot.telemetry
    if said.last_success_s:
        last.add_metric([], max(said.last_success_s.values()))
    failures = CounterMetricFamily(
        "gpud_telemetry_failures",
        "Times that a source was asked and brought nothing.",
        sum(said.failures.values()),
    )
    yield from (sources, last, failures)


def _numbers(readings: tuple[Reading, ...], field: str) -> Iterator[tuple[Reading, float]]:
    for reading in readings:
        if reading.field == field and isinstance(reading.value, float | int):
            yield reading, float(reading.value)
