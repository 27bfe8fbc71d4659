"""What gpud itself costs, keeps and tells, and what the machine's clock does."""

from deploy.grafana.layout import Row, row
from deploy.grafana.parts import Panel, Query, Style, Text, graph, numbered
from deploy.grafana.selecting import increase, of, rate


def cost() -> Row:
    """Give the row on gpud's own cost."""
    return row(
        "gpud's own cost",
        _gpu_time(),
        _memory(),
        _processes(),
        _scrape(),
        _history(),
        _told(),
        _pauses(),
        _turned_away(),
        collapsed=True,
    )


def _gpu_time() -> Panel:
    return graph(
        Text(
            "GPU time of the probes",
            "Share of the GPU's time. A thousandth, 0.1 %, is what gpud is made for; more wants "
            "longer intervals in `[schedule]`.",
            "percentunit",
        ),
        Query(rate("gpud_own_gpu_seconds_total"), "of one GPU"),
        width=8,
        every="15m",
    )


def _memory() -> Panel:
    return graph(
        Text(
            "Most memory that one run took",
            "On the GPU, and page-locked on the host, since the agent started; held only during a "
            "run. Steady is good.",
            "bytes",
        ),
        Query(of("gpud_own_vram_peak_bytes"), "GPU"),
        Query(of("gpud_own_pinned_peak_bytes"), "page-locked"),
        width=8,
    )


def _processes() -> Panel:
    return graph(
        Text(
            "Processes started",
            "By the agent, a second: one for each run. Some per minute are good; many a second is "
            "a source or a probe that keeps dying.",
            "short",
        ),
        Query(rate("gpud_children_spawned_total"), "a second"),
        width=8,
    )


def _scrape() -> Panel:
    return graph(
        Text(
            "Scrape",
            "How long Prometheus waited. Below 10 ms is good, some more over a network; nothing is "
            "measured by a scrape, so growth is the machine or the way to it.",
            "s",
        ),
        Query(of("scrape_duration_seconds"), "duration"),
        width=8,
    )


def _history() -> Panel:
    return graph(
        Text(
            "History on disk",
            "With everything on it grows for a month to some 350 MiB and stays there. Runs that "
            "wait or were dropped mean a disk that takes nothing: GpudStoreFailing.",
            "bytes",
        ),
        Query(of("gpud_store_bytes"), "on disk"),
        width=8,
    )


def _told() -> Panel:
    return graph(
        Text(
            "Messages, waiting and dropped runs",
            "Alerts delivered and deliveries that failed, by sink; runs in memory only, runs that "
            "could not be kept. Failures and drops at 0 are good.",
            "none",
        ),
        Query(increase("gpud_notifications_total"), "{{sink}} delivered"),
        Query(increase("gpud_notifications_failures_total"), "{{sink}} failed"),
        Query(of("gpud_store_waiting_runs"), "runs waiting"),
        Query(increase("gpud_store_dropped_runs_total"), "runs dropped"),
        width=8,
    )


def _pauses() -> Panel:
    found = graph(
        Text(
            "Pauses and jumps of the clock",
            "Time in which the machine did not run, and partings of its clocks. A closed lid makes "
            "a pause; jumps without one are Windows setting the clock. Runs across either are left "
            "out.",
            "s",
        ),
        Query(increase("gpud_vm_paused_seconds_total"), "paused"),
        Query(increase("gpud_clock_jumps_total"), "jumps"),
        width=12,
        height=6,
        style=Style.BARS,
    )
    return numbered(found, "B")


def _turned_away() -> Panel:
    return graph(
        Text(
            "Turned away",
            "Requests refused and connections closed by gpud's listener, by reason. None is good; "
            "one `unauthorized` is a browser that asked for its password, many are a wrong one.",
            "none",
        ),
        Query(increase("gpud_http_refused_total"), "{{reason}}"),
        width=12,
        height=6,
        style=Style.BARS,
    )
