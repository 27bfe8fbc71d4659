"""The probes themselves: whether they run, and why not."""

from deploy.grafana.layout import Row, row
from deploy.grafana.parts import (
    GREEN,
    ORANGE,
    RED,
    Panel,
    Query,
    Style,
    Text,
    graph,
    rows,
    states,
)
from deploy.grafana.selecting import MACHINE, PROBE, age, increase, of

CHOSEN = f'{MACHINE}, probe=~"$probe"'
BREAKER = {1: ("open", ORANGE), 2: ("half open", ORANGE), 3: ("stuck", RED), 0: ("closed", GREEN)}


def probes() -> Row:
    """Give the row on runs, skips and failures."""
    return row(
        "Probes",
        _runs(),
        _skips(),
        _failures(),
        _ages(),
        _took(),
        _flags(),
        _breaker(),
        _kernel_log(),
        collapsed=True,
    )


def _runs() -> Panel:
    return graph(
        Text(
            "Runs that ended",
            "Small probes each minute, large ones each quarter of an hour, fewer on battery. A "
            "line that fell to 0 has its reason among the skips or the failures.",
            "none",
        ),
        Query(increase("gpud_probe_runs_total", by=CHOSEN), "{{probe}}"),
        width=8,
    )


def _skips() -> Panel:
    skips = increase("gpud_probe_skips_total", by=CHOSEN)
    return graph(
        Text(
            "Runs left out",
            "By reason: gpud is a guest and waits for games, battery, heat. Any are well. Only "
            "skips for hours, and nothing can be judged: `[gate]` in gpud.toml.",
            "none",
        ),
        Query(f"sum by (reason) ({skips})", "{{reason}}"),
        width=8,
        style=Style.BARS,
    )


def _failures() -> Panel:
    failures = increase("gpud_probe_failures_total", by=CHOSEN)
    return graph(
        Text(
            "Runs that failed",
            "By probe and reason. None is good; one probe alone that fails since a driver came is "
            "told as GpudFunctionLost. `gpud probe NAME` shows the error.",
            "none",
        ),
        Query(f"sum by (probe, reason) ({failures})", "{{probe}}: {{reason}}"),
        width=8,
        style=Style.BARS,
    )


def _ages() -> Panel:
    return graph(
        Text(
            "Age of the latest good run",
            "A saw is good: it falls with every run. Three hours without a skip is GpudProbeStale.",
            "s",
        ),
        Query(
            age(of("gpud_probe_last_success_timestamp_seconds", by=PROBE)),
            "{{probe}} {{gpu}}",
        ),
        width=8,
        style=Style.LOGARITHMIC,
    )


def _took() -> Panel:
    return graph(
        Text(
            "How long a run took",
            "Wall time in the probe's process. Steady is good; ten times as long is a driver about "
            "to hang, and the breaker below opens for it.",
            "s",
        ),
        Query(of("gpud_probe_duration_seconds", by=PROBE), "{{probe}} {{gpu}}"),
        width=8,
        style=Style.LOGARITHMIC,
    )


def _flags() -> Panel:
    flagged = increase("gpud_probe_flagged_runs_total", by=CHOSEN)
    return graph(
        Text(
            "Runs that were marked",
            "busy ran beside other work, low in a slow power state, cold and resume right after a "
            "start or a pause. They are kept and not judged. Any are well.",
            "none",
        ),
        Query(f"sum by (flag) ({flagged})", "{{flag}}"),
        width=8,
        style=Style.BARS,
    )


def _breaker() -> Panel:
    state = "gpud_breaker_state"
    number = " or ".join(
        f"max({of(state, matcher)} == 1) * {value}"
        for value, matcher in (
            (3, 'state="stuck"'),
            (1, 'state="open"'),
            (2, 'state="half_open"'),
            (0, 'state="closed"'),
        )
    )
    return states(
        Text(
            "Breaker of GPU work",
            "closed is good. open: a call hung, and gpud leaves the GPU alone for minutes. stuck: "
            "a probe that hung in the driver has not ended; `wsl --shutdown` ends it.",
            "none",
        ),
        Query(number, "breaker"),
        mapped=BREAKER,
        height=5,
    )


def _kernel_log() -> Panel:
    return rows(
        Text(
            "Lines of dxgkrnl since the boot",
            "From the kernel's log in WSL. noise is on healthy machines too. message_lost is the "
            "host that did not answer, not_resident GPU memory that is full.",
            "none",
        ),
        Query(f"max by (kind) ({of('gpud_dxg_messages_total')})"),
        named={"kind": "Kind", "Value": "Lines"},
        height=5,
        absent="the kernel's log cannot be read, or no word of this machine",
    )
