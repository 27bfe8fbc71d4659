"""Families: name, labels and help of each, and Prometheus' object of it from rows of values."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)

from gpud.core.sample import Buckets
from gpud.core.stats import LATENCY_BOUNDS_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    Rows: TypeAlias = float | Mapping[Any, Any] | None
    Families: TypeAlias = Iterator[tuple[str, Rows]]

LONGEST_LABEL: Final = 128
HISTOGRAM: Final = "gpud_submit_latency_seconds"

_TABLE: Final = """\
gpud_build_info
    The running gpud.
gpud_platform_info
    The machine, as its kernel and distribution name themselves.
gpud_machine_info
    Which machine this is: a random id that lasts, and a host name that others may have.
gpud_start_time_seconds
    Unix time at which the agent started.
gpud_time_seconds
    Unix time by this machine's clock when the scrape was written, a second ago at most.
gpud_health component
    0 ok, 1 degraded, 2 failed.
gpud_health_reason_info component
    Why a component is not ok.
gpud_dockerd_up
    1 while dockerd's API answers.
gpud_dockerd_owner_info
    Who started the dockerd in charge.
gpud_dockerd_ping_seconds
    How long the last good ping took.
gpud_dockerd_last_start_duration_seconds
    From starting dockerd to its API answering, last time.
gpud_dockerd_restarts_total reason
    Restarts of dockerd by gpud, by cause.
gpud_dockerd_suspect_sockets_total
    Ignored Unix sockets with the name of dockerd's that root did not create.
gpud_agent_restarts_total
    Restarts of the agent by root.
gpud_container_toolkit_info
    By which way Docker can hand out GPUs.
gpud_container_verdict_info
    What the container's n-body and the in-process one say together.
gpud_container_flops_ratio gpu
    The container's n-body rate over the in-process one; different kernels.
gpud_breaker_state state
    1 for the state the breaker is in.
gpud_gpu_stuck
    1 while a probe that hung in the driver, killed or left alone, has not ended.
gpud_breaker_hangs
    Hangs in a row.
gpud_breaker_retry_timestamp_seconds
    When GPU work is tried again.
gpud_kernel_log_readable
    1 while root can read the kernel's log.
gpud_dxg_messages_total kind
    Lines of dxgkrnl in the kernel's log.
gpud_kernel_log_overruns_total
    Times the kernel's log overtook its reader.
gpud_known_issue_info id effect state
    Known faults: seen here, or of this machine's versions (applies, reported).
gpud_probe_latency_median_seconds gpu probe mode
    Median of the last verified run, the empty call subtracted.
gpud_probe_bytes_per_second gpu probe mode
    Median throughput of the last verified run.
gpud_probe_flops_per_second gpu probe mode
    Median arithmetic rate of the last verified run.
gpud_probe_info gpu probe
    Version of the method of the last verified run; figures of two never compare.
gpud_crossover_elements gpu
    Smallest matrix whose product the GPU, copies included, brings sooner than the CPU.
gpud_submit_roundtrip_to_pipelined_ratio gpu
    A launch that is waited for over one in a row of 200, medians of the same run.
gpud_probe_latency_peak_seconds gpu probe mode peak
    Median of either hump of the last run, where it has two.
gpud_probe_latency_peak_share_ratio gpu probe mode peak
    Share of the last run's calls in either hump.
gpud_probe_latency_p99_net_seconds gpu probe mode
    99th percentile of the last run's short launches, less the null calls' excess.
gpud_probe_sm_clock_hertz gpu probe
    SM clock during the last run's batches, as the probe's own kernel read it.
gpud_submit_latency_seconds gpu mode
    Every launch timed since the agent started, the empty call subtracted.
gpud_probe_runs_total probe
    Runs that ended, good or bad.
gpud_probe_failures_total probe reason
    Runs that brought no number.
gpud_probe_skips_total probe reason
    Due runs that were not started.
gpud_probe_flagged_runs_total probe flag
    Runs that are no usual ones, and why.
gpud_probe_last_success_timestamp_seconds gpu probe
    Unix time of the last run whose results were right.
gpud_probe_interval_seconds probe
    Time from one run to the next as long as nothing is in the way.
gpud_probe_duration_seconds gpu probe
    Wall time of the last run, inside the child.
gpud_probe_flag gpu probe flag
    1 for what makes the last run no usual one.
gpud_probe_on_battery gpu probe
    1 when the last run was on battery, 0 when it was on mains.
gpud_probe_skipped_in_a_row gpu probe
    Due runs that were not started since the last one that was.
gpud_slowdown_ratio gpu probe mode
    How much slower than the baseline: 1.25 is 25 % slower, whatever the unit.
gpud_regression_active gpu probe mode kind
    1 while a change for the worse of this kind holds.
gpud_driver_verdict gpu probe mode state
    1 for the state that the judgement of the latest driver update is in.
gpud_baseline_latency_seconds gpu probe mode
    The level that the slowdown is measured from.
gpud_baseline_bytes_per_second gpu probe mode
    The level that the slowdown is measured from.
gpud_baseline_flops_per_second gpu probe mode
    The level that the slowdown is measured from.
gpud_slow_state_ratio gpu probe mode
    Share of the latest runs in which the GPU was slower than it usually lets itself be.
gpud_judged_samples_total gpu probe mode
    Samples that the detector has judged.
