"""Where the telemetry comes from, and why some of it does not."""

from deploy.grafana.layout import Row, row
from deploy.grafana.machine.now import TELEMETRY
from deploy.grafana.parts import (
    GREEN,
    RED,
    Panel,
    Query,
    Style,
    Text,
    graph,
    rows,
    states,
    worst_first,
)
from deploy.grafana.selecting import age, increase, of


def sources() -> Row:
    """Give the row on telemetry's sources."""
    return row(
        "Where telemetry comes from",
        _level(),
        _up(),
        _fields(),
        _absent(),
        _took(),
        _age(),
        _failures(),
        collapsed=True,
    )


def _level() -> Panel:
    return states(
        Text(
            "Telemetry level",
            "The best source that saw a GPU. NVML all along is good; a drop at a driver's mark is "
            "NVML lost with the update, and comes back by itself or after `wsl --shutdown`.",
            "none",
        ),
        Query(of("gpud_telemetry_level"), "level"),
        mapped=TELEMETRY,
        height=6,
    )


def _up() -> Panel:
    return states(
        Text(
            "Sources that answer",
            "Green while the last answer of a source was good and fresh. One that fails stops no "
            "other; `gpud doctor` says why it fails.",
            "none",
        ),
        Query(of("gpud_telemetry_source_up"), "{{source}}"),
        mapped={1: ("answers", GREEN), 0: ("does not", RED)},
        height=6,
    )


def _fields() -> Panel:
    return worst_first(
        rows(
            Text(
                "Fields by source",
                "How many fields each source gives now. Nearly all from NVML is good; names and "
                "reasons field by field are in /api/v1/status.",
                "none",
            ),
            Query(f"count by (source) ({of('gpud_telemetry_source_info')})"),
            named={"source": "Source", "Value": "Fields"},
            width=6,
        ),
        "Fields",
    )


def _absent() -> Panel:
    return rows(
        Text(
            "Fields without a value",
            "Each with its reason. unsupported is the card or WSL and nothing to mend; failed, "
            "stale and sentinel are the driver's doing; not_asked is a setting.",
            "none",
        ),
        Query(f"max by (gpu, field, reason) ({of('gpud_telemetry_absent_info')})"),
        named={"gpu": "GPU", "field": "Field", "reason": "Reason"},
        width=6,
        absent="every field has a value, or no word of this machine",
    )


def _took() -> Panel:
    return graph(
        Text(
            "How long the sources took",
            "NVML takes some 10 ms, a start of nvidia-smi a second. Growth is a driver in trouble: "
            "it comes before a hang.",
            "s",
        ),
        Query(of("gpud_telemetry_source_duration_seconds"), "{{source}}"),
        style=Style.LOGARITHMIC,
    )


def _age() -> Panel:
    return graph(
        Text(
            "Age of the latest readings",
            "Of all, and of each source. Below half a minute is good, five minutes on battery; "
            "an age that only grows is a source that hangs.",
            "s",
        ),
        Query(age(of("gpud_telemetry_last_success_timestamp_seconds")), "best source"),
        Query(age(of("gpud_telemetry_source_last_success_timestamp_seconds")), "{{source}}"),
        style=Style.LOGARITHMIC,
    )


def _failures() -> Panel:
    return graph(
        Text(
            "Failures, and programs started",
            "Collections that brought nothing, by source and reason, and starts of nvidia-smi. "
            "None is good; a few around an update are usual.",
            "none",
        ),
        Query(increase("gpud_telemetry_source_failures_total"), "{{source}}: {{reason}}"),
        Query(increase("gpud_telemetry_failures_total"), "best source"),
        Query(increase("gpud_telemetry_program_starts_total"), "starts of {{source}}"),
        style=Style.BARS,
    )
