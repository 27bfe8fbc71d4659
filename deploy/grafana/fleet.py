"""The dashboard of many machines: which driver is slower on which GPU, and who wants a look."""

from typing import Final

from grafana_foundation_sdk.builders import dashboard, table

from deploy.grafana import annotations, layout, variables
from deploy.grafana.layout import Row, row
from deploy.grafana.parts import (
    BLUE,
    GREEN,
    ORANGE,
    RED,
    Panel,
    Query,
    Style,
    Text,
    columns,
    graph,
    leading,
    lined,
    number,
    rows,
    worst_first,
)
from deploy.grafana.selecting import FLEET, MODEL, of

COST: Final = "driver:gpud_probe_cost"
"""What deploy/prometheus/rules/fleet.yml records of each driver on each model."""
CHOSEN: Final = f'{MODEL}, probe="$probe", mode="$mode"'
SLOWDOWN: Final = "gpu_driver:gpud_slowdown_ratio:newest"
EACH: Final = "{{name}}, {{driver_version}}"
LEAST_EFFECT: Final = 0.08
HOUR_S: Final = 3600
DAY_S: Final = 24 * HOUR_S
HEARD: Final = f"timestamp({of('gpud_build_info', by=FLEET)})"
SEEN: Final = (
    f"max by (job, instance) ({HEARD}"
    f" or max_over_time({of('instance:gpud_build_info:timestamp', by=FLEET)}[$__range]))"
)
"""When each machine of the chosen time was last scraped."""


def build() -> dashboard.Dashboard:
    """Give the whole dashboard."""
    words = "Many machines with gpud: drivers by GPU model, slow and silent machines."
    made = layout.new("gpud: fleet", words, "now-7d", "5m")
    made.variables(variables.of_fleet()).annotations(list(annotations.of_fleet()))
    made.link(layout.to_dashboard("gpud: machine", "gpud-machine"))
    layout.arranged(made, [_now(), _drivers(), _machines(), _versions()])
    return made


def _now() -> Row:
    cards = f"max by (job, instance, gpu) ({of('gpud_gpu_info', by=FLEET)})"
    slower = f"max by (job, instance) ({of('gpud_regression_active', by=FLEET)})"
    state = of("instance:gpud_state:max", by=FLEET)
    some = [(None, GREEN), (1, ORANGE)]
    return row(
        "Now",
        number(
            Text("Machines", "Scraped now. Laptops that sleep are not among them.", "none"),
            Query(f"count({of('gpud_build_info', by=FLEET)})", "machines"),
        ),
        number(
            Text("GPUs", "GPUs of these machines.", "none"),
            Query(f"count({cards})", "GPUs"),
        ),
        number(
            Text("Not fine", "Machines that are degraded, slower or failed.", "none"),
            Query(f"sum({state} > bool 0)", "machines"),
            steps=some,
        ),
        number(
            Text("Slower", "Machines with a metric that is slower than it was.", "none"),
            Query(f"sum({slower})", "machines"),
            steps=some,
            absent="not judged yet",
        ),
        number(
            Text("Alerts firing", "The machines' own alerts.", "none"),
            Query(f"sum({of('gpud_alerts_firing', by=FLEET)})", "alerts"),
            steps=[(None, GREEN), (1, RED)],
        ),
        number(
            Text("Silent for a day", "Machines of the chosen time without a scrape.", "none"),
            Query(f"sum((time() - {SEEN}) > bool {DAY_S})", "machines"),
            steps=some,
        ),
    )


def _drivers() -> Row:
    return row("Drivers", _compared(), _against_best(), _cost(), _slower(), _spread())


