"""Status of the running gpud: root's report and the agent's document, used only while fresh."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gpud import regular_file
from gpud.core import wire
from gpud.core.clock import Instant
from gpud.core.errors import WireError
from gpud.core.health import Health
from gpud.core.proc import start_ticks
from gpud.core.report import STALE_AFTER_S, ProcessRef, RootReport
from gpud.core.sample import Inventory
from gpud.core.telemetry import LEVELS

LIMIT = 4 * 1024 * 1024
CLOCK_TOLERANCE_S = 1.0
"""Root may write between reading the clock and reading the file."""
AGENT_STALE_AFTER_S = 60.0
"""The agent writes after a change, at most once a second; root's beat is one every 5 s."""


class PublishedReading(msgspec.Struct, frozen=True):
    """A field of telemetry: a value, or the reason why there is none."""

    field: str
    gpu: int | None = None
    value: float | str | None = None
    absent: str | None = None


class PublishedSource(msgspec.Struct, frozen=True):
    """The last answer of a telemetry source; ``reason`` is None where it answered."""

    reason: str | None = None
    detail: str | None = None
    fix: str | None = None


class PublishedTelemetry(msgspec.Struct, frozen=True):
    """Telemetry of all sources; ``level`` is the best source."""

    level: str = LEVELS[0]
    sources: dict[str, PublishedSource] = {}
    readings: tuple[PublishedReading, ...] = ()


class PublishedStore(msgspec.Struct, frozen=True):
    """Size of the history."""

    n_bytes: int
    runs: int


class PublishedCounters(msgspec.Struct, frozen=True):
    """Counts since the agent started."""

    clock_jumps: int


class PublishedStatus(msgspec.Struct, frozen=True):
    """The part of the agent's document that checks read. Units: Unix time."""

    written_s: float = 0.0
    started_s: float = 0.0
    url: str = ""
    health: dict[str, Health] = {}
    cuda: Inventory | None = None
    telemetry: PublishedTelemetry = PublishedTelemetry()
    store: PublishedStore | None = None
    counters: PublishedCounters | None = None


NO_STATUS = PublishedStatus()


def root(path: Path, now: Instant) -> tuple[RootReport | None, str]:
    """Return root's report, or why there is none. Errors: none."""
    try:
        report = wire.decode(regular_file.read(path, LIMIT), RootReport)
    except FileNotFoundError:
        return None, "gpud is not running"
    except OSError as error:
        return None, f"cannot read {path}: {error.strerror}"
    except WireError as error:
        return None, f"{path}: {error}"
    age_s = now.mono_s - report.beat_s
    if not -CLOCK_TOLERANCE_S <= age_s <= STALE_AFTER_S or not _alive(report.process):
        return None, "gpud is not running"
    return report, ""


def _alive(process: ProcessRef) -> bool:
    """Say whether the process still exists: the report of a killed supervisor stays."""
    try:
        stat = Path("/proc", str(process.pid), "stat").read_text()
    except OSError:
        return False
    return start_ticks(stat) == process.start_ticks


def agent(path: Path, now: Instant) -> PublishedStatus:
    """Return the agent's document; an empty one where there is none, or an old one. Errors: none.

    The document of another version may not fit: it counts as none.
    """
    try:
        status = msgspec.json.decode(regular_file.read(path, LIMIT), type=PublishedStatus)
    except (OSError, *wire.UNREADABLE):
        return NO_STATUS
    return status if abs(now.wall_s - status.written_s) <= AGENT_STALE_AFTER_S else NO_STATUS
