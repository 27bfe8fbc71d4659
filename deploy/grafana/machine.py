"""The dashboard of one machine: is it slower than it was, by how much, since when, and why."""

from typing import Final

from grafana_foundation_sdk.builders import dashboard

from deploy.grafana import annotations, layout, variables
from deploy.grafana.layout import Row, row
from deploy.grafana.parts import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    Panel,
    Query,
    Style,
    Text,
    columns,
    cpu_by_name,
    dashed,
    graph,
    heat,
    label,
    leading,
    lined,
    number,
    rows,
    states,
    worst_first,
)
from deploy.grafana.selecting import GPU, LAUNCH, PROBE, age, increase, of, rate
from gpud.show.figures import MAIN
from gpud.words import called

COST: Final = "stream:gpud_probe_cost_over_usual:ratio"
LEAST_EFFECT: Final = 0.08
"""What the detector reports at least under the same driver: docs/detector.md."""
LEVELS: Final = {0: ("ok", GREEN), 1: ("degraded", ORANGE), 2: ("failed", RED)}
STATES: Final = {
    0: ("Fine", GREEN),
    1: ("Degraded", ORANGE),
    2: ("Slower", ORANGE),
    3: ("Failed", RED),
}
UNITS: Final = (
    ("Latency", "latency_median_seconds", "latency_seconds", "s"),
    ("Bandwidth", "bytes_per_second", "bytes_per_second", "Bps"),
    ("Arithmetic", "flops_per_second", "flops_per_second", "flops"),
)
"""Title, family of the last run, family of the baseline, Grafana's unit."""
STREAM: Final = "{{probe}} {{mode}}, GPU {{gpu}}"
USUAL: Final = f"usual: {STREAM}"
EACH: Final = "GPU {{gpu}}"
RUNS_APART: Final = "5m"
"""Small probes run each minute, rarely each five: a narrower step would have no run in it."""


def build() -> dashboard.Dashboard:
    """Give the whole dashboard."""
    words = "One machine with gpud: is its GPU slower than it was, since when, and why."
    made = layout.new("gpud: machine", words, "now-24h", "1m")
    made.variables(variables.of_machine()).annotations(list(annotations.of_machine()))
    made.link(layout.to_gpud("gpud's page", "/")).link(layout.to_gpud("Runbooks", "/runbooks/"))
    made.link(layout.to_dashboard("gpud: fleet", "gpud-fleet"))
    first = row("Now", *_state(), *_metrics(), _percent_of_usual())
    layout.arranged(made, [first, _each_metric(), _launches(), _telemetry(), _gpud()])
    return made


def _state() -> list[Panel]:
    heard = f"timestamp({of('gpud_build_info')})"
    last = f"(max({heard}) or max(max_over_time({heard}[$__range:1m])))"
    alerts = rows(
        Text("Alerts", "gpud's own alerts that fire. Each leads to its runbook.", "none"),
        Query(f"max by (alertname, severity) ({of('gpud_alerts_firing')}) > 0"),
        named={"alertname": "Alert", "severity": "Severity", "Value": "Count"},
        width=6,
        height=5,
    )
    runbook = "http://${instance}/runbooks/${__value.raw}"
    return [
        number(
            Text(
                "State",
                "As on gpud's page. Degraded and failed: see the reasons. Slower: see the metrics. "
                "`gpud status` says what to do. From the recording rules.",
                "none",
            ),
            Query(of("instance:gpud_state:max"), "state"),
            mapped=STATES,
            steps=[(None, GREY)],
        ),
        number(
            Text("Last scrape", "A machine that sleeps is not scraped.", "s"),
            Query(age(last), "last scrape"),
            steps=[(None, GREEN), (120, ORANGE), (600, GREY)],
            absent="not in this range",
        ),
        label(
            Text("Driver", "The driver in use; in WSL that of Windows.", "none"),
            Query(of("gpud_driver_info", 'driver_version!=""'), "{{driver_version}}"),
            absent="not known",
        ),
        leading(alerts, "Alert", runbook=runbook),
        rows(
            Text("Reasons", "Why a component is not ok; `gpud status` has the fix.", "none"),
            Query(f"max by (component, reason) ({of('gpud_health_reason_info')})"),
            named={"component": "Component", "reason": "Reason"},
            width=6,
            height=5,
        ),
    ]


def _metrics() -> list[Panel]:
    return [_beside_usual(*each) for each in UNITS]


