"""The machine, what root reports, alerts, the health of all components, and gpud's own cost."""

from __future__ import annotations

import platform
from collections import Counter
from typing import TYPE_CHECKING, Final

from gpud.agent.measure import breaker
from gpud.agent.serve.metrics.families import clean
from gpud.agent.serve.refusals import Refused
from gpud.agent.state.facts import KINDS
from gpud.core.alerts import (
    DRIVER_REGRESSION,
    FUNCTION_LOST,
    SINK_FAILING,
    SLOWDOWN,
    UNWELL,
    Severity,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.agent.serve.metrics.families import Families
    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.clock import Instant

USUAL_ALERTS: Final = (
    (DRIVER_REGRESSION, Severity.WARNING),
    (DRIVER_REGRESSION, Severity.CRITICAL),
    (SLOWDOWN, Severity.WARNING),
    (SLOWDOWN, Severity.CRITICAL),
    (FUNCTION_LOST, Severity.CRITICAL),
    (UNWELL, Severity.WARNING),
    (SINK_FAILING, Severity.WARNING),
)
"""What can fire, with which severity: 0 where it does not."""


def identity(snapshot: Snapshot, now: Instant) -> Families:
    """Yield versions, machine, start, and the clock that all other times of a scrape are of."""
    build = {"version": snapshot.machine.version, "python": platform.python_version()}
    yield "gpud_build_info", {(): build}
    if snapshot.machine.platform:
        words = {key: clean(value) for key, value in snapshot.machine.platform.items()}
        yield "gpud_platform_info", {(): words}
    if snapshot.machine.identity:
        yield "gpud_machine_info", {(): dict(snapshot.machine.identity)}
    yield "gpud_start_time_seconds", snapshot.machine.started_s
    yield "gpud_time_seconds", now.wall_s


def health(snapshot: Snapshot) -> Families:
    """Yield the level of every component, and why it is not ok."""
    components = snapshot.health
    yield "gpud_health", {name: health.level for name, health in components.items()}
    reasons = {name: health.reason for name, health in components.items() if health.reason}
    rows = {name: {"reason": clean(reason)} for name, reason in reasons.items()}
    yield "gpud_health_reason_info", rows


def dockerd(snapshot: Snapshot) -> Families:
    """Yield the state of dockerd and of the agent's restarts; nothing while root is silent."""
    root = snapshot.root.report
    if root is None:
        return
    report = root.dockerd
    yield "gpud_dockerd_up", report.up
    yield "gpud_dockerd_owner_info", {(): {"owner": report.owner}}
    yield "gpud_dockerd_ping_seconds", report.ping_s
    yield "gpud_dockerd_last_start_duration_seconds", report.last_start_s
    yield "gpud_dockerd_restarts_total", _cleaned(report.restarts)
    if report.up is not None:
        yield "gpud_dockerd_suspect_sockets_total", report.suspect_sockets
    yield "gpud_agent_restarts_total", root.agent.restarts


def containers(snapshot: Snapshot) -> Families:
    """Yield the way in which containers get GPUs, and the comparison of their speed."""
    root = snapshot.root.report
    report = None if root is None else root.containers
    if report is not None and report.toolkit is not None:
        yield "gpud_container_toolkit_info", {(): {"state": report.toolkit.state}}
    if (compared := snapshot.root.comparison) is not None:
        yield "gpud_container_verdict_info", {(): {"verdict": compared.verdict}}
        yield "gpud_container_flops_ratio", {str(compared.gpu): compared.ratio}


def gpu_work(snapshot: Snapshot) -> Families:
    """Yield the breaker's state: whether the driver answers."""
    standing = snapshot.measure.breaker
    if standing is None:
        return
    yield "gpud_breaker_state", {state: state is standing.state for state in breaker.State}
    yield "gpud_gpu_stuck", float(standing.state is breaker.State.STUCK)
    yield "gpud_breaker_hangs", standing.hangs
    yield "gpud_breaker_retry_timestamp_seconds", standing.retry_s


def kernel_log(snapshot: Snapshot) -> Families:
    """Yield the messages of the GPU's channel to Windows, where root can read the log."""
    root = snapshot.root.report
    report = None if root is None else root.kernel_log
    if report is None:
        return
    yield "gpud_kernel_log_readable", float(report.unreadable is None)
    if report.unreadable is None:
        yield "gpud_dxg_messages_total", _cleaned(report.counts)
        yield "gpud_kernel_log_overruns_total", report.overruns


def known_faults(snapshot: Snapshot) -> Families:
    """Yield the known faults that were seen here or are of this machine's versions."""
    rows: dict[tuple[str, ...], dict[str, str]] = {
        (fault.id, fault.effect, fault.state): {} for fault in snapshot.known_faults
    }
    yield "gpud_known_issue_info", rows


def changes(snapshot: Snapshot) -> Families:
    """Yield how often each kind changed, and when the latest did; to the same twice is once."""
    yield "gpud_changes_total", {kind: snapshot.changes.counts.get(kind, 0) for kind in KINDS}
    latest = {
        (change.kind, clean(change.new or "")): change.at_s for change in snapshot.changes.latest
    }
    yield "gpud_change_timestamp_seconds", latest


def alerts(snapshot: Snapshot) -> Families:
    """Yield the number of firing alerts and both counters of each sink, from 0."""
    firing = Counter(
        (alert.name, alert.severity) for alert in snapshot.alerts.alerts if alert.firing
    )
    pairs = dict.fromkeys([*USUAL_ALERTS, *sorted(firing)])
    yield "gpud_alerts_firing", {pair: firing[pair] for pair in pairs}
    sinks = {clean(name): sink for name, sink in snapshot.alerts.sinks.items()}
    yield "gpud_notifications_total", {name: sink.sent for name, sink in sinks.items()}
    failures = {name: sink.failed for name, sink in sinks.items()}
    yield "gpud_notifications_failures_total", failures


def own(snapshot: Snapshot) -> Families:
    """Yield history, listener, pauses and jumps of the clocks, and gpud's own cost."""
    if (size := snapshot.store) is not None:
        yield "gpud_store_bytes", size.n_bytes
        yield "gpud_store_runs", size.runs
        yield "gpud_store_waiting_runs", size.waiting
        yield "gpud_store_dropped_runs_total", size.dropped
    refused = {reason.value: snapshot.http.turned_away.get(reason, 0) for reason in Refused}
    yield "gpud_http_refused_total", refused
    yield "gpud_http_certificate_expiry_timestamp_seconds", snapshot.http.certificate_expires_s
    yield "gpud_vm_paused_seconds_total", snapshot.machine.paused_s
    yield "gpud_clock_jumps_total", snapshot.machine.clock_jumps
    yield "gpud_children_spawned_total", snapshot.measure.children
    yield "gpud_gpu_contexts_total", snapshot.pace.contexts
    yield "gpud_gpu_contexts_budget", snapshot.pace.context_budget
    yield "gpud_own_gpu_seconds_total", snapshot.measure.gpu_seconds
    yield "gpud_own_vram_peak_bytes", snapshot.measure.vram_peak_bytes
    yield "gpud_own_pinned_peak_bytes", snapshot.measure.pinned_peak_bytes


def _cleaned(counts: Mapping[str, int]) -> dict[str, int]:
    return {clean(name): count for name, count in sorted(counts.items())}
