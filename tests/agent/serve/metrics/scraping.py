"""A scrape of a snapshot, without an agent and without HTTP."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from gpud.agent.serve.metrics.collector import SnapshotCollector
from gpud.agent.serve.metrics.exposition import Format
from gpud.core.sections import ExportSettings
from gpud.core.settings import parse
from tests import snapshots

if TYPE_CHECKING:
    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.clock import Instant
    from gpud.core.settings import Settings

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


HOSTNAME = "laptop\x1b[0m"


def settings(*compat: Literal["dcgm"], disabled: tuple[str, ...] = ()) -> Settings:
    made = parse(None, {})
    return replace(
        made,
        export=ExportSettings(compat=compat),
        telemetry=replace(made.telemetry, disabled=disabled),
    )


def scrape(
    snapshot: Snapshot,
    now: Instant = snapshots.NOW,
    *,
    accept: str = "",
    given: Settings | None = None,
) -> str:
    """What a scraper is told, whatever Python this is."""
    collector = SnapshotCollector(lambda: snapshot, given or settings(), lambda: now, HOSTNAME)
    body = Format.of(accept).encoded(collector)
    return re.sub(r'python="[^"]*"', 'python="3"', body.decode())
