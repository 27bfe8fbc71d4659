"""Single machines that want a look, and what kinds there are."""

from typing import Final

from grafana_foundation_sdk.builders import table

from deploy.grafana.fleet.drivers import IDENTITY
from deploy.grafana.fleet.now import SEEN
from deploy.grafana.layout import Row, row
from deploy.grafana.parts import (
    Panel,
    Query,
    Style,
    Text,
    graph,
    in_unit,
    leading,
    rows,
    worst_first,
)
from deploy.grafana.selecting import FLEET, of

AN_HOUR_S: Final = 3600
ABSENT: Final = "none, or no machine is heard of"


def machines() -> Row:
    """Give the row of machines by name."""
    return row("Machines", _worst(), _alerts(), _silent(), _restarts(), _reasons(), _rules())


def kinds() -> Row:
    """Give the row on what the machines have in common."""
    return row("Versions", _versions(), _platforms(), _telemetry(), _known_faults())


def _to_machine(found: table.Panel) -> table.Panel:
    url = (
        "/d/gpud-machine?var-datasource=${datasource}&var-instance=${__value.raw}"
        "&${__url_time_range}"
    )
    return leading(found, "Machine", "this machine", url)


def _worst() -> Panel:
    slowdown = of("gpud_slowdown_ratio", 'gpu!=""', by=FLEET)
    found = worst_first(
        rows(
            Text(
                "Slowest against themselves",
                "The twenty figures furthest above their own baseline, whatever the probe. Below 5 "
                "% is noise. Many machines of one driver are the driver; one machine alone is that "
                "machine.",
                "none",
            ),
            Query(
                f"topk(20, (max by (job, instance, gpu, probe, mode) ({slowdown}) - 1)"
                " * on (job, instance, gpu) group_left (name, driver_version)"
                f" {IDENTITY})"
            ),
            named={
                "instance": "Machine",
                "gpu": "GPU",
                "name": "Model",
                "driver_version": "Driver",
                "probe": "Probe",
                "mode": "Mode",
                "Value": "Slower than usual",
            },
            width=14,
            height=10,
            absent="none judged yet",
        ),
        "Slower than usual",
    )
    return _to_machine(in_unit(found, "percentunit", "Slower than usual"))


def _alerts() -> Panel:
    return _to_machine(
        rows(
            Text(
                "The machines' own alerts",
                "What fires on which machine, one for each cause. Good is an empty table. "
                "`gpud alerts` there has evidence, likely cause and fix.",
                "none",
            ),
            Query(
                f"max by (instance, alertname, severity) ({of('gpud_alerts_firing', by=FLEET)}) > 0"
            ),
            named={"instance": "Machine", "alertname": "Alert", "severity": "Severity"},
            width=10,
            height=10,
            absent=ABSENT,
        )
    )


def _silent() -> Panel:
    found = worst_first(
        rows(
            Text(
                "Silent machines",
                "Not heard of for an hour, of those heard of in the time chosen above. Asleep is "
                "the usual reason. In use and silent: `gpud status` there, then its shipper.",
                "none",
            ),
            Query(f"(time() - {SEEN}) > {AN_HOUR_S}"),
            named={"instance": "Machine", "Value": "Silent for"},
            width=8,
            absent="none, or none in this range",
        ),
        "Silent for",
    )
    return _to_machine(in_unit(found, "s", "Silent for"))


def _restarts() -> Panel:
    agent, dockerd = (
        f"sum by (instance) (increase({of(f'gpud_{what}_restarts_total', by=FLEET)}[$__range])) > 0"
        for what in ("agent", "dockerd")
    )
    recorded = of("instance:gpud_dockerd_restarts:increase30m", by=FLEET)
    most = f"max by (instance) (max_over_time({recorded}[$__range])) > 0"
    return _to_machine(
        rows(
            Text(
                "Restarts in the time chosen",
                "Of gpud's agent, and the most of dockerd within half an hour (without the "
                "recording rules: all but a first one). One now and then is well; dozens are a "
                "crash loop, and the machine's logs have the reason.",
                "short",
            ),
            Query(agent),
            Query(f"{most} or {dockerd}"),
            named={"instance": "Machine", "Value #A": "Agent", "Value #B": "dockerd"},
            width=8,
            absent=ABSENT,
        )
    )


