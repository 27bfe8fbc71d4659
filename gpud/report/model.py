"""The report as one frozen value. Times are Unix seconds, figures in the unit beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpud.core.sample import Unit
    from gpud.core.streams import StreamKey


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time under one driver, by the order in which runs were written. ``driver`` "": not known.

    ``until_s`` is that of its last run. A driver that comes back begins a stretch of its own.
    """

    driver: str
    since_s: float
    until_s: float
    runs: int


@dataclass(frozen=True, slots=True)
class Event:
    """One fact of the machine that became another, as a person says it."""

    at_s: float
    words: str


@dataclass(frozen=True, slots=True)
class Level:
    """What clean runs of one stream brought in one stretch.

    ``p10`` and ``p90`` are of the runs' medians. ``slowdown`` is against the stretch before that
    had figures: 1.12 for 12 % slower, whatever the unit; None for the first.
    """

    stretch: int  # its place in ``Report.stretches``
    n: int
    median: float
    p10: float
    p90: float
    apart: int  # marked runs, in none of these figures
    slowdown: float | None = None


@dataclass(frozen=True, slots=True)
class Bin:
    """A piece of a chart. Figures of clean runs; ``apart`` is the median of the marked ones."""

    at_s: float  # its middle
    median: float | None
    p10: float | None
    p90: float | None
    apart: float | None


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment at which a detector decided that a level had moved."""

    at_s: float
    worse: bool
    words: str


@dataclass(frozen=True, slots=True)
class Track:
    """One stream over the whole time: its levels by driver, its course, its alarms."""

    key: StreamKey
    unit: Unit
    levels: tuple[Level, ...]
    bins: tuple[Bin, ...]
    marks: tuple[Mark, ...] = ()

    @property
    def telling(self) -> bool:
        """Whether there is more to say than that it stayed as it was."""
        return bool(self.marks)


@dataclass(frozen=True, slots=True)
class Told:
    """An alert, as it was told. ``ends_s`` None: it fires."""

    name: str
    severity: str
    summary: str
    fix: str | None
    starts_s: float
    ends_s: float | None
    acknowledged: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found out about one stream under a new driver, in words."""

    key: StreamKey
    at_s: float
    old: str
    new: str
    words: str
    worse: bool


@dataclass(frozen=True, slots=True)
class Shift:
    """A level that moved and that nobody was told of, and why not."""

    key: StreamKey
    at_s: float
    slowdown: float
    words: str
    why: str
    over: bool = False  # it came back, or a person said that it is normal


@dataclass(frozen=True, slots=True)
class Lost:
    """A probe that worked under one driver and only failed under a later one."""

    gpu: str | None
    probe: str
    old: str
    new: str
    since_s: float
    failed: int
    reason: str
    back_s: float | None  # when it worked again, under whichever driver


@dataclass(frozen=True, slots=True)
class Failures:
    """Failed runs of one probe for one reason."""

    gpu: str | None
    probe: str
    reason: str
    count: int
    last_s: float
    detail: str


@dataclass(frozen=True, slots=True)
class Left:
    """How often a probe ran, beside how often it was due: the rest was left out."""

    gpu: str | None
    probe: str
    runs: int
    due: int


@dataclass(frozen=True, slots=True)
class Marked:
    """Shares (0..1) of one GPU's good runs in one stretch that carry a flag."""

    gpu: str
    stretch: int
    runs: int
    busy: float
    low: float
    cold: float
    resume: float


@dataclass(frozen=True, slots=True)
class Gap:
    """A time without any run. ``booted``: the machine had been started anew by its end."""

    since_s: float
    until_s: float
    booted: bool


@dataclass(frozen=True, slots=True)
class Cost:
    """What gpud itself took: its probes' processes, and the file."""

    runs: int
    wall_s: float
    awake_s: float
    file_bytes: int


@dataclass(frozen=True, slots=True)
class Headline:
    """The one line on top. ``worse``: something is slower, or lost, as of now."""

    words: str
    worse: bool


@dataclass(frozen=True, slots=True)
class Report:
    """Everything there is to say about the time from ``since_s`` to ``until_s``."""

    since_s: float
    until_s: float
    begins_s: float  # of the charts: shortly before the first run, where that is later
    headline: Headline
    gpus: dict[str, str]  # name by UUID, of every GPU with a run
    stretches: tuple[Stretch, ...] = ()
    events: tuple[Event, ...] = ()
    told: tuple[Told, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    shifts: tuple[Shift, ...] = ()
    lost: tuple[Lost, ...] = ()
    tracks: tuple[Track, ...] = ()
    failures: tuple[Failures, ...] = ()
    left: tuple[Left, ...] = ()
    marked: tuple[Marked, ...] = ()
    gaps: tuple[Gap, ...] = ()
    cost: Cost | None = None
    notes: tuple[str, ...] = ()  # what could not be read, or not taken into account
    several: tuple[str, ...] = ()  # probes with figures of more than one version of their method
