"""dockerd, GPU containers and the kernel's log, as root reports them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

from gpud.agent.serve.metrics.families import clean, counters, gauge, gauges

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from gpud.agent.state.snapshot import Snapshot


def dockerd(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the state of dockerd and of the agent's restarts; nothing while root is silent."""
    if snapshot.root.report is None:
        return
    report = snapshot.root.report.dockerd
    yield gauge("gpud_dockerd_up", "1 while dockerd's API answers.", report.up)
    yield InfoMetricFamily(
        "gpud_dockerd_owner", "Who started the dockerd in charge.", value={"owner": report.owner}
    )
    yield gauge("gpud_dockerd_ping_seconds", "How long the last good ping took.", report.ping_s)
    yield gauge(
        "gpud_dockerd_last_start_duration_seconds",
        "From starting dockerd to its API answering, last time.",
        report.last_start_s,
    )
    yield counters(
        "gpud_dockerd_restarts",
        "Restarts of dockerd by gpud, by cause.",
        ("reason",),
        (([clean(reason)], count) for reason, count in sorted(report.restarts.items())),
    )
    if report.up is not None:
        yield CounterMetricFamily(
            "gpud_dockerd_suspect_sockets",
            "Ignored Unix sockets with the name of dockerd's that root did not create.",
            report.suspect_sockets,
        )
    yield CounterMetricFamily(
        "gpud_agent_restarts", "Restarts of the agent by root.", snapshot.root.report.agent.restarts
    )


def containers(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the way in which containers get GPUs, and the comparison of their speed."""
    report = None if snapshot.root.report is None else snapshot.root.report.containers
    if report is not None and report.toolkit is not None:
        yield InfoMetricFamily(
            "gpud_container_toolkit",
            "By which way Docker can hand out GPUs.",
            value={"state": report.toolkit.state},
        )
    compared = snapshot.root.comparison
    if compared is None:
        return
    yield InfoMetricFamily(
        "gpud_container_verdict",
        "What the container's n-body and the in-process one say together.",
        value={"verdict": compared.verdict},
    )
    yield gauges(
        "gpud_container_flops_ratio",
        "The container's n-body rate over the in-process one; different kernels.",
        ("gpu",),
        [([str(compared.gpu)], compared.ratio)],
    )


def kernel_log(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the messages of the GPU's channel to Windows, where root can read the log."""
    report = None if snapshot.root.report is None else snapshot.root.report.kernel_log
    if report is None:
        return
    yield GaugeMetricFamily(
        "gpud_kernel_log_readable",
        "1 while root can read the kernel's log.",
        float(report.unreadable is None),
    )
    if report.unreadable is not None:
        return
    yield counters(
        "gpud_dxg_messages",
        "Lines of dxgkrnl in the kernel's log.",
        ("kind",),
        (([clean(kind)], count) for kind, count in sorted(report.counts.items())),
    )
    yield CounterMetricFamily(
        "gpud_kernel_log_overruns", "Times the kernel's log overtook its reader.", report.overruns
    )