def _reasons() -> Panel:
    return worst_first(
        rows(
            Text(
                "Reasons, and how many machines have them",
                "Why parts of gpud are not ok. Good is an empty table. A reason that many machines "
                "have since a day is a driver or a Windows update.",
                "none",
            ),
            Query(
                "count by (component, reason) (max by (job, instance, component, reason) "
                f"({of('gpud_health_reason_info', by=FLEET)}))"
            ),
            named={"component": "Part", "reason": "Reason", "Value": "Machines"},
            width=8,
            absent=ABSENT,
        ),
        "Machines",
    )


def _rules() -> Panel:
    alerts = of("ALERTS", 'alertname=~"Gpud.+", alertstate="firing"', by='job=~"$job"')
    return rows(
        Text(
            "Alerts of Prometheus' rules",
            "From deploy/prometheus, those that compare machines included. Good is an empty table; "
            "it is empty too where the rules are not loaded or are evaluated elsewhere.",
            "none",
        ),
        Query(
            f"max by (alertname, severity, instance, name, driver_version, probe, mode) ({alerts})"
        ),
        named={
            "alertname": "Alert",
            "severity": "Severity",
            "instance": "Machine",
            "name": "Model",
            "driver_version": "Driver",
            "probe": "Probe",
            "mode": "Mode",
        },
        width=24,
        height=7,
        absent="none, or the rules are not loaded here",
    )


def _versions() -> Panel:
    return worst_first(
        rows(
            Text(
                "Versions of gpud",
                "One version everywhere is good; the runbooks and metrics of another differ.",
                "none",
            ),
            Query(f"count by (version) ({of('gpud_build_info', by=FLEET)})"),
            named={"version": "gpud", "Value": "Machines"},
            width=6,
            absent="none heard of",
        ),
        "Machines",
    )


def _platforms() -> Panel:
    return worst_first(
        rows(
            Text(
                "WSL and Windows",
                "What the machines run on. A reason or a slowdown that only one row has points at "
                "it.",
                "none",
            ),
            Query(
                "count by (distro, wsl, wsl_version, windows_build) "
                f"({of('gpud_platform_info', by=FLEET)})"
            ),
            named={
                "distro": "Distribution",
                "wsl": "WSL",
                "wsl_version": "Version of WSL",
                "windows_build": "Windows",
                "Value": "Machines",
            },
            width=10,
            absent="none heard of",
        ),
        "Machines",
    )


def _telemetry() -> Panel:
    return graph(
        Text(
            "Machines by telemetry level",
            "5 is NVML, 4 and 3 an nvidia-smi, 2 CUDA, 1 the paravirtual device alone, 0 nothing. "
            "All at 5 is good; many that fall at once lost NVML with an update.",
            "none",
        ),
        Query(f'count_values("level", {of("gpud_telemetry_level", by=FLEET)})', "level {{level}}"),
        width=8,
        style=Style.STACKED,
    )


def _known_faults() -> Panel:
    chosen = f'{FLEET}, name=~"$model", driver_version=~"$driver"'
    build = "job, wsl_version, driver_version, name"
    faults, hosts = (
        f"max_over_time({of(f'host_build:{series}', by=chosen)}[$__range])"
        for series in ("gpud_known_issue_info:max", "gpud_gpu_info:newest")
    )
    counted = f"count by ({build}, id, effect, state) ({faults})"
    of_all = f"{counted} ^ 0 * on ({build}) group_left () count by ({build}) ({hosts})"
    return worst_first(
        rows(
            Text(
                "Known faults by build",
                "How many machines of one WSL, driver and GPU model showed each known fault in the "
                "time chosen (seen), of how many; other states are of the versions alone. Good is "
                "no row with seen; a build without one is where to go. From the recording rules; "
                "`gpud status` on a machine says what to do.",
                "none",
            ),
            Query(counted),
            Query(of_all),
            named={
                "id": "Fault",
                "effect": "Effect",
                "state": "State",
                "wsl_version": "Version of WSL",
                "driver_version": "Driver",
                "name": "Model",
                "Value #A": "Machines",
                "Value #B": "Of",
            },
            width=24,
            absent="none, or the rules are not loaded here",
        ),
        "Machines",
    )
