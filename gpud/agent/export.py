"""Snapshot -> Prometheus families, all listed in docs/metrics.md; what is unknown is absent."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)

from gpud.agent import export_latency
from gpud.core import breaker, containers, telemetry
from gpud.core.sample import Absent, Pace, Unit
from gpud.core.snapshot import ProbeKey, ProbeState, Snapshot, fresh
from gpud.core.stats import LATENCY_BOUNDS_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from gpud.core.clock import Instant
    from gpud.core.sample import ProbeSpec, Reading
    from gpud.core.settings import Settings

LONGEST_LABEL = 128

MEDIANS = {
    Unit.SECONDS: (
        "gpud_probe_latency_median_seconds",
        "Median of the last verified run, the empty call subtracted.",
    ),
    Unit.BYTES_PER_SECOND: (
        "gpud_probe_bytes_per_second",
        "Median throughput of the last verified run.",
    ),
    Unit.FLOPS_PER_SECOND: (
        "gpud_probe_flops_per_second",
        "Median arithmetic rate of the last verified run.",
    ),
}

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


class SnapshotCollector:
    """A collector over one frozen value: no driver, no file and no lock is touched by a scrape."""

    def __init__(
        self, read: Callable[[], Snapshot], settings: Settings, now: Callable[[], Instant]
    ) -> None:
        self._read = read
        self._settings = settings
        self._now = now

    def collect(self) -> Iterator[Metric]:
        """Yield every family of the current snapshot, each with at least one sample."""
        snapshot = self._read()
        for family in (
            *_identity(snapshot),
            *_health(snapshot),
            *_dockerd(snapshot),
            *_containers(snapshot),
            *_loss(snapshot),
            *self._probes(snapshot),
            *self._gpus(snapshot),
            *_own(snapshot),
        ):
            if family.samples:
                yield family

    def _probes(self, snapshot: Snapshot) -> Iterator[Metric]:
        specs = {spec.name: spec for spec in snapshot.specs}
        current = {
            key: state
            for key, state in snapshot.probes.items()
            if self._is_fresh(state, self._interval_s(key.probe, specs))
        }
        for unit, (name, text) in MEDIANS.items():
            family = GaugeMetricFamily(name, text, labels=["gpu", "probe", "mode"])
            for key, state in current.items():
                for sample in state.samples:
                    if sample.unit is unit:
                        family.add_metric([_gpu(key), key.probe, sample.mode], sample.median)
            yield family
        yield _crossovers(current)
        yield from export_latency.families(current)
        yield _latencies(snapshot)
        yield from _probe_counters(snapshot)
        finished = GaugeMetricFamily(
            "gpud_probe_last_success_timestamp_seconds",
            "Unix time of the last run whose results were right.",
            labels=["gpu", "probe"],
        )
        took = GaugeMetricFamily(
            "gpud_probe_duration_seconds",
            "Wall time of the last run, inside the child.",
            labels=["gpu", "probe"],
        )
        flags = GaugeMetricFamily(
            "gpud_probe_flag",
            "1 for what makes the last run no usual one.",
            labels=["gpu", "probe", "flag"],
        )
        for key, state in snapshot.probes.items():
            if state.last_success_s is not None:
                finished.add_metric([_gpu(key), key.probe], state.last_success_s)
            if state.duration_s is not None and key in current:
                took.add_metric([_gpu(key), key.probe], state.duration_s)
            for flag in state.flags if key in current else ():
                flags.add_metric([_gpu(key), key.probe, flag], 1)
        yield from (finished, took, flags, _put_off(snapshot))

    def _interval_s(self, probe: str, specs: Mapping[str, ProbeSpec]) -> float:
        if probe == containers.PROBE:
            return self._settings.containers.interval_s
        spec, schedule = specs.get(probe), self._settings.schedule
        if spec is None or spec.pace is Pace.LARGE:
            return schedule.large_interval_s * (1 if spec is None else spec.every)
        return schedule.small_interval_s * spec.every

    def _is_fresh(self, state: ProbeState, interval_s: float) -> bool:
        if state.finished_mono_s is None:
            return False
        return fresh(self._now().mono_s - state.finished_mono_s, interval_s)

    def _gpus(self, snapshot: Snapshot) -> Iterator[Metric]:
        readings = telemetry.current(snapshot.telemetry, self._now().mono_s)
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


def _identity(snapshot: Snapshot) -> Iterator[Metric]:
    yield InfoMetricFamily(
        "gpud_build",
        "The running gpud.",
        value={"version": snapshot.version, "python": platform.python_version()},
    )
    if snapshot.platform:
        yield InfoMetricFamily(
            "gpud_platform",
            "The machine, as its kernel and distribution name themselves.",
            value={key: _label(value) for key, value in snapshot.platform.items()},
        )
    yield GaugeMetricFamily(
        "gpud_start_time_seconds", "Unix time at which the agent started.", snapshot.started_s
    )


def _health(snapshot: Snapshot) -> Iterator[Metric]:
    levels = GaugeMetricFamily("gpud_health", "0 ok, 1 degraded, 2 failed.", labels=["component"])
    reasons = InfoMetricFamily(
        "gpud_health_reason", "Why a component is not ok.", labels=["component"]
    )
    for component, health in snapshot.health.items():
        levels.add_metric([component], health.level)
        if health.reason:
            reasons.add_metric([component], {"reason": _label(health.reason)})
    yield from (levels, reasons)


def _dockerd(snapshot: Snapshot) -> Iterator[Metric]:
    if snapshot.root is None:
        return
    dockerd = snapshot.root.dockerd
    up = GaugeMetricFamily("gpud_dockerd_up", "1 while dockerd's API answers.", labels=[])
    if dockerd.up is not None:
        up.add_metric([], float(dockerd.up))
    yield up
    yield InfoMetricFamily(
        "gpud_dockerd_owner", "Who started the dockerd in charge.", value={"owner": dockerd.owner}
    )
    for name, text, value in (
        ("gpud_dockerd_ping_seconds", "How long the last good ping took.", dockerd.ping_s),
        (
            "gpud_dockerd_last_start_duration_seconds",
            "From starting dockerd to its API answering, last time.",
            dockerd.last_start_s,
        ),
    ):
        family = GaugeMetricFamily(name, text, labels=[])
        if value is not None:
            family.add_metric([], value)
        yield family
    restarts = CounterMetricFamily(
        "gpud_dockerd_restarts", "Restarts of dockerd by gpud, by cause.", labels=["reason"]
    )
    for reason, count in sorted(dockerd.restarts.items()):
        restarts.add_metric([_label(reason)], count)
    yield restarts
    yield CounterMetricFamily(
        "gpud_agent_restarts", "Restarts of the agent by root.", snapshot.root.agent.restarts
    )


def _containers(snapshot: Snapshot) -> Iterator[Metric]:
    said = None if snapshot.root is None else snapshot.root.containers
    if said is not None and said.toolkit is not None:
        yield InfoMetricFamily(
            "gpud_container_toolkit",
            "By which way Docker can hand out GPUs.",
            value={"state": said.toolkit.state},
        )
    compared = snapshot.containers
    if compared is None:
        return
    yield InfoMetricFamily(
        "gpud_container_verdict",
        "What the container's n-body and the in-process one say together.",
        value={"verdict": compared.verdict},
    )
    ratio = GaugeMetricFamily(
        "gpud_container_flops_ratio",
        "The container's n-body rate over the in-process one; different kernels.",
        labels=["gpu"],
    )
    if compared.ratio is not None:
        ratio.add_metric([str(compared.gpu)], compared.ratio)
    yield ratio


def _loss(snapshot: Snapshot) -> Iterator[Metric]:
    """Whether the driver gives answers, and what the kernel says of the GPU's bus."""
    standing = snapshot.breaker
    if standing is not None:
        states = GaugeMetricFamily(
            "gpud_breaker_state", "1 for the state the breaker is in.", labels=["state"]
        )
        for state in breaker.State:
            states.add_metric([state], float(state is standing.state))
        yield states
        stuck = standing.state is breaker.State.STUCK
        yield GaugeMetricFamily(
            "gpud_gpu_stuck", "1 while a probe that was killed does not go away.", float(stuck)
        )
        yield GaugeMetricFamily("gpud_breaker_hangs", "Hangs in a row.", standing.hangs)
        retry = GaugeMetricFamily(
            "gpud_breaker_retry_timestamp_seconds", "When GPU work is tried again.", labels=[]
        )
        if standing.retry_s is not None:
            retry.add_metric([], standing.retry_s)
        yield retry
    said = None if snapshot.root is None else snapshot.root.kernel_log
    if said is None:
        return
    yield GaugeMetricFamily(
        "gpud_kernel_log_readable",
        "1 while root can read the kernel's log.",
        float(said.unreadable is None),
    )
    if said.unreadable is not None:
        return
    messages = CounterMetricFamily(
        "gpud_dxg_messages", "Lines of dxgkrnl in the kernel's log.", labels=["kind"]
    )
    for kind, count in sorted(said.counts.items()):
        messages.add_metric([_label(kind)], count)
    yield messages
    yield CounterMetricFamily(
        "gpud_kernel_log_overruns", "Times the kernel's log overtook its reader.", said.overruns
    )


