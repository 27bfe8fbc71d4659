"""Homes that look as if gpud ran in them: its document, and a process that stands for root."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpud.agent.state.status import document
from gpud.core.clock import Instant
from gpud.core.proc import start_ticks
from tests import snapshots

if TYPE_CHECKING:
    from collections.abc import Mapping


def well() -> dict[str, Any]:
    """The document of a machine on which all is well, written now."""
    told = document(snapshots.full(), now=Instant(time.time(), snapshots.NOW.mono_s))
    health = {"level": 0, "reason": None, "detail": None, "fix": None, "since_s": time.time()}
    told["health"] = dict.fromkeys(told["health"], health)
    return told | {"state": "ok", "alerts": [], "breaker": None}


def write(home: Path, told: Mapping[str, Any]) -> None:
    """Put a document in its place as the agent does."""
    run_dir = home / "run/gpud"
    run_dir.mkdir(parents=True, exist_ok=True)
    fresh = run_dir / "agent.tmp"
    fresh.write_text(json.dumps(told))
    fresh.rename(run_dir / "agent.json")


def running(home: Path, told: Mapping[str, Any]) -> Path:
    """Make it a home in which this very process stands for root."""
    write(home, told)
    ticks = start_ticks(Path("/proc/self/stat").read_text())
    (home / "run/gpud/root.pid").write_text(f"{os.getpid()} {ticks}\n")
    return home
