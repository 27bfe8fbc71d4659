"""The machine, the health of everything, and what gpud itself costs."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

from gpud.agent.serve.metrics.gauges import gauge
from gpud.agent.serve.metrics.labels import clean
from gpud.show.refusals import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.clock import Instant


def identity(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield what runs, on what, since when."""
    yield InfoMetricFamily(
        "gpud_build",
        "The running gpud.",
        value={"version": snapshot.version, "python": platform.python_version()},
    )
    if snapshot.platform:
        yield InfoMetricFamily(
            "gpud_platform",
            "The machine, as its kernel and distribution name themselves.",
            value={key: clean(value) for key, value in snapshot.platform.items()},
        )
    if snapshot.machine:
        yield InfoMetricFamily(
            "gpud_machine",
            "Which machine this is: a random id that lasts, and a host name that others may have.",
            value=dict(snapshot.machine),
        )
    yield GaugeMetricFamily(
        "gpud_start_time_seconds", "Unix time at which the agent started.", snapshot.started_s
    )


def clock(now: Instant) -> Iterator[Metric]:
    """Yield what this machine takes for the time: all other times of a scrape are of its clock."""
    yield GaugeMetricFamily(
        "gpud_time_seconds",
        "Unix time by this machine's clock when the scrape was written, a second ago at most.",
        now.wall_s,
    )


def health(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the level of every component, and why it is not ok."""
    levels = GaugeMetricFamily("gpud_health", "0 ok, 1 degraded, 2 failed.", labels=["component"])
    reasons = InfoMetricFamily(
        "gpud_health_reason", "Why a component is not ok.", labels=["component"]
    )
    for component, found in snapshot.health.items():
        levels.add_metric([component], found.level)
        if found.reason:
            reasons.add_metric([component], {"reason": clean(found.reason)})
    yield from (levels, reasons)


def store(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield how much the history holds, and what it could not take."""
    if (size := snapshot.store) is None:
        return
    yield GaugeMetricFamily(
        "gpud_store_bytes", "Disk space of the history, its log included.", size.n_bytes
    )
    yield GaugeMetricFamily("gpud_store_runs", "Runs that are kept one by one.", size.runs)
    yield GaugeMetricFamily(
        "gpud_store_waiting_runs", "Runs that are in memory only.", size.waiting
    )
    yield CounterMetricFamily(
        "gpud_store_dropped_runs", "Runs that could not be kept.", size.dropped
    )


def listener(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield whom the listener turned away, and until when its certificate is good."""
    refused = CounterMetricFamily(
        "gpud_http_refused",
        "Requests and connections that the listener turned away.",
        labels=["reason"],
    )
    for reason in Refused:
        refused.add_metric([reason.value], snapshot.turned_away.get(reason, 0))
    yield refused
    if snapshot.certificate_expires_s is not None:
        yield GaugeMetricFamily(
            "gpud_http_certificate_expiry_timestamp_seconds",
            "Unix time at which the certificate of the listener expires.",
            snapshot.certificate_expires_s,
        )


def own(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the troubles of the clocks and gpud's own cost."""
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
    yield gauge(
        "gpud_own_vram_peak_bytes", "Most GPU memory that a run took.", snapshot.vram_peak_bytes
    )
    yield gauge(
        "gpud_own_pinned_peak_bytes",
        "Most page-locked host memory that a run took.",
        snapshot.pinned_peak_bytes,
    )
