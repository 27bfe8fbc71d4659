"""Messages of dxgkrnl, the GPU's bus in WSL2, in the kernel's log, and which of them mean trouble.

A healthy machine writes some twenty lines about failed calls at each start, and more whenever a
program looks for GPUs; broken machines write the same lines too. So a line counts for what it says
and not for being there: known noise never raises anything, known trouble always does, and the rest
only when there is suddenly more of it. Pure: lines and moments come in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from gpud.core.report import RECENT_S, DxgKind
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Mapping

KERNEL_FACILITY: Final = 0
"""Only the kernel writes with it: what a program puts into /dev/kmsg becomes facility 1."""

SETTLED_S: Final = 120.0
"""Seconds since boot until which lines of unknown kinds belong to starting up."""
UNUSUAL: Final = 20
"""Lines of unknown kinds within ``RECENT_S`` from which on they are a change and no hum."""
LONGEST_WORDS: Final = 200
MOST_TROUBLES: Final = 64

ENOENT, ENOMEM, EINVAL, EOVERFLOW = 2, 12, 22, 75

BENIGN: Final = frozenset(
    {
        ("dxgkio_query_adapter_info", EINVAL),
        ("dxgkio_query_adapter_info", ENOENT),
        ("dxgkio_is_feature_enabled", EINVAL),
    }
)
"""Functions whose failure with this code means a question that the host does not know."""

_RECORD = re.compile(r"(\d{1,9}),(\d{1,19}),(\d{1,19}),[^;\n]*;(.*)")
_MESSAGE = re.compile(r"misc dxg: dxgk: (\w{1,80}): (.{1,400})")
_FIELD_SPANNING = re.compile(
    r"mem\w{3,4}: detected field-spanning write \(size \d+\) of single field .{1,200}/dxgvmbus\.c:"
)
"""FORTIFY_SOURCE's warning, which kernel 6.18 prints once, at the first wait for a GPU."""
_CODE = re.compile(r"(?:-(\d{1,4})|(ffffff[0-9a-f]{2}))\s*$")
"""The driver writes its codes as negative decimals, and in places as 32-bit hexadecimals."""


@dataclass(frozen=True, slots=True)
class Line:
    """One record of the kernel's log.

    Units: ``at_s`` in seconds since boot by the log's clock, which stands while the machine sleeps.
    """

    at_s: float
    text: str
    number: int = 0  # of the record, since boot


@dataclass(frozen=True, slots=True)
class Noise:
    """A line that a healthy machine writes too, or one of a kind that nobody has explained."""

    kind: DxgKind


@dataclass(frozen=True, slots=True)
class Trouble:
    """A line that a healthy machine does not write; ``words`` are the kernel's, escaped."""

    slug: DxgKind
    words: str


def record(raw: str) -> Line | None:
    """Read one record of /dev/kmsg: "priority,sequence,microseconds,flags;text".

    None for what is no record, for a continuation, and for a line that the kernel did not write
    itself: a program may write any text, also one that looks like a driver's.
    """
    match = _RECORD.match(raw)
    if match is None or int(match[1]) >> 3 != KERNEL_FACILITY:
        return None
    return Line(int(match[3]) / 1e6, match[4], int(match[2]))


def judged(text: str) -> Noise | Trouble | None:
    """Say what a line of the kernel's log means for the GPU; None for every other driver's."""
    match = _MESSAGE.match(text)
    if match is None:
        return Noise(DxgKind.FIELD_SPANNING) if _FIELD_SPANNING.match(text) else None
    function, words = match[1], match[2]
    number = _CODE.search(words)
    if number is None:
        return Noise(DxgKind.UNKNOWN)
    code = int(number[1]) if number[1] else (1 << 32) - int(number[2], 16)
    if (function, code) in BENIGN:
        return Noise(DxgKind.NOISE)
    shown = escaped(f"{function}: {words}")[:LONGEST_WORDS]
    if code == EOVERFLOW:  # the host's answer did not arrive: its end of the channel is gone
        return Trouble(DxgKind.MESSAGE_LOST, shown)
    if code == ENOMEM and function == "dxgkio_make_resident":
        return Trouble(DxgKind.NOT_RESIDENT, shown)
    return Noise(DxgKind.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Tally:
    """All that has been seen since boot, and the recent part of it with its moments.

    Shapes: ``troubles`` and ``unknown`` keep the last ones only. Units: seconds since boot.
    """

    counts: Mapping[DxgKind, int] = field(default_factory=lambda: dict.fromkeys(DxgKind, 0))
    last: Trouble | None = None
    troubles: tuple[tuple[float, DxgKind], ...] = ()
    unknown: tuple[float, ...] = ()

    def with_line(self, line: Line) -> Tally:
        """Count one line; the same tally for a line of another driver."""
        meaning = judged(line.text)
        if meaning is None:
            return self
        kind = meaning.slug if isinstance(meaning, Trouble) else meaning.kind
        after = replace(self, counts={**self.counts, kind: self.counts[kind] + 1})
        if isinstance(meaning, Trouble):
            troubles = (*after.troubles, (line.at_s, kind))[-MOST_TROUBLES:]
            return replace(after, last=meaning, troubles=troubles)
        if kind is DxgKind.UNKNOWN and line.at_s >= SETTLED_S:
            return replace(after, unknown=(*after.unknown, line.at_s)[-UNUSUAL:])
        return after

    def recent(self, now_s: float) -> dict[DxgKind, int]:
        """Count the troubles that are news, by kind."""
        kinds = [kind for at_s, kind in self.troubles if now_s - at_s < RECENT_S]
        return {kind: kinds.count(kind) for kind in sorted(set(kinds))}

    def unusual(self, now_s: float) -> bool:
        """Say whether there are suddenly many lines of unknown kinds."""
        return sum(now_s - at_s < RECENT_S for at_s in self.unknown) >= UNUSUAL
