"""What is chosen at the top of a dashboard: where the data is, and which part of it."""

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as model

from deploy.grafana.parts import DATASOURCE
from deploy.grafana.selecting import FLEET, GPU, of

INPUT = "${DS_PROMETHEUS}"
"""Replaced by the data source that is chosen at an import; provisioned, Grafana takes its first."""
EVERYTHING = ".*"
"""What "All" stands for: the CPU too, whose series have no GPU."""
MACHINES = 'gpud_build_info{job=~"$job"}'


def of_machine() -> list[dashboard.QueryVariable | dashboard.DatasourceVariable]:
    """Give the variables of one machine."""
    launches = of("gpud_submit_latency_seconds_count", by=GPU)
    return [
        _datasource(),
        _job(),
        _asked("instance", "Machine", "A machine with gpud.", MACHINES),
        _several("gpu", "GPU", "GPUs; All has the CPU too.", of("gpud_gpu_info")),
        _several("probe", "Probe", "Of the metrics in their units.", of("gpud_probe_runs_total")),
        _preset(_asked("mode", "Launch mode", "Of heat map and quantiles.", launches), "submit"),
    ]


def of_fleet() -> list[dashboard.QueryVariable | dashboard.DatasourceVariable]:
    """Give the variables of a fleet; drivers are compared by one probe and mode."""
    models = of("gpud_gpu_info", 'name!=""', by=FLEET)
    drivers = of("gpud_gpu_info", 'name=~"$model"', 'driver_version!=""', by=FLEET)
    probes = of("gpud_judged_samples_total", 'gpu!=""', by=FLEET)
    modes = of("gpud_judged_samples_total", 'gpu!=""', 'probe="$probe"', by=FLEET)
    return [
        _datasource(),
        _job(),
        _several("instance", "Machines", "Machines with gpud.", MACHINES),
        _several("model", "GPU model", "Models of GPUs.", models, "name"),
        _several("driver", "Driver", "Drivers of these models.", drivers, "driver_version"),
        _preset(_asked("probe", "Probe", "The probe to compare by.", probes), "launch"),
        _preset(_asked("mode", "Mode", "The mode of that probe.", modes), "submit"),
    ]


def _datasource() -> dashboard.DatasourceVariable:
    """Choose the store; the value is the one chosen at the import, if there was an import."""
    return (
        dashboard.DatasourceVariable("datasource")
        .label("Data source")
        .description("The Prometheus that scrapes gpud.")
        .type("prometheus")
        .current(model.VariableOption(text=INPUT, value=INPUT))
    )


def _job() -> dashboard.QueryVariable:
    return _several("job", "Job", "Scrape jobs of gpud; the rules know `gpud`.", "gpud_build_info")


def _asked(
    name: str, label: str, description: str, series: str, of_label: str = ""
) -> dashboard.QueryVariable:
    query = f"label_values({series}, {of_label or name})"
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


def _preset(variable: dashboard.QueryVariable, value: str) -> dashboard.QueryVariable:
    return variable.current(model.VariableOption(text=value, value=value))


def _several(
    name: str, label: str, description: str, series: str, of_label: str = ""
) -> dashboard.QueryVariable:
    made = _asked(name, label, description, series, of_label)
    made.multi(True).include_all(True).all_value(EVERYTHING)
    return made.current(model.VariableOption(text=["All"], value=["$__all"]))