def _beside_usual(title: str, family: str, baseline: str, unit: str) -> Panel:
    now = of(f"gpud_probe_{family}", by=GPU)
    names = {f"{probe} {mode}": {"text": called(probe, mode)} for probe, mode in sorted(MAIN)}
    table = rows(
        Text(
            title,
            "The last run, what is usual, and how much more time the last run took. The metrics of "
            "gpud's page, and others while they are slower.",
            unit,
        ),
        *(
            Query(f'label_join(max by (gpu, probe, mode) ({each}), "metric", " ", "probe", "mode")')
            for each in (
                _shown(f"gpud_probe_{family}"),
                _shown(f"gpud_baseline_{baseline}"),
                f"({_shown(COST)} and on (gpu, probe, mode) {now}) - 1",
            )
        ),
        named={
            "metric": "Metric",
            "gpu": "GPU",
            "Value #A": "Now",
            "Value #B": "Usual",
            "Value #C": "Slower by",
        },
        width=8,
        height=6,
        absent="no run yet",
    )
    columns(table, "Metric", mappings=[{"type": "value", "options": names}])
    columns(table, "Slower by", above=(LEAST_EFFECT, ORANGE), unit="percentunit", decimals=1)
    return worst_first(table, "Slower by")


def _shown(family: str) -> str:
    """Select the metrics of the first screen of gpud's page."""
    main = of("stream:gpud_probe_main:info", by=GPU)
    return f"{of(family, by=GPU)} and on (gpu, probe, mode) {main}"


def _percent_of_usual() -> Panel:
    panel = graph(
        Text(
            "Time for the same work, in percent of usual",
            "Above 100 % is slower, whatever the unit. At the dashed line gpud begins to call it "
            "slower. A step at a blue line came with that driver.",
            "percentunit",
            "GpudLatencyRegression",
        ),
        Query(_shown(COST), STREAM),
        style=Style.FREE,
        width=24,
        height=9,
    )
    panel.axis_soft_min(0.7).axis_soft_max(1.35)
    return lined(cpu_by_name(panel), (1, GREEN), (1 + LEAST_EFFECT, ORANGE))


def _each_metric() -> Row:
    described = "Median of each run of the chosen probes; dashed is usual."
    made = [
        graph(
            Text(f"{title} over time", described, unit),
            Query(of(f"gpud_probe_{family}", by=PROBE), STREAM),
            Query(of(f"gpud_baseline_{baseline}", by=PROBE), USUAL),
            style=Style.LOGARITHMIC,
            width=8,
            height=9,
        )
        for title, family, baseline, unit in UNITS
    ]
    return row("Each metric in its unit", *(cpu_by_name(dashed(panel, "B")) for panel in made))


def _launches() -> Row:
    buckets = "gpud_submit_latency_seconds_bucket"
    per_second = f"sum by (le, gpu) ({rate(buckets, by=LAUNCH)})"
    return row(
        "Every launch of the chosen mode",
        heat(
            Text(
                "Launches by latency",
                "One narrow band is good. A second band is a second power state or other work.",
                "s",
            ),
            Query(f"sum by (le) ({increase(buckets, by=LAUNCH)})", "{{le}}"),
            every=RUNS_APART,
        ),
        graph(
            Text("Quantiles of launch latency", "p99 within twice the median is good.", "s"),
            *(
                Query(
                    f"histogram_quantile({q}, {per_second})",
                    f"p{q * 100:g}, {EACH}",
                )
                for q in (0.5, 0.9, 0.99)
            ),
            height=9,
            style=Style.LOGARITHMIC,
            every=RUNS_APART,
        ),
    )


def _telemetry() -> Row:
    return row(
        "Why: heat, power, clocks, use",
        _temperature(),
        _power(),
        _clocks(),
        _limits(),
        _use(),
        _memory(),
    )


def _temperature() -> Panel:
    limit = of("gpud_gpu_temperature_threshold_celsius", 'threshold="slowdown"', by=GPU)
    panel = graph(
        Text(
            "Temperature",
            "At the dashed line the GPU slows itself down: look at fans and vents.",
            "celsius",
            "GpudThermalThrottling",
        ),
        Query(of("gpud_gpu_temperature_celsius", by=GPU), EACH),
        Query(limit, f"{EACH}: limit"),
        Query(of("gpud_gpu_memory_temperature_celsius", by=GPU), f"{EACH}: memory"),
        width=8,
    )
    return dashed(panel, "B")


def _power() -> Panel:
    panel = graph(
        Text("Power", "Dashed is the limit. A lower limit makes everything slower.", "watt"),
        Query(of("gpud_gpu_power_watts", by=GPU), EACH),
        Query(of("gpud_gpu_power_limit_watts", by=GPU), f"{EACH}: limit"),
        Query(rate("gpud_gpu_energy_joules_total", by=GPU), f"{EACH}: mean"),
        width=8,
    )
    return dashed(panel, "B")


