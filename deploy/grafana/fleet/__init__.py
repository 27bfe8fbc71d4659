"""The dashboard of many machines: which driver is slower on which GPU, and who wants a look."""

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync

from deploy.grafana import annotations, layout, variables
from deploy.grafana.fleet import drivers, machines, now

UID = "gpud-fleet"


def build() -> dashboard.Dashboard:
    """Give the whole dashboard."""
    made = (
        dashboard.Dashboard("gpud: fleet")
        .uid(UID)
        .description("Many machines with gpud: drivers by GPU model, slow and silent machines.")
        .tags(["gpud"])
        .readonly()
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .time("now-7d", "now")
        .refresh("5m")
        .variables(
            [
                variables.datasource(),
                variables.job(),
                variables.instances(),
                variables.models(),
                variables.drivers(),
                variables.fleet_probe(),
                variables.fleet_mode(),
            ]
        )
        .annotations(list(annotations.of_fleet()))
        .link(layout.elsewhere("gpud: machine", "gpud-machine"))
    )
    layout.arranged(
        made,
        [
            now.now(),
            drivers.by_driver(),
            drivers.compared(),
            machines.machines(),
            machines.kinds(),
        ],
    )
    return made