def _crossovers(current: Mapping[ProbeKey, ProbeState]) -> Metric:
    family = GaugeMetricFamily(
        "gpud_crossover_elements",
        "Smallest matrix whose product the GPU, copies included, brings sooner than the CPU.",
        labels=["gpu"],
    )
    for key, state in current.items():
        for sample in state.samples:
            if sample.unit is Unit.ELEMENTS:
                family.add_metric([_gpu(key)], sample.median)
    return family


def _latencies(snapshot: Snapshot) -> Metric:
    family = HistogramMetricFamily(
        "gpud_submit_latency_seconds",
        "Every launch timed since the agent started, the empty call subtracted.",
        labels=["gpu", "mode"],
    )
    bounds = [*(f"{bound:g}" for bound in LATENCY_BOUNDS_S), "+Inf"]
    for (gpu, mode), buckets in snapshot.latencies.items():
        cumulative, seen = [], 0
        for bound, count in zip(bounds, buckets.counts, strict=True):
            seen += count
            cumulative.append((bound, float(seen)))
        family.add_metric([str(gpu), mode], cumulative, buckets.total)
    return family


def _probe_counters(snapshot: Snapshot) -> Iterator[Metric]:
    runs = CounterMetricFamily("gpud_probe_runs", "Runs that ended, good or bad.", labels=["probe"])
    for probe, count in snapshot.runs.items():
        runs.add_metric([probe], count)
    failures = CounterMetricFamily(
        "gpud_probe_failures", "Runs that brought no number.", labels=["probe", "reason"]
    )
    for (probe, why), count in snapshot.failures.items():
        failures.add_metric([probe, why], count)
    skips = CounterMetricFamily(
        "gpud_probe_skips", "Due runs that were not started.", labels=["probe", "reason"]
    )
    for (probe, reason), count in snapshot.skips.items():
        skips.add_metric([probe, reason], count)
    flagged = CounterMetricFamily(
        "gpud_probe_flagged_runs", "Runs that are no usual ones, and why.", labels=["probe", "flag"]
    )
    for (probe, flag), count in snapshot.flagged.items():
        flagged.add_metric([probe, flag], count)
    yield from (runs, failures, skips, flagged)