def _clocks() -> Panel:
    two, each = 'clock=~"sm|memory"', f"{{{{clock}}}}, {EACH}"
    panel = graph(
        Text("Clocks", "Dashed is the maximum. Low clocks of an idle GPU are good.", "hertz"),
        Query(of("gpud_gpu_clock_hertz", two, by=GPU), each),
        Query(of("gpud_gpu_clock_max_hertz", two, by=GPU), f"{each}: maximum"),
        Query(of("gpud_probe_sm_clock_hertz", by=PROBE), f"sm during {{{{probe}}}}, {EACH}"),
        width=8,
    )
    return dashed(panel, "B")


def _limits() -> Panel:
    usual = 'reason=~"idle|power_cap|set_clocks|sync_boost|display_clocks"'
    reason, each = "gpud_gpu_throttle_reason", f"{{{{reason}}}}, {EACH}"
    return states(
        Text(
            "What holds the clocks down",
            "NVML's reasons. Blue is usual; red is heat or power supply.",
            "none",
            "GpudThermalThrottling",
        ),
        Query(of(reason, usual, by=GPU), each),
        Query(f"2 * {of(reason, usual.replace('=~', '!~'), by=GPU)}", each),
        mapped={0: ("no", GREY), 1: ("yes, as usual", BLUE), 2: ("yes", RED)},
        width=8,
    )


def _use() -> Panel:
    panel = graph(
        Text(
            "Use",
            "Above the first line gpud's runs are marked busy and not compared, above the second "
            "they are skipped.",
            "percentunit",
        ),
        Query(of("gpud_gpu_utilization_ratio", by=GPU), f"{{{{unit}}}}, {EACH}"),
        width=8,
    )
    return lined(panel, (0.05, BLUE), (0.3, ORANGE))


def _memory() -> Panel:
    return graph(
        Text("Memory", "With little free memory WSL moves data to the host: all is slow.", "bytes"),
        *(
            Query(of(f"gpud_gpu_memory_{part}_bytes", by=GPU), f"{part}, {EACH}")
            for part in ("used", "reserved", "free")
        ),
        style=Style.STACKED,
        width=8,
    )


def _gpud() -> Row:
    return row("Docker, probes, hardware", _health(), _restarts(), _runs(), _ages(), _errors())


def _health() -> Panel:
    return states(
        Text("Components", "A gap is time without a scrape.", "none", "GpudUnwell"),
        Query(of("gpud_health"), "{{component}}"),
        mapped=LEVELS,
        height=10,
    )


def _restarts() -> Panel:
    panel = graph(
        Text(
            "Restarts in 30 minutes",
            "Of dockerd and of gpud's agent. At the line they are a loop.",
            "none",
            "GpudDockerRestartLoop",
        ),
        Query(of("instance:gpud_dockerd_restarts:increase30m"), "dockerd"),
        Query(of("instance:gpud_agent_restarts:increase30m"), "agent"),
        height=10,
    )
    return lined(panel, (3, ORANGE))


def _runs() -> Panel:
    skipped, failed = (increase(f"gpud_probe_{what}_total") for what in ("skips", "failures"))
    return graph(
        Text(
            "Runs",
            "Skipped runs are gpud as a guest: it waits for other work, heat, battery.",
            "none",
            "GpudProbeFailing",
        ),
        Query(f"sum({increase('gpud_probe_runs_total')})", "ended"),
        Query(f"sum by (reason) ({skipped})", "skipped: {{reason}}"),
        Query(f"sum by (probe, reason) ({failed})", "failed: {{probe}}, {{reason}}"),
        width=8,
        style=Style.BARS,
    )


def _ages() -> Panel:
    panel = graph(
        Text(
            "Age of the last good run",
            "Above the line, with no skips, it is GpudProbeStale.",
            "s",
            "GpudProbeStale",
        ),
        Query(
            age(of("gpud_probe_last_success_timestamp_seconds", 'gpu!=""', by=PROBE)),
            "{{probe}}, " + EACH,
        ),
        width=8,
        style=Style.LOGARITHMIC,
    )
    return lined(panel, (3 * 3600, ORANGE))


def _errors() -> Panel:
    rows_, each = "gpud_gpu_remapped_rows_total", f"{{{{cause}}}} row, {EACH}"
    return graph(
        Text(
            "Hardware errors", "None is good. More and more of them is hardware.", "none", "GpudXid"
        ),
        Query(of("instance_gpu_xid:gpud_gpu_xid_errors:increase1h"), f"Xid {{{{xid}}}}, {EACH}"),
        Query(increase("gpud_gpu_pcie_replays_total", by=GPU), f"PCIe replay, {EACH}"),
        Query(increase("gpud_gpu_ecc_corrected_errors_total", by=GPU), f"ECC corrected, {EACH}"),
        Query(increase("gpud_gpu_ecc_uncorrected_errors_total", by=GPU), f"ECC, {EACH}"),
        Query(increase(rows_, by=GPU), each),
        width=8,
        style=Style.BARS,
    )
