"""Read root's status file. What it says is believed only while it is fresh and root's own."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from gpud.agent.state.events import RootHeard
from gpud.core import wire
from gpud.core.errors import WireError
from gpud.core.report import STALE_AFTER_S, RootReport

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.core.clock import Instant

LARGEST = 256 * 1024
AHEAD_S = 1.0
"""Root may write between our look at the clock and our look at the file."""


def read(path: Path, now: Instant) -> RootHeard:
    """Give root's report, or the reason why there is none.

    Units: ``now.mono_s`` is compared with the report's beat; both are CLOCK_MONOTONIC of one boot.
    """
    try:
        report = wire.decode(_bytes(path), RootReport)
    except FileNotFoundError:
        return RootHeard(None, f"{path} does not exist: no supervisor runs", now.wall_s)
    except OSError as error:
        return RootHeard(None, f"cannot read {path}: {error.strerror}", now.wall_s)
    except WireError as error:
        return RootHeard(None, f"{path}: {error}", now.wall_s)
    age_s = now.mono_s - report.beat_s
    if not -AHEAD_S <= age_s <= STALE_AFTER_S:
        return RootHeard(
            None, f"{path} was written {age_s:.0f} s ago: the supervisor is gone", now.wall_s
        )
    return RootHeard(report, None, now.wall_s)


def _bytes(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid not in {0, os.geteuid()}:
            raise WireError("not a file of root's")
        return file.read(LARGEST)
