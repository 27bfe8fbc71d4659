"""The dashboard of one machine: is it well, has work become slower, and what is the GPU doing."""

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync

from deploy.grafana import annotations, layout, variables
from deploy.grafana.machine import docker, gpu, now, own, probes, sources, speed

UID = "gpud-machine"


def build() -> dashboard.Dashboard:
    """Give the whole dashboard."""
    made = (
        dashboard.Dashboard("gpud: machine")
        .uid(UID)
        .description("One machine with gpud: health, Docker, what the GPU can do, telemetry.")
        .tags(["gpud"])
        .readonly()
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .time("now-24h", "now")
        .refresh("1m")
        .variables(
            [
                variables.datasource(),
                variables.job(),
                variables.instance(),
                variables.gpu(),
                variables.probe(),
                variables.mode(),
            ]
        )
        .annotations(list(annotations.of_machine()))
        .link(layout.elsewhere("gpud: fleet", "gpud-fleet"))
    )
    layout.arranged(
        made,
        [
            now.now(),
            speed.regressions(),
            speed.launches(),
            speed.throughput(),
            docker.docker(),
            gpu.heat_and_power(),
            gpu.clocks_and_load(),
            gpu.card(),
            sources.sources(),
            probes.probes(),
            own.cost(),
        ],
    )
    return made
