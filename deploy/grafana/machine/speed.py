"""What gpud exists for: how long work takes, how fast it is done, and whether that changed."""

from deploy.grafana.layout import Row, row
from deploy.grafana.parts import (
    GREEN,
    RED,
    Panel,
    Query,
    Style,
    Text,
    dashed,
    graph,
    heat,
    rows,
    states,
)
from deploy.grafana.selecting import LAUNCH, PROBE, of

STREAM = "{{probe}} {{mode}} {{gpu}}"
BASELINE = "usual: {{probe}} {{mode}} {{gpu}}"
RUNS_APART = "5m"
"""Small probes run each minute, rarely each five: a narrower step would have no run in it."""


def regressions() -> Row:
    """Give the row that compares with what is usual."""
    return row("Regressions", _slowdown(), _worse(), _verdicts(), _slow_state(), _judged())


def launches() -> Row:
    """Give the row on how long the GPU takes to accept and to finish small work."""
    return row(
        "Launch latency", _latency(), _heat(), _quantiles(), _waiting(), _humps(), _share_of_humps()
    )


def throughput() -> Row:
    """Give the row on large work."""
    return row("Throughput", _bytes(), _flops(), _crossover(), _cpu())


def _slowdown() -> Panel:
    return graph(
        Text(
            "Slower than usual by",
            "Each figure against its own baseline: 0 % is usual, 25 % takes a quarter longer, "
            "whatever the unit. Within 5 % is good. A step at a blue line came with that driver: "
            "`gpud history` has both sides, `gpud baseline accept PROBE MODE` makes it "
            "the usual.",
            "percentunit",
        ),
        Query(f"{of('gpud_slowdown_ratio', by=PROBE)} - 1", STREAM),
        width=16,
        height=10,
        style=Style.FREE,
    )


def _worse() -> Panel:
    return states(
        Text(
            "Changes for the worse that hold",
            "Red while gpud holds a figure to be worse: with a driver, at once under the same one "
            "(step), little by little (drift), or more often in the slow power state. None is "
            "good.",
            "none",
        ),
        Query(
            f"max by (gpu, probe, mode, kind) ({of('gpud_regression_active', by=PROBE)}) > 0",
            "{{probe}} {{mode}} {{gpu}}: {{kind}}",
        ),
        mapped={1: ("worse", RED), 0: ("as usual", GREEN)},
        width=8,
        height=10,
    )


def _verdicts() -> Panel:
    return rows(
        Text(
            "The latest driver, judged",
            "What the update did to each figure: learning takes some 20 minutes of runs, undecided "
            "is within the noise. Of `regressed` the table of `gpud baseline show` has the "
            "figures.",
            "none",
        ),
        Query(
            f"max by (gpu, probe, mode, state) ({of('gpud_driver_verdict', by=PROBE)}) == 1",
        ),
        named={"gpu": "GPU", "probe": "Probe", "mode": "Mode", "state": "Verdict"},
        width=8,
        absent="no driver was replaced since gpud watches",
    )


def _slow_state() -> Panel:
    return graph(
        Text(
            "Runs in the slow power state",
            "Share of the latest 240 runs for which the GPU did not wake up. A level is usual for "
            "a laptop; growth under one driver is told as slow_state.",
            "percentunit",
        ),
        Query(of("gpud_slow_state_ratio", by=PROBE), STREAM),
        width=8,
    )


def _judged() -> Panel:
    judged, left_out = (
        f"sum(rate({of(f'gpud_{kind}_samples_total', by=PROBE)}[$__rate_interval]))"
        for kind in ("judged", "unjudged")
    )
    return graph(
        Text(
            "Samples judged, and left out",
            "What the detector rests on. Left out are runs beside other work (busy), in a slow "
            "power state (low), after a pause. Mostly left out means that verdicts take longer.",
            "short",
        ),
        Query(f"{judged} * 60", "judged a minute"),
        Query(
            left_out.replace("sum(", "sum by (reason) (") + " * 60", "left out a minute: {{reason}}"
        ),
        width=8,
        every=RUNS_APART,
    )


def _latency() -> Panel:
    return dashed(
        graph(
            Text(
                "Latency, median of each run",
                "What gpud measures each minute; dashed is the level that is usual. Lines on "
                "their dashes are good. All of them rising at a blue mark is the driver; one of "
                "them, or without a mark, see the clocks and what else runs.",
                "s",
            ),
            Query(of("gpud_probe_latency_median_seconds", by=PROBE), STREAM),
            Query(of("gpud_baseline_latency_seconds", by=PROBE), BASELINE),
            width=24,
            height=10,
            style=Style.LOGARITHMIC,
        ),
        "B",
    )


