"""Drivers on GPU models: medians of the machines' medians, never a pooled percentile."""

from typing import Final

from deploy.grafana.layout import Row, row
from deploy.grafana.parts import Panel, Query, Style, Text, graph, in_unit, rows, worst_first
from deploy.grafana.selecting import FLEET, MODEL, of

CHOSEN: Final = f'{FLEET}, gpu!="", probe="$probe", mode="$mode"'
COMPARED: Final = f'{MODEL}, probe="$probe", mode="$mode"'
INFO: Final = of("gpud_gpu_info", 'name=~"$model", driver_version=~"$driver"', by=FLEET)
IDENTITY: Final = f"(topk by (job, instance, gpu) (1, timestamp({INFO})) ^ 0)"
"""Model and driver of each GPU, the newest: a machine that was switched off without a word has its
old driver for five minutes beside the new one, and a join with both is an error."""
MEASURED: Final = of("gpud_probe_info", 'gpu!="", probe="$probe"', by=FLEET)
METHOD: Final = f"(topk by (job, instance, gpu, probe) (1, timestamp({MEASURED})) ^ 0)"
"""By which version of its method the probe measures each GPU: figures of two never compare."""
EACH: Final = "{{name}}, {{driver_version}}"
BY_METHOD: Final = f"{EACH}, method {{{{version}}}}"
RECORDED: Final = "driver:gpud_probe_cost"
"""What deploy/prometheus/rules/fleet.yml records of each driver on each model."""


def by_driver() -> Row:
    """Give the row that works without any recording rule."""
    return row("By model and driver", _table(), _hosts(), _latency(), _slowdown(), _throughput())


def compared() -> Row:
    """Give the row that rests on the recording rules, as the alert does."""
    return row("Drivers compared", _against_best(), _ratio())


def _of_machines(figure: str) -> str:
    """Join a figure of GPUs with model and driver: one value for each machine.

    Of runs on mains that nothing disturbed, as the recording rules take them.
    """
    disturbed = of("gpud_probe_flag", by=FLEET)
    on_battery = f"{of('gpud_probe_on_battery', by=FLEET)} == 1"
    return (
        "avg by (job, instance, name, driver_version, version) ("
        f"(({figure}) unless on (job, instance, gpu, probe) ({disturbed} or {on_battery}))"
        f" * on (job, instance, gpu, probe) group_left (version) {METHOD}"
        f" * on (job, instance, gpu) group_left (name, driver_version) {IDENTITY})"
    )


def _median(figure: str) -> str:
    return f"quantile by (name, driver_version, version) (0.5, {_of_machines(figure)})"


def _machines() -> str:
    return (
        f"count by (name, driver_version) (max by (job, instance, name, driver_version) {IDENTITY})"
    )


def _by_method() -> str:
    """Count machines by method too; one that the probe has not measured has none."""
    each = "job, instance, name, driver_version, version"
    return (
        f"count by (name, driver_version, version) (max by ({each}) ("
        f"{IDENTITY} * on (job, instance, gpu) group_left (version) {METHOD}"
        f" or on (job, instance, gpu) {IDENTITY}))"
    )


def _of_latency() -> str:
    return _median(of("gpud_probe_latency_median_seconds", by=CHOSEN))


def _of_slowdown() -> str:
    return f"{_median(of('gpud_slowdown_ratio', by=CHOSEN))} - 1"


def _table() -> Panel:
    found = rows(
        Text(
            "Models and their drivers",
            "How many machines have each, the median of their medians for the probe and mode "
            "chosen above, and how much slower than its own baseline the middle machine is. "
            "Compare drivers within a model and a version of the probe's method; models with each "
            "other tell nothing, nor do methods.",
            "none",
        ),
        Query(_by_method()),
        Query(_of_latency()),
        Query(_of_slowdown()),
        named={
            "name": "Model",
            "driver_version": "Driver",
            "version": "Method",
            "Value #A": "Machines",
            "Value #B": "Median latency",
            "Value #C": "Slower than usual",
        },
        absent="no GPU is heard of",
    )
    in_unit(found, "s", "Median latency")
    return in_unit(found, "percentunit", "Slower than usual")


def _hosts() -> Panel:
    return graph(
        Text(
            "Machines by driver",
            "How an update spreads. A driver is compared from five machines on.",
            "none",
        ),
        Query(_machines(), EACH),
        style=Style.STACKED,
    )


def _latency() -> Panel:
    return graph(
        Text(
            "Median latency by model and driver",
            "Of the probe and mode chosen above, on mains and undisturbed; a median of machines, "
            "which one odd machine does not move. Lines of one model that lie apart are drivers "
            "that differ. Empty for a probe of throughput.",
            "s",
        ),
        Query(_of_latency(), BY_METHOD),
        style=Style.LOGARITHMIC,
    )


def _throughput() -> Panel:
    bytes_, flops = (of(f"gpud_probe_{unit}_per_second", by=CHOSEN) for unit in ("bytes", "flops"))
    return graph(
        Text(
            "Median throughput by model and driver",
            "Bytes or operations a second of the probe and mode chosen above. Empty for a probe of "
            "latency.",
            "short",
        ),
        Query(_median(f"{bytes_} or {flops}"), BY_METHOD),
        width=24,
        style=Style.LOGARITHMIC,
    )


def _slowdown() -> Panel:
    return graph(
        Text(
            "Slower than usual by, the middle machine",
            "Each machine against itself before, then the median of a driver's machines: 0 % is "
            "good. One driver that rises and others that do not is that driver.",
            "percentunit",
        ),
        Query(_of_slowdown(), BY_METHOD),
        style=Style.FREE,
    )


def _against_best() -> Panel:
    found = worst_first(
        rows(
            Text(
                "Each driver against the best of its model",
                "From the recording rules in deploy/prometheus, without which it is empty: times "
                "the cost under the model's best driver that five machines have, the gap in "
                "standard errors, machines. GpudDriverSlowerThanBest fires above 1.15 and 3 with "
                "five machines: hold that update back.",
                "none",
            ),
            *(
                Query(f"max without (job) ({of(f'{RECORDED}{what}', by=MODEL)})")
                for what in ("_over_best:ratio", "_over_best:stderrs", ":count")
            ),
            named={
                "name": "Model",
                "driver_version": "Driver",
                "probe": "Probe",
                "mode": "Mode",
                "version": "Method",
                "Value #A": "Times the best",
                "Value #B": "Standard errors",
                "Value #C": "Machines",
            },
            width=14,
            height=10,
            absent="the recording rules have nothing to compare",
        ),
        "Times the best",
    )
    return in_unit(found, "short", "Times the best", "Standard errors")


def _ratio() -> Panel:
    return graph(
        Text(
            "Times the best driver, over time",
            "Of the probe and mode chosen above, from the recording rules. 1 is the best driver of "
            "a model; above 1.15 for an hour, with five machines and three standard errors, is the "
            "alert.",
            "short",
        ),
        Query(of(f"{RECORDED}_over_best:ratio", by=COMPARED), f"{BY_METHOD}, {{{{power}}}}"),
        width=10,
        height=10,
        style=Style.FREE,
    )