def _compared() -> Panel:
    found = rows(
        Text(
            "Drivers of each GPU model",
            "On mains. Time is of one call, byte or operation: the median of the machines' "
            "medians. From five machines on a driver is compared with the best of its model. A "
            "method is a version of the probe; two methods do not compare.",
            "none",
        ),
        *(
            Query(f"max without (job, power) ({of(f'{COST}{what}', _MAINS, by=MODEL)})")
            for what in (":count", ":median", "_over_best:ratio", "_over_best:stderrs")
        ),
        named={
            "name": "Model",
            "driver_version": "Driver",
            "probe": "Probe",
            "mode": "Mode",
            "version": "Method",
            "Value #A": "Machines",
            "Value #B": "Time",
            "Value #C": "Times the best",
            "Value #D": "Standard errors",
        },
        width=14,
        height=9,
        absent="no machine is compared, or no recording rules",
    )
    columns(found, "Time", unit="s")
    columns(found, "Times the best", above=(1.15, ORANGE), decimals=2)
    columns(found, "Standard errors", decimals=1)
    return worst_first(found, "Times the best")


_MAINS: Final = 'power="mains"'


def _against_best() -> Panel:
    panel = graph(
        Text(
            "Times the best driver",
            "Of the chosen probe and mode. Above the line for an hour, with five machines and "
            "three standard errors, GpudDriverSlowerThanBest fires.",
            "none",
        ),
        Query(of(f"{COST}_over_best:ratio", by=CHOSEN), f"{EACH}, {{{{power}}}}"),
        width=10,
        height=9,
        style=Style.FREE,
    )
    return lined(panel, (1.15, ORANGE))


def _cost() -> Panel:
    return graph(
        Text("Time by driver", "Of one call, byte or operation of the chosen probe and mode.", "s"),
        Query(of(f"{COST}:median", by=CHOSEN), f"{EACH}, {{{{power}}}}"),
        width=8,
        style=Style.LOGARITHMIC,
    )


def _slower() -> Panel:
    chosen = of(SLOWDOWN, MODEL, 'probe="$probe"', 'mode="$mode"', by=FLEET)
    panel = graph(
        Text(
            "Slower than usual by",
            "The middle machine of each driver, compared with itself before.",
            "percentunit",
        ),
        Query(f"quantile by (name, driver_version) (0.5, {chosen}) - 1", EACH),
        width=8,
        style=Style.FREE,
    )
    return lined(panel, (LEAST_EFFECT, ORANGE))


def _spread() -> Panel:
    machines = f"max by (job, instance, name, driver_version) ({_identities()})"
    panel = graph(
        Text("Machines by driver", "From the line on a driver is compared.", "none"),
        Query(f"count by (name, driver_version) ({machines})", EACH),
        width=8,
    )
    return lined(panel, (5, BLUE))


def _identities() -> str:
    return of("gpu:gpud_gpu_info:newest", MODEL, by=FLEET)


def _machines() -> Row:
    return row("Machines", _slowest(), _alerts(), _silent(), _reasons(), _rules())


def _to_machine(found: table.Panel) -> table.Panel:
    dashboard_ = (
        "/d/gpud-machine?var-datasource=${datasource}&var-instance=${__value.raw}"
        "&${__url_time_range}"
    )
    return leading(found, "Machine", its_dashboard=dashboard_, its_page="http://${__value.raw}/")


def _slowest() -> Panel:
    found = rows(
        Text(
            "Slowest against themselves",
            "The twenty metrics furthest above usual. Many machines of one driver are that driver.",
            "none",
        ),
        Query(f"topk(20, {of(SLOWDOWN, MODEL, by=FLEET)} - 1)"),
        named={
            "instance": "Machine",
            "gpu": "GPU",
            "name": "Model",
            "driver_version": "Driver",
            "probe": "Probe",
            "mode": "Mode",
            "Value": "Slower by",
        },
        width=14,
        height=9,
        absent="not judged yet, or no recording rules",
    )
    columns(found, "Slower by", above=(LEAST_EFFECT, ORANGE), unit="percentunit", decimals=1)
    return _to_machine(worst_first(found, "Slower by"))