def _heat() -> Panel:
    launches = f"increase({of('gpud_submit_latency_seconds_bucket', by=LAUNCH)}[$__rate_interval])"
    return heat(
        Text(
            "Every launch, by how long it took",
            "All launches of the mode chosen above, not medians: one narrow band is good. A second "
            "band is a second power state or other work; a band that moves is a change of driver.",
            "s",
        ),
        Query(f"sum by (le) ({launches})", "{{le}}"),
        every=RUNS_APART,
    )


def _quantiles() -> Panel:
    buckets = f"rate({of('gpud_submit_latency_seconds_bucket', by=LAUNCH)}[$__rate_interval])"
    return graph(
        Text(
            "Quantiles of all launches",
            "Of the mode chosen above. The 99th percentile is what a frame or a request waits for "
            "now and then: good is within twice the median. It grows first when other work shares "
            "the GPU.",
            "s",
        ),
        *(
            Query(
                f"histogram_quantile({quantile}, sum by (le, gpu) ({buckets}))",
                f"p{quantile * 100:g} GPU {{{{gpu}}}}",
            )
            for quantile in (0.5, 0.9, 0.99)
        ),
        height=10,
        style=Style.LOGARITHMIC,
        every=RUNS_APART,
    )


def _waiting() -> Panel:
    return graph(
        Text(
            "A launch that is waited for over one in a row",
            "What paravirtualisation costs work that waits for each launch. Two to five is usual "
            "on Linux, more in WSL; growth means that each trip to the host became dearer.",
            "none",
        ),
        Query(of("gpud_submit_roundtrip_to_pipelined_ratio", 'gpu=~"$gpu"'), "GPU {{gpu}}"),
        width=8,
    )


def _humps() -> Panel:
    return graph(
        Text(
            "Runs with two kinds of launch",
            "Where latencies have two humps neither a mean nor a median says what a launch costs: "
            "both are drawn. Empty is good.",
            "s",
        ),
        Query(of("gpud_probe_latency_peak_seconds", by=PROBE), f"{STREAM} {{{{peak}}}}"),
        width=8,
        style=Style.LOGARITHMIC,
    )


def _share_of_humps() -> Panel:
    return graph(
        Text(
            "Share of launches in the slower hump",
            "How much of a run is of the slow kind. Empty is good; a growing share is a slowdown "
            "that medians show late.",
            "percentunit",
        ),
        Query(of("gpud_probe_latency_peak_share_ratio", 'peak="high"', by=PROBE), STREAM),
        width=8,
    )


def _bytes() -> Panel:
    return dashed(
        graph(
            Text(
                "Memory and bus",
                "Copies and STREAM triad; dashed is usual. On the dashes is good. A fall of copies "
                "alone points at the PCIe link (row on the card), of all at clocks or driver.",
                "Bps",
            ),
            Query(of("gpud_probe_bytes_per_second", by=PROBE), STREAM),
            Query(of("gpud_baseline_bytes_per_second", by=PROBE), BASELINE),
            height=10,
            style=Style.LOGARITHMIC,
        ),
        "B",
    )


def _flops() -> Panel:
    return dashed(
        graph(
            Text(
                "Arithmetic",
                "n-body and matrix products; dashed is usual. On the dashes is good. A fall with "
                "the clocks is heat or power; without them, the driver.",
                "flops",
            ),
            Query(of("gpud_probe_flops_per_second", by=PROBE), STREAM),
            Query(of("gpud_baseline_flops_per_second", by=PROBE), BASELINE),
            height=10,
            style=Style.LOGARITHMIC,
        ),
        "B",
    )


def _crossover() -> Panel:
    return graph(
        Text(
            "Smallest matrix worth the GPU",
            "In elements (65,536 is 256 x 256), copies included: below it numpy is sooner done. "
            "Steady is good. It grows when launches or copies become dearer.",
            "short",
        ),
        Query(of("gpud_crossover_elements", 'gpu=~"$gpu"'), "GPU {{gpu}}"),
        style=Style.LOGARITHMIC,
    )


def _cpu() -> Panel:
    cpu = of("gpud_slowdown_ratio", 'gpu=""')
    return graph(
        Text(
            "The CPU beside it, slower than usual by",
            "The same judgement on work without a GPU. Near 0 % while the GPU's figures are worse "
            "blames the driver or the GPU; both worse blames the machine: power plan, heat, load.",
            "percentunit",
        ),
        Query(f"{cpu} - 1", "{{probe}} {{mode}}"),
        style=Style.FREE,
    )
