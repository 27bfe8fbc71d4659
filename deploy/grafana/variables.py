"""What is chosen at the top of a dashboard: where the data is, and which part of it."""

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as model

from deploy.grafana.parts import DATASOURCE
from deploy.grafana.selecting import FLEET, GPU, MACHINE

EVERYTHING = ".*"
"""What "All" stands for: the CPU too, whose series have no GPU."""


def datasource() -> dashboard.DatasourceVariable:
    """Choose among the Prometheus-compatible stores that Grafana knows."""
    return (
        dashboard.DatasourceVariable("datasource")
        .label("Data source")
        .description("Where gpud's metrics are kept.")
        .type("prometheus")
    )


def job() -> dashboard.QueryVariable:
    """Choose the scrape jobs; the rules in deploy/prometheus know the job `gpud`."""
    return _several("job", "Job", "Scrape jobs of gpud.", "gpud_build_info")


def instance() -> dashboard.QueryVariable:
    """Choose one machine."""
    return _asked(
        "instance", "Machine", "One machine with gpud.", 'gpud_build_info{job=~"$job"}', "instance"
    )


def instances() -> dashboard.QueryVariable:
    """Choose the machines."""
    return _several("instance", "Machines", "Machines with gpud.", 'gpud_build_info{job=~"$job"}')


def gpu() -> dashboard.QueryVariable:
    """Choose the GPUs of a machine; "All" has the CPU too."""
    return _several("gpu", "GPU", "GPUs of the machine; All has the CPU too.", _of("gpu_info"))


def probe() -> dashboard.QueryVariable:
    """Choose the probes."""
    return _several("probe", "Probe", "What is measured.", _of("probe_runs_total"))


def mode() -> dashboard.QueryVariable:
    """Choose how work is submitted, for what is drawn of launches alone."""
    family = "gpud_submit_latency_seconds_count"
    described = "How a launch is made, for the heat map and the quantiles."
    made = _asked("mode", "Launch mode", described, f"{family}{{{GPU}}}", "mode")
    return made.current(model.VariableOption(text="submit", value="submit"))


def models() -> dashboard.QueryVariable:
    """Choose the GPU models of a fleet."""
    family = f'gpud_gpu_info{{{FLEET}, name!=""}}'
    return _several("model", "GPU model", "Models of GPUs in the fleet.", family, "name")


def drivers() -> dashboard.QueryVariable:
    """Choose the drivers of a fleet."""
    family = f'gpud_gpu_info{{{FLEET}, name=~"$model", driver_version!=""}}'
    return _several("driver", "Driver", "Drivers of these models.", family, "driver_version")


def fleet_probe() -> dashboard.QueryVariable:
    """Choose the one probe that machines are compared by."""
    made = _asked("probe", "Probe", "What machines are compared by.", _slowdowns(""), "probe")
    return made.current(model.VariableOption(text="launch", value="launch"))


def fleet_mode() -> dashboard.QueryVariable:
    """Choose the one mode of that probe."""
    described = "Which figure of the probe."
    made = _asked("mode", "Mode", described, _slowdowns(', probe="$probe"'), "mode")
    return made.current(model.VariableOption(text="submit", value="submit"))


def _of(family: str) -> str:
    return f"gpud_{family}{{{MACHINE}}}"


def _slowdowns(more: str) -> str:
    return f'gpud_judged_samples_total{{{FLEET}, gpu!=""{more}}}'


def _asked(
    name: str, label: str, description: str, series: str, of_label: str
) -> dashboard.QueryVariable:
    query = f"label_values({series}, {of_label})"
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .description(description)
        .datasource(DATASOURCE)
        .query(
            {"query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery", "qryType": 1}
        )
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.NATURAL_ASC)
        .multi(False)
        .include_all(False)
    )


def _several(
    name: str, label: str, description: str, series: str, of_label: str = ""
) -> dashboard.QueryVariable:
    made = _asked(name, label, description, series, of_label or name)
    made.multi(True).include_all(True).all_value(EVERYTHING)
    return made.current(model.VariableOption(text=["All"], value=["$__all"]))
