"""States, causes, observations and memory of dockerd: values that ``dockerd_step`` computes with.

A cause says what has to change before the next try is worth it; ``dockerd_rules`` finds it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from gpud.core.clock import Backoff, Instant
from gpud.core.report import Owner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpud.core.report import ProcessRef

LONGEST_DETAIL = 400
"""Characters of dockerd's words that travel on; iptables alone can write pages."""
LINES_SHOWN = 3
_COMPLAINTS = (
    "level=fatal",
    "level=error",
    "failed to start",
    "unable to",
    "panic:",
    "fatal error",
)
OURS_TO_KEEP = frozenset({Owner.GPUD, Owner.NONE})
"""Owners that ``auto`` does not stand back from."""


class DockerdState(StrEnum):
    """Where dockerd is, in one word for people and reports."""

    OFF = "off"  # nobody looks
    ABSENT = "absent"  # none runs and none is due
    STARTING = "starting"
    RUNNING = "running"
    UNRESPONSIVE = "unresponsive"
    STOPPING = "stopping"  # told to end, by us, because it hung
    BACKOFF = "backoff"
    CRASHLOOP = "crashloop"
    MISCONFIGURED = "misconfigured"  # another start cannot help until something changes


class Api(StrEnum):
    """What the socket did when asked for ``/_ping``."""

    ANSWERS = "answers"
    SILENT = "silent"  # connected, and nothing came back in time
    REFUSED = "refused"  # the file is there and nobody listens
    ABSENT = "absent"  # no such file
    DENIED = "denied"  # somebody listens, and we may not ask


LISTENER_PRESENT = frozenset({Api.ANSWERS, Api.DENIED, Api.SILENT})
"""Answers that prove a listener, whoever it is."""
WELL = frozenset({Api.ANSWERS, Api.DENIED})


class Action(StrEnum):
    """What is done to the world after one look at it."""

    NOTHING = "nothing"
    START = "start"
    TERMINATE = "terminate"
    KILL = "kill"


class Containerd(StrEnum):
    """The containerd under an answering dockerd."""

    LISTENS = "listens"
    OWN_IS_GONE = "own_is_gone"  # the one dockerd started and starts again by itself
    OTHER_IS_GONE = "other_is_gone"  # one that somebody else has to start


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
        complaint = last_words(self.log, 1)
        return f"{how}: {complaint}" if complaint else how


def last_words(log: tuple[str, ...], most: int = LINES_SHOWN) -> str | None:
    """Return dockerd's last lines about errors, else its last lines: oldest first, none twice."""
    lines = [line.strip() for line in log if line.strip()]
    bad = [line for line in lines if any(mark in line for mark in _COMPLAINTS)]
    last_first = dict.fromkeys(plain(line) for line in reversed(bad or lines))
    return " | ".join(reversed(list(last_first)[:most])) or None


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


@dataclass(frozen=True, slots=True)
class Activity:
    """What dockerd, its containerd and their descendants do, read while dockerd is silent.

    ``active``: a thread runs, waits for a processor or a disk, or is held by a debugger;
    ``stopped``: dockerd was, as by SIGSTOP.
    Units: ``cpu_s`` is CPU time, that of ended descendants included.
    """

    active: bool
    cpu_s: float
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class DockerdObservation:
    """One look at the world. ``exit`` is how the last process ended, once that is known.

    ``conditions`` are what a cause may wait for, as text that is only ever compared; they are
    looked at while there is no process. ``activity`` is None for a look that did not read it.
    """

    process: ProcessRef | None
    owner: Owner
    api: Api
    obstacle: DockerdCause | None = None  # what keeps a start from being tried at all
    exit: Exit | None = None
    jitter: float = 0.0  # 0..1, drawn by the caller
    conditions: Mapping[StartCondition, str] = field(default_factory=dict)
    containerd: Containerd | None = None  # None while nothing is known
    activity: Activity | None = None
    wall_s: float | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """When patience ends. Units: seconds."""

    start_timeout_s: float = 60.0
    hung_after_s: float = 4.0  # silent and idle
    containerd_after_s: float = 30.0  # dockerd starts its containerd again; 20.10 takes 10 s
    kill_after_s: float = 4.0  # after SIGTERM, when dockerd idles
    kill_at_work_after_s: float = 10.0
    look_within_s: float = 6.0  # readings further apart prove nothing of the time between them
    backoff: Backoff = field(default_factory=Backoff)


@dataclass(frozen=True, slots=True)
class Hold:
    """Why no start is tried, and how the world looked when the last one was."""

    cause: DockerdCause
    appearance: Mapping[StartCondition, str]
    since_s: float

    def ended(self, conditions: Mapping[StartCondition, str]) -> bool:
        """Say whether anything the cause watches differs, or who was in the way is gone."""
        return any(
            conditions[watch] != self.appearance.get(watch)
            or (watch in GONE_IS_ENOUGH and not conditions[watch])
            for watch in self.cause.watch
            if watch in conditions
        )


@dataclass(frozen=True, slots=True)
class Memory:
    """Everything remembered between two looks. Units: monotonic seconds."""

    state: DockerdState = DockerdState.ABSENT
    since_s: float = 0.0
    process: ProcessRef | None = None
    owner: Owner = Owner.NONE
    process_since_s: float = 0.0  # of this process
    answered: bool = False  # this process has, at least once
    start_requested_s: float | None = None  # when a start was asked for whose outcome is open
    idle_since_s: float | None = None  # silent and without work; None: answers, or at work
    activity: Activity | None = None  # the last reading in this silence, and when it was taken
    activity_s: float = 0.0
    looked: Instant | None = None
    containerd_gone_s: float | None = None
    terminated_s: float | None = None
    terminated_for: str = "hung"
    killed: bool = False
    failures: int = 0
    kills: int = 0  # from outside, in a row
    next_try_s: float = 0.0
    tried_in: Mapping[StartCondition, str] = field(
        default_factory=dict
    )  # conditions of the last start
    hold: Hold | None = None
    ended: str | None = None  # why the next start is a restart: a label of bounded size
    last_exit: Exit | None = None
    last_start_s: float | None = None  # start asked to first good answer
    restarts: Mapping[str, int] = field(default_factory=dict)


Policy: TypeAlias = "Callable[[DockerdObservation, Memory, Limits, float], Action]"
