"""dockerd and GPU containers, as root reports them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

from gpud.agent.serve.metrics.gauges import gauge
from gpud.agent.serve.metrics.labels import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from gpud.agent.state.snapshot import Snapshot


def families(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield nothing of dockerd while root is silent."""
    yield from _dockerd(snapshot)
    yield from _containers(snapshot)


def _dockerd(snapshot: Snapshot) -> Iterator[Metric]:
    if snapshot.root is None:
        return
    dockerd = snapshot.root.dockerd
    up = None if dockerd.up is None else float(dockerd.up)
    yield gauge("gpud_dockerd_up", "1 while dockerd's API answers.", up)
    yield InfoMetricFamily(
        "gpud_dockerd_owner", "Who started the dockerd in charge.", value={"owner": dockerd.owner}
    )
    yield gauge("gpud_dockerd_ping_seconds", "How long the last good ping took.", dockerd.ping_s)
    yield gauge(
        "gpud_dockerd_last_start_duration_seconds",
        "From starting dockerd to its API answering, last time.",
        dockerd.last_start_s,
    )
    restarts = CounterMetricFamily(
        "gpud_dockerd_restarts", "Restarts of dockerd by gpud, by cause.", labels=["reason"]
    )
    for reason, count in sorted(dockerd.restarts.items()):
        restarts.add_metric([clean(reason)], count)
    yield restarts
    if dockerd.up is not None:
        yield CounterMetricFamily(
            "gpud_dockerd_suspect_sockets",
            "Ignored Unix sockets with the name of dockerd's that root did not create.",
            dockerd.suspect_sockets,
        )
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