gpud_unjudged_samples_total gpu probe mode reason
    Samples that it has not, and why.
gpud_gpu_info gpu
    Identity of each GPU.
gpud_driver_info
    The NVIDIA driver, as telemetry names it.
gpud_gpu_exposed state
    1 for whether the system offers a GPU at all: /dev/dxg in WSL, a PCI device elsewhere.
gpud_gpu_ecc_enabled gpu
    NVML nvmlDeviceGetEccMode; may come from another source.
gpud_gpu_mig_enabled gpu
    NVML nvmlDeviceGetMigMode; may come from another source.
gpud_gpu_throttle_reason gpu reason
    NVML nvmlDeviceGetCurrentClocksEventReasons, 1 for each reason that holds the clocks down; \
may come from another source.
gpud_gpu_xid_errors_total gpu xid
    NVML nvmlEventSetWait, critical errors by their Xid since the agent started.
gpud_telemetry_last_success_timestamp_seconds
    Unix time of the last collection in which the best source brought readings.
gpud_telemetry_failures_total
    Collections in which the best source brought nothing.
gpud_telemetry_level
    The best source that sees a GPU now: 0 nothing, 1 dxg, 2 cuda, 3 nvidia_smi, 4 nvidia_smi_exe, \
5 nvml.
gpud_telemetry_source_up source
    1 while the last answer of a source is neither a failure nor too old.
gpud_telemetry_source_duration_seconds source
    How long the last answer of a source took.
gpud_telemetry_source_last_success_timestamp_seconds source
    Unix time of the last answer of a source that brought readings.
gpud_telemetry_source_failures_total source reason
    Times that a source was asked and brought nothing.
gpud_telemetry_program_starts_total source
    Times that a source started a program of the driver's.
gpud_telemetry_source_info field source
    Where each telemetry field comes from.
gpud_telemetry_absent_info gpu field reason
    Why a telemetry field has no value.
gpud_changes_total kind
    Changes of driver and machine that were seen since the agent started.
gpud_change_timestamp_seconds kind to
    Unix time at which a change was seen, of the latest few.
gpud_alerts_firing alertname severity
    gpud's own alerts that fire, those that a person has acknowledged included.
gpud_notifications_total sink
    Messages that a sink delivered.
gpud_notifications_failures_total sink
    Deliveries that failed.
gpud_store_bytes
    Disk space of the history, its log included.
gpud_store_runs
    Runs that are kept one by one.
gpud_store_waiting_runs
    Runs that are in memory only.
gpud_store_dropped_runs_total
    Runs that could not be kept.
gpud_http_refused_total reason
    Requests and connections that the listener turned away.
gpud_http_certificate_expiry_timestamp_seconds
    Unix time at which the certificate of the listener expires.
gpud_vm_paused_seconds_total
    Time the machine did not run, as clocks tell.
gpud_clock_jumps_total
    Partings of wall and monotonic clock.
gpud_children_spawned_total
    Processes the agent started: its own cost.
gpud_gpu_contexts_total
    GPU contexts that gpud made since the machine's boot.
gpud_gpu_contexts_budget
    GPU contexts that gpud makes on schedule in one boot, at most.
gpud_own_gpu_seconds_total
    GPU time of gpud's probes: its own cost.
gpud_own_vram_peak_bytes
    Most GPU memory that a run took.
gpud_own_pinned_peak_bytes
    Most page-locked host memory that a run took.
"""
"""Two lines a family: its name with its labels, and its help. The name tells the type."""

_LINES: Final = _TABLE.splitlines()
FAMILIES: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    name: (tuple(labels), text.strip())
    for (name, *labels), text in zip(map(str.split, _LINES[::2]), _LINES[1::2], strict=True)
}
"""Labels and help by name. Info families add labels of their own to each row."""


def family(name: str, rows: Rows) -> Metric:
    """Return a family of the table with one sample for each row whose value is known.

    ``rows``: values by their labels, or one value where there is no label. ``*_info`` takes more
    labels as values, the histogram takes buckets, and all else numbers.
    """
    return filled(name, *FAMILIES[name], rows)


def filled(name: str, labels: tuple[str, ...], text: str, rows: Rows) -> Metric:
    """Return any family likewise."""
    metric: Any = _type(name)(name.removesuffix("_info"), text, labels=labels)
    for key, value in (rows if isinstance(rows, Mapping) else {(): rows}).items():
        if value is not None:
            sample = _buckets(value) if isinstance(value, Buckets) else (value,)
            metric.add_metric((key,) if isinstance(key, str) else key, *sample)
    return cast("Metric", metric)


def _type(name: str) -> type[Any]:
    if name == HISTOGRAM:
        return HistogramMetricFamily
    if name.endswith("_info"):
        return InfoMetricFamily
    return CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily


def _buckets(buckets: Buckets) -> tuple[list[tuple[str, float]], float]:
    bounds = [*(f"{bound:g}" for bound in LATENCY_BOUNDS_S), "+Inf"]
    cumulative = map(float, accumulate(buckets.counts))
    return list(zip(bounds, cumulative, strict=True)), buckets.total


def clean(text: str) -> str:
    """Make a foreign string fit to be a label value: printable and cut."""
    return "".join(character for character in text if character.isprintable())[:LONGEST_LABEL]
