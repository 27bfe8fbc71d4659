"""Read root's status file. What it says is believed only while it is fresh and root's own."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from gpud.agent.state import containers
from gpud.agent.state.snapshot import RootState
from gpud.core import wire
from gpud.core.errors import WireError
from gpud.core.report import STALE_AFTER_S, RootReport

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.agent.state.board import Board
    from gpud.core.clock import Instant

LARGEST = 256 * 1024
AHEAD_S = 1.0
"""Root may write between our look at the clock and our look at the file."""


def publish(path: Path, board: Board, now: Instant) -> None:
    """Read the file and publish root's report, or the reason why there is none."""
    report, silent = read(path, now)
    snapshot = board.read()
    comparison = None if report is None else containers.comparison(snapshot, report)
    board.publish(
        root=RootState(report, silent, comparison),
        measure=containers.with_container_probe(snapshot, report),
    )


def read(path: Path, now: Instant) -> tuple[RootReport | None, str | None]:
    """Return root's report, or the reason why there is none.

    Units: ``now.mono_s`` is compared with the report's beat; both are CLOCK_MONOTONIC of one boot.
    """
    try:
        report = wire.decode(_bytes(path), RootReport)
    except FileNotFoundError:
        return None, f"{path} does not exist: no supervisor runs"
    except OSError as error:
        return None, f"cannot read {path}: {error.strerror}"
    except WireError as error:
        return None, f"{path}: {error}"
    age_s = now.mono_s - report.beat_s
    if not -AHEAD_S <= age_s <= STALE_AFTER_S:
        return None, f"{path} was written {age_s:.0f} s ago: the supervisor is gone"
    return report, None


def _bytes(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid not in {0, os.geteuid()}:
            raise WireError("not a file of root's")
        return file.read(LARGEST)
