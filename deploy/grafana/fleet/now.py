"""The first row: how many machines there are, and how many want a look."""

from typing import Final

from deploy.grafana.layout import Row, row
from deploy.grafana.parts import GREEN, ORANGE, RED, Panel, Query, Text, number
from deploy.grafana.selecting import FLEET, of

A_DAY_S: Final = 86400
HEARD: Final = f"timestamp({of('gpud_build_info', by=FLEET)})"
SEEN: Final = (
    f"max by (job, instance) ({HEARD}"
    f" or max_over_time({of('instance:gpud_build_info:timestamp', by=FLEET)}[$__range])"
    f" or max_over_time({HEARD}[$__range:5m]))"
)
"""When each machine of the chosen time was last heard of: now, as recorded, else looked up."""


def now() -> Row:
    """Give the row of counts."""
    return row("Now", _heard(), _cards(), _unwell(), _slower(), _alerts(), _silent())


def _heard() -> Panel:
    return number(
        Text(
            "Machines heard of",
            "With a scrape or a push within five minutes. Laptops that sleep are not among them, "
            "so it falls each night and that is well.",
            "none",
        ),
        Query(f"count({of('gpud_build_info', by=FLEET)})", "machines"),
        absent="none heard of",
    )


def _cards() -> Panel:
    return number(
        Text(
            "GPUs",
            "GPUs of these machines. One fewer while as many machines are heard of is a GPU that "
            "fell off its bus: the part `devices` below.",
            "none",
        ),
        Query(
            f"count(max by (job, instance, gpu) ({of('gpud_gpu_info', by=FLEET)}))",
            "GPUs",
        ),
        absent="none heard of",
    )


def _unwell() -> Panel:
    return number(
        Text(
            "Machines not well",
            "On which a part of gpud is degraded or failed. Good is 0; the table of reasons below "
            "says what most of them have in common.",
            "none",
        ),
        Query(f"sum(max by (job, instance) ({of('gpud_health', by=FLEET)}) > bool 0)", "machines"),
        steps=[(None, GREEN), (1, ORANGE)],
        absent="none heard of",
    )


def _slower() -> Panel:
    active = of("gpud_regression_active", by=FLEET)
    return number(
        Text(
            "Machines that became slower",
            "On which a figure is held to be worse than it was. Good is 0; a few on one driver are "
            "that driver: the comparison below says so once five machines have it.",
            "none",
        ),
        Query(f"sum(max by (job, instance) ({active}))", "machines"),
        steps=[(None, GREEN), (1, ORANGE)],
        absent="none judged yet",
    )


def _alerts() -> Panel:
    return number(
        Text(
            "Alerts firing",
            "The machines' own, acknowledged ones too. Good is 0; the table of alerts leads to "
            "each machine.",
            "none",
        ),
        Query(f"sum({of('gpud_alerts_firing', by=FLEET)})", "alerts"),
        steps=[(None, GREEN), (1, RED)],
        absent="none heard of",
    )


def _silent() -> Panel:
    return number(
        Text(
            "Silent for a day",
            "Machines of the time chosen above that have not been heard of for a day. Holidays are "
            "the usual reason; GpudHostSilent tells of three days.",
            "none",
        ),
        Query(f"sum((time() - {SEEN}) > bool {A_DAY_S})", "machines"),
        steps=[(None, GREEN), (1, ORANGE)],
        absent="none in this range",
    )