def _put_off(snapshot: Snapshot) -> Metric:
    family = GaugeMetricFamily(
        "gpud_probe_skipped_in_a_row",
        "Due runs that were not started since the last one that was.",
        labels=["gpu", "probe"],
    )
    known = {key: 0 for key in snapshot.probes if key.probe != containers.PROBE}
    for key, count in {
        **known,
        **{key: put_off.count for key, put_off in snapshot.put_off.items()},
    }.items():
        family.add_metric([_gpu(key), key.probe], count)
    return family


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
        family.add_metric([str(gpu)], {key: _label(value) for key, value in labels.items()})
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


def _own(snapshot: Snapshot) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "gpud_vm_paused_seconds", "Time the machine did not run, as clocks tell.", snapshot.paused_s
    )
    yield CounterMetricFamily(
        "gpud_clock_jumps", "Partings of wall and monotonic clock.", snapshot.clock_jumps
    )
    yield CounterMetricFamily(
        "gpud_children_spawned", "Processes the agent started: its own cost.", snapshot.children
    )
    yield CounterMetricFamily(
        "gpud_own_gpu_seconds", "GPU time of gpud's probes: its own cost.", snapshot.gpu_seconds
    )
    for name, text, peak in (
        ("gpud_own_vram_peak_bytes", "Most GPU memory that a run took.", snapshot.vram_peak_bytes),
        (
            "gpud_own_pinned_peak_bytes",
            "Most page-locked host memory that a run took.",
            snapshot.pinned_peak_bytes,
        ),
    ):
        family = GaugeMetricFamily(name, text, labels=[])
        if peak is not None:
            family.add_metric([], peak)
        yield family


def _numbers(readings: tuple[Reading, ...], field: str) -> Iterator[tuple[Reading, float]]:
    for reading in readings:
        if reading.field == field and isinstance(reading.value, float | int):
            yield reading, float(reading.value)


def _gpu(key: ProbeKey) -> str:
    """CPU probes have no GPU, and an empty label is no label to Prometheus."""
    return "" if key.gpu is None else str(key.gpu)


def _label(text: str) -> str:
    """Make a string from outside fit to be a label: printable, and not a novel."""
    return "".join(character for character in text if character.isprintable())[:LONGEST_LABEL]
