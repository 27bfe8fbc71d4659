"""dockerd: whether it runs, whose it is, and how often it had to be started."""

from deploy.grafana.layout import Row, row
from deploy.grafana.parts import GREEN, RED, Panel, Query, Style, Text, graph, rows, states
from deploy.grafana.selecting import increase, of


def docker() -> Row:
    """Give the row on Docker and GPU containers."""
    return row("Docker", _up(), _ping(), _starts(), _agents(), _owner(), _containers())


def _up() -> Panel:
    return states(
        Text(
            "dockerd answers",
            "Green while dockerd's API answers. After an end gpud starts it within a second; red "
            "for longer has its reason in the state above and in /var/log/gpud/dockerd.log.",
            "none",
        ),
        Query(of("gpud_dockerd_up"), "dockerd"),
        mapped={1: ("up", GREEN), 0: ("down", RED)},
        width=12,
        height=6,
    )


def _ping() -> Panel:
    return graph(
        Text(
            "Ping and start of dockerd",
            "How long the last good ping took (milliseconds are good) and the last start that gpud "
            "made (seconds). Both growing means a slow disk or many containers to adopt.",
            "s",
        ),
        Query(of("gpud_dockerd_ping_seconds"), "ping"),
        Query(of("gpud_dockerd_last_start_duration_seconds"), "last start"),
        style=Style.LOGARITHMIC,
        height=6,
    )


def _starts() -> Panel:
    return graph(
        Text(
            "dockerd starts after an end",
            "By reason, counted since the supervisor began; flat is good. Steps close to each "
            "other are a crash loop: GpudDockerRestartLoop's page says where to look.",
            "none",
        ),
        Query(of("gpud_dockerd_restarts_total"), "{{reason}}"),
        width=8,
    )


def _agents() -> Panel:
    return graph(
        Text(
            "Agent restarts",
            "How often root had to start gpud's agent again. Good is 0; the end of "
            "/var/log/gpud/agent/agent.log says why it ended.",
            "none",
        ),
        Query(increase("gpud_agent_restarts_total"), "restarts"),
        width=8,
        style=Style.BARS,
    )


def _owner() -> Panel:
    return rows(
        Text(
            "Whose dockerd, and how it hands out GPUs",
            "The owner is gpud where gpud keeps dockerd alive; of others' dockerd it is a guest. "
            "`none` or `broken` as the way of handing out GPUs: docs/containers.md.",
            "none",
        ),
        Query(f"max by (owner) ({of('gpud_dockerd_owner_info')})"),
        Query(f"max by (state) ({of('gpud_container_toolkit_info')})"),
        named={"owner": "Owner", "state": "Container toolkit"},
        width=8,
        height=4,
    )


def _containers() -> Panel:
    return graph(
        Text(
            "n-body in a container over n-body beside it",
            "Two different kernels, so its level tells nothing and its change does: a fall means "
            "that containers became slower than the driver under them.",
            "percentunit",
        ),
        Query(of("gpud_container_flops_ratio", 'gpu=~"$gpu"'), "GPU {{gpu}}"),
        width=8,
        height=4,
    )
