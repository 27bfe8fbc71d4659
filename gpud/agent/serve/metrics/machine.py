"""The machine, its changes, the health of all components, and the cost of gpud itself."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

from gpud.agent.measure import breaker
from gpud.agent.regression.changes import KINDS
from gpud.agent.serve.metrics.families import clean, counters, gauge, gauges, infos
from gpud.show.refusals import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.clock import Instant


def identity(snapshot: Snapshot, now: Instant) -> Iterator[Metric]:
    """Yield versions, machine, start, and the clock that all other times of a scrape are of."""
    yield InfoMetricFamily(
        "gpud_build",
        "The running gpud.",
        value={"version": snapshot.machine.version, "python": platform.python_version()},
    )
    if snapshot.machine.platform:
        yield InfoMetricFamily(
            "gpud_platform",
            "The machine, as its kernel and distribution name themselves.",
            value={key: clean(value) for key, value in snapshot.machine.platform.items()},
        )
    if snapshot.machine.identity:
        yield InfoMetricFamily(
            "gpud_machine",
            "Which machine this is: a random id that lasts, and a host name that others may have.",
            value=dict(snapshot.machine.identity),
        )
    yield GaugeMetricFamily(
        "gpud_start_time_seconds",
        "Unix time at which the agent started.",
        snapshot.machine.started_s,
    )
    yield GaugeMetricFamily(
        "gpud_time_seconds",
        "Unix time by this machine's clock when the scrape was written, a second ago at most.",
        now.wall_s,
    )


def health(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the level of every component, and why it is not ok."""
    components = snapshot.health.items()
    yield gauges(
        "gpud_health",
        "0 ok, 1 degraded, 2 failed.",
        ("component",),
        (([name], one.level) for name, one in components),
    )
    yield infos(
        "gpud_health_reason",
        "Why a component is not ok.",
        ("component",),
        (([name], {"reason": clean(one.reason)}) for name, one in components if one.reason),
    )


def driver_answers(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the breaker's state: whether the driver answers."""
    standing = snapshot.measure.breaker
    if standing is None:
        return
    yield gauges(
        "gpud_breaker_state",
        "1 for the state the breaker is in.",
        ("state",),
        (([state], state is standing.state) for state in breaker.State),
    )
    yield GaugeMetricFamily(
        "gpud_gpu_stuck",
        "1 while a probe that was killed does not go away.",
        float(standing.state is breaker.State.STUCK),
    )
    yield GaugeMetricFamily("gpud_breaker_hangs", "Hangs in a row.", standing.hangs)
    yield gauge(
        "gpud_breaker_retry_timestamp_seconds", "When GPU work is tried again.", standing.retry_s
    )


def changes(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield how often each kind changed, and when the latest did; to the same twice is once."""
    yield counters(
        "gpud_changes",
        "Changes of driver and machine that were seen since the agent started.",
        ("kind",),
        (([kind], snapshot.changes.counts.get(kind, 0)) for kind in KINDS),
    )
    latest = {(change.kind, clean(change.new)): change.at_s for change in snapshot.changes.latest}
    yield gauges(
        "gpud_change_timestamp_seconds",
        "Unix time at which a change was seen, of the latest few.",
        ("kind", "to"),
        latest.items(),
    )


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
    """Yield refusals of the listener, and until when its certificate is good."""
    yield counters(
        "gpud_http_refused",
        "Requests and connections that the listener turned away.",
        ("reason",),
        (([reason.value], snapshot.http.turned_away.get(reason, 0)) for reason in Refused),
    )
    yield gauge(
        "gpud_http_certificate_expiry_timestamp_seconds",
        "Unix time at which the certificate of the listener expires.",
        snapshot.http.certificate_expires_s,
    )


def own(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield pauses and jumps of the clocks, and gpud's own cost."""
    yield CounterMetricFamily(
        "gpud_vm_paused_seconds",
        "Time the machine did not run, as clocks tell.",
        snapshot.machine.paused_s,
    )
    yield CounterMetricFamily(
        "gpud_clock_jumps", "Partings of wall and monotonic clock.", snapshot.machine.clock_jumps
    )
    yield CounterMetricFamily(
        "gpud_children_spawned",
        "Processes the agent started: its own cost.",
        snapshot.measure.children,
    )
    yield CounterMetricFamily(
        "gpud_own_gpu_seconds",
        "GPU time of gpud's probes: its own cost.",
        snapshot.measure.gpu_seconds,
    )
    yield gauge(
        "gpud_own_vram_peak_bytes",
        "Most GPU memory that a run took.",
        snapshot.measure.vram_peak_bytes,
    )
    yield gauge(
        "gpud_own_pinned_peak_bytes",
        "Most page-locked host memory that a run took.",
        snapshot.measure.pinned_peak_bytes,
    )
