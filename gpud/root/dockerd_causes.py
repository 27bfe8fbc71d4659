"""Causes of a dockerd that ended or did not start, and its log lines made readable.

A cause says what has to change before the next try is worth it; ``dockerd_rules`` finds it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

LONGEST_DETAIL = 400
"""Characters of dockerd's words that travel on; iptables alone can write pages."""
LINES_SHOWN = 3


class StartCondition(StrEnum):
    """What may change in the world so that another start is worth it."""

    CONFIG = "config"  # daemon.json or the dockerd program
    PROGRAMS = "programs"  # what dockerd calls: containerd, runc, iptables, nft
    SPACE = "space"  # free bytes and inodes of the disks of dockerd's directories
    MOUNTS = "mounts"  # which disks dockerd's directories are on, and whether they are read-only
    PORT = "port"  # who listens on the cause's ``subject``; empty: nobody
    PATH = "path"  # the file that ``subject`` names
    FIREWALL = "firewall"  # which iptables is chosen, and the kernel's modules
    ADDRESSES = "addresses"  # of the network interfaces
    CGROUPS = "cgroups"  # what is mounted of them
    DAEMONS = "daemons"  # other dockerd and containerd processes; empty: none


ENDS_WHEN = {
    StartCondition.CONFIG: "daemon.json or dockerd itself changes",
    StartCondition.PROGRAMS: "one of the programs dockerd calls changes",
    StartCondition.SPACE: "there is more space",
    StartCondition.MOUNTS: "another disk is mounted there or it is writable",
    StartCondition.PORT: "nobody or somebody else listens there",
    StartCondition.PATH: "that file or the way to it changes",
    StartCondition.FIREWALL: "another iptables is chosen or a kernel module is loaded",
    StartCondition.ADDRESSES: "the addresses or routes change",
    StartCondition.CGROUPS: "cgroups are mounted",
    StartCondition.DAEMONS: "the other dockerd or containerd ends",
}
SUBJECTS = frozenset({StartCondition.PORT, StartCondition.PATH})
"""Watches that look at what the cause names."""
GONE_IS_ENOUGH = frozenset({StartCondition.PORT, StartCondition.DAEMONS})
"""Watches of somebody in the way: once nobody is, a try is worth it whatever was seen before."""


@dataclass(frozen=True, slots=True)
class DockerdCause:
    """One thing that keeps dockerd from starting. ``slug`` is a label value of metrics."""

    slug: str
    detail: str  # dockerd's own words, bounded
    fix: str
    watch: frozenset[StartCondition]
    subject: str = ""  # the address or path, for ``SUBJECTS``

    def ends_when(self) -> str | None:
        """Say for a person what makes gpud try again by itself; None: only ``gpud restart``."""
        return (
            ", or ".join(ENDS_WHEN[watch] for watch in StartCondition if watch in self.watch)
            or None
        )


@dataclass(frozen=True, slots=True)
class Exit:
    """How a dockerd ended; code and signal are both None when it was not our child."""

    code: int | None = None
    signal: int | None = None
    log: tuple[str, ...] = ()  # its last lines
    cause: DockerdCause | None = None  # why, when its words are known

    def words(self) -> str:
        """Say it for a person: how it ended, and its own last complaint."""
        if self.signal is not None:
            how = f"ended by signal {self.signal}"
        else:
            how = "ended" if self.code is None else f"exited with code {self.code}"
        return f"{how}: {complaint_line}" if (complaint_line := complaint(self.log)) else how


def complaint(log: tuple[str, ...]) -> str | None:
    """Find dockerd's own last word about an error, else its last line at all."""
    lines = [line.strip() for line in log if line.strip()]
    bad = [line for line in lines if any(mark in line for mark in _COMPLAINTS)]
    return plain((bad or lines)[-1]) if lines else None


def last_words(log: tuple[str, ...]) -> str | None:
    """Give the few lines that explain a crash loop, oldest first, without repetition."""
    lines = [line.strip() for line in log if line.strip()]
    bad = [plain(line) for line in lines if any(mark in line for mark in _COMPLAINTS)]
    shown = list(dict.fromkeys(bad or [plain(line) for line in lines]))[-LINES_SHOWN:]
    return " | ".join(shown) or None


def plain(line: str) -> str:
    """Take the message and the error out of a line of logfmt; other lines stay as they are."""
    parts = [
        match[1].replace('\\"', '"')
        for key in ("msg", "error")
        if (match := re.search(rf'(?:^| ){key}="((?:[^"\\]|\\.)*)"', line))
    ]
    words = ": ".join(parts) or line.strip()
    return shortened(words, LONGEST_DETAIL)


def shortened(words: str, longest: int) -> str:
    """Keep both ends: the first says who speaks, the last what is wrong."""
    if len(words) <= longest:
        return words
    head = longest // 3
    return f"{words[:head]} ... {words[head + len(' ... ') - longest :]}"


_COMPLAINTS = (
    "level=fatal",
    "level=error",
    "failed to start",
    "unable to",
    "panic:",
    "fatal error",
)