def _alerts() -> Panel:
    found = rows(
        Text("The machines' own alerts", "Each leads to its runbook on the machine.", "none"),
        Query(f"max by (instance, alertname, severity) ({of('gpud_alerts_firing', by=FLEET)}) > 0"),
        named={"instance": "Machine", "alertname": "Alert", "severity": "Severity"},
        width=10,
        height=9,
    )
    runbook = "http://${__data.fields.Machine}/runbooks/${__value.raw}"
    return _to_machine(leading(found, "Alert", runbook=runbook))


def _silent() -> Panel:
    found = rows(
        Text("Silent machines", "Not scraped for an hour, of those in the chosen time.", "none"),
        Query(f"(time() - {SEEN}) > {HOUR_S}"),
        named={"instance": "Machine", "Value": "Silent for"},
        width=8,
        absent="none",
    )
    columns(found, "Silent for", unit="s")
    return _to_machine(worst_first(found, "Silent for"))


def _reasons() -> Panel:
    reasons = of("gpud_health_reason_info", by=FLEET)
    found = rows(
        Text("Reasons", "Why components are not ok, and on how many machines.", "none"),
        Query(
            f"count by (component, reason) (max by (job, instance, component, reason) ({reasons}))"
        ),
        named={"component": "Component", "reason": "Reason", "Value": "Machines"},
        width=8,
    )
    return worst_first(found, "Machines")


def _rules() -> Panel:
    alerts = of("ALERTS", 'alertname=~"Gpud.+", alertstate="firing"', by='job=~"$job"')
    by = "alertname, severity, instance, name, driver_version, probe, mode"
    found = rows(
        Text("Alerts of the rules", "Of deploy/prometheus, if this Prometheus has them.", "none"),
        Query(f"max by ({by}) ({alerts})"),
        named={
            "alertname": "Alert",
            "severity": "Severity",
            "instance": "Machine",
            "name": "Model",
            "driver_version": "Driver",
            "probe": "Probe",
            "mode": "Mode",
        },
        width=8,
        absent="none, or no rules",
    )
    return _to_machine(found)


def _versions() -> Row:
    return row("Versions", _counted_versions(), _known_faults())


def _counted_versions() -> Panel:
    platform = "distro, wsl_version, windows_build"
    info = of("gpud_platform_info", by=FLEET)
    build = f"max by (job, instance, version) ({of('gpud_build_info', by=FLEET)})"
    joined = f"{info} * on (job, instance) group_left (version) {build}"
    found = rows(
        Text("Versions", "What the machines run.", "none"),
        Query(f"count by (version, {platform}) ({joined})"),
        named={
            "version": "gpud",
            "distro": "Distribution",
            "wsl_version": "WSL",
            "windows_build": "Windows",
            "Value": "Machines",
        },
        width=10,
    )
    return worst_first(found, "Machines")


def _known_faults() -> Panel:
    build = "job, wsl_version, driver_version, name"
    faults, hosts = (
        f"max_over_time({of(f'host_build:{series}', MODEL, by=FLEET)}[$__range])"
        for series in ("gpud_known_issue_info:max", "gpud_gpu_info:newest")
    )
    counted = f"count by ({build}, id, effect, state) ({faults})"
    found = rows(
        Text(
            "Known faults by build",
            "On how many machines of a WSL, driver and GPU model each fault was seen in the chosen "
            "time. A build without it is where to go.",
            "none",
        ),
        Query(counted),
        Query(f"{counted} ^ 0 * on ({build}) group_left () count by ({build}) ({hosts})"),
        named={
            "id": "Fault",
            "effect": "Effect",
            "state": "State",
            "wsl_version": "WSL",
            "driver_version": "Driver",
            "name": "Model",
            "Value #A": "Machines",
            "Value #B": "Of",
        },
        width=14,
        absent="none, or no recording rules",
    )
    return worst_first(found, "Machines")
