"""A scrape of a snapshot, without an agent and without HTTP."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, Literal

from msgspec import structs

from gpud.agent.serve.metrics.collector import Format, SnapshotCollector
from gpud.agent.telemetry.answers import Answer
from gpud.core.sections import ExportSettings
from gpud.core.settings import parse
from gpud.core.telemetry import LEVELS
from tests import snapshots
from tests.events import source_answered

if TYPE_CHECKING:
    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.clock import Instant
    from gpud.core.sample import Reading
    from gpud.core.settings import Settings

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
HOSTNAME = "laptop\x1b[0m"


def settings(*compat: Literal["dcgm"], disabled: tuple[str, ...] = ()) -> Settings:
    made = parse(None, {})
    return structs.replace(
        made,
        export=ExportSettings(compat=compat),
        telemetry=structs.replace(made.telemetry, disabled=disabled),
    )


def scrape(
    snapshot: Snapshot,
    now: Instant = snapshots.NOW,
    *,
    accept: str = "",
    given: Settings | None = None,
) -> str:
    """The text that a scraper gets, whatever Python this is."""
    collector = SnapshotCollector(lambda: snapshot, given or settings(), lambda: now, HOSTNAME)
    body = Format.of(accept).encoded(collector)
    return re.sub(r'python="[^"]*"', 'python="3"', body.decode())


def series(text: str, name: str) -> dict[str, float]:
    """The values of one family by its labels as they are written."""
    lines = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", text, re.MULTILINE)
    return {labels: float(value) for labels, value in lines}


def answer(
    *readings: Reading, source: str = "nvml", reason: str | None = None, holds_s: float = 60.0
) -> Answer:
    """An answer of one source at the moment of the scrape."""
    level, now = LEVELS.index(source), snapshots.NOW
    return Answer(source, level, now.wall_s, now.mono_s, readings, holds_s, 0.5, reason)


def answered(*answers: Answer, before: Snapshot | None = None) -> Snapshot:
    """The snapshot after these answers; nothing else is known unless ``before`` has it."""
    after = snapshots.bare() if before is None else before
    for each in answers:
        after = source_answered(each, snapshots.NOW.wall_s)(after)
    return after


def promtool(text: str) -> tuple[int, str]:
    """Exit code and findings of ``promtool check metrics``."""
    command = ["promtool", "check", "metrics"]
    checked = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return checked.returncode, checked.stdout + checked.stderr
