"""What ``gpud status`` is shown in its tests: documents, and the lines that become of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gpud.agent.state.status import document as made
from gpud.agent.telemetry.answers import Answer
from gpud.core.sample import Absent, Reading
from gpud.core.telemetry import LEVELS
from gpud.show import document as reading
from gpud.show import gpu_table, status
from gpud.show.view import View, text
from tests import snapshots
from tests.events import source_answered

if TYPE_CHECKING:
    from gpud.agent.state.snapshot import Snapshot

NOW_S = snapshots.NOW.wall_s
CELL = dict(
    zip(
        gpu_table.HEADINGS,
        (
            None,
            ("name",),
            ("temperature_celsius",),
            ("power_watts", "power_limit_watts"),
            ("memory_used_bytes", "memory_total_bytes"),
            ("utilization_gpu_ratio",),
            ("clock_sm_hertz", "clock_memory_hertz"),
            ("pstate",),
            ("throttle_reasons",),
        ),
        strict=True,
    )
)
"""Which fields fill which cell."""


def full() -> dict[str, Any]:
    return plain(snapshots.full())


def plain(snapshot: Snapshot) -> dict[str, Any]:
    """The document as the command reads it: JSON."""
    document: dict[str, Any] = json.loads(json.dumps(made(snapshot, now=snapshots.NOW)))
    return document


def shown(document: dict[str, Any], now_s: float = NOW_S) -> list[str]:
    return [text(one) for one in status.drawn(reading.read(document), now_s, View())]


def answered(*readings: Reading, source: str = "nvml", age_s: float = 1.0) -> dict[str, Any]:
    """A machine of which nothing is known but what one source says."""
    answer = Answer(
        source,
        LEVELS.index(source),
        NOW_S - age_s,
        snapshots.NOW.mono_s - age_s,
        readings,
        holds_s=330.0,
    )
    return made(source_answered(answer, NOW_S)(snapshots.bare()), now=snapshots.NOW)


def read(field: str, value: float | str | Absent, gpu: int | None = 0) -> Reading:
    return Reading(gpu, field, value, "nvml")


def cells(document: dict[str, Any], gpu: int = 0) -> dict[str, str]:
    rows = {row[0]: row for row in gpu_table.rows(reading.read(document))}
    return dict(zip(gpu_table.HEADINGS, rows[str(gpu)], strict=True))


def line_with(lines: list[str], words: str) -> str:
    (found,) = [line for line in lines if words in line]
    return found
