"""Lines of the kernel's log about the GPU: of dxgkrnl, its bus in WSL2, and traces of known faults.

A healthy machine writes some twenty lines about failed calls at each start, and more whenever a
program looks for GPUs; broken machines write the same lines too. So a line counts for what it says
and not for being there: known trouble raises something, and the rest is counted.

Traces are found by the catalogue's patterns. A frame is what the kernel writes about one warning,
BUG or Oops: many records, with the function that matters somewhere among them. It is one text for
the patterns and counts as one trace. Pure: lines and moments come in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpud.core.report import DxgKind, FaultTrace
from gpud.core.text import escaped
from gpud.known_issues.matching import LONGEST_TEXT, matches

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Patterns = Mapping[str, Sequence[re.Pattern[str]]]

KERNEL_FACILITY: Final = 0
"""Only the kernel writes with it: what a program puts into /dev/kmsg becomes facility 1."""

LONGEST_WORDS: Final = 200
MOST_TROUBLES: Final = 64
TROUBLES: Final = frozenset({DxgKind.MESSAGE_LOST, DxgKind.NOT_RESIDENT})
"""Kinds of lines that a healthy machine does not write."""

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
_DRIVER = "misc dxg: dxgk: "
_MESSAGE = re.compile(_DRIVER + r"(\w{1,80}): (.{1,400})")
_FIELD_SPANNING = re.compile(
    r"mem\w{3,4}: detected field-spanning write \(size \d+\) of single field .{1,200}/dxgvmbus\.c:"
)
"""FORTIFY_SOURCE's warning, which kernel 6.18 prints once, at the first wait for a GPU."""
_CODE = re.compile(r"(?:-(\d{1,4})|(ffffff[0-9a-f]{2}))\s*$")
"""The driver writes its codes as negative decimals, and in places as 32-bit hexadecimals."""

FRAME_S: Final = 2.0
"""A frame is written within milliseconds; one without an end, such as a BUG of the watchdog, is
over after this."""
LONGEST_FRAME: Final = 8192
"""Characters: registers and a call trace are some 6,000."""

_CUT: Final = re.compile(r"-{3,}\[ cut here \]-{3,}")
_BEGIN: Final = re.compile(r"(?:BUG|Oops|general protection fault)\b.{0,200}:")
_END: Final = re.compile(r"---\[ end (?:trace|Kernel panic)")


@dataclass(frozen=True, slots=True)
class Line:
    """One record of the kernel's log.

    Units: ``at_s`` in seconds since boot by the log's clock, which stands while the machine sleeps.
    """

    at_s: float
    text: str
    number: int = 0  # of the record, since boot


def record(raw: str) -> Line | None:
    """Read one record of /dev/kmsg: "priority,sequence,microseconds,flags;text".

    None for what is no record, for a continuation, and for a line that the kernel did not write
    itself: a program may write any text, also one that looks like a driver's.
    """
    match = _RECORD.match(raw)
    if match is None or int(match[1]) >> 3 != KERNEL_FACILITY:
        return None
    return Line(int(match[3]) / 1e6, match[4], int(match[2]))


def judged(text: str) -> DxgKind | None:
    """Say what a line of the kernel's log means for the GPU; None for every other driver's."""
    match = _MESSAGE.match(text)
    if match is None:
        return DxgKind.FIELD_SPANNING if _FIELD_SPANNING.match(text) else None
    function, number = match[1], _CODE.search(match[2])
    if number is None:
        return DxgKind.UNKNOWN
    code = int(number[1]) if number[1] else (1 << 32) - int(number[2], 16)
    if (function, code) in BENIGN:
        return DxgKind.NOISE
    if code == EOVERFLOW:  # the host's answer did not arrive: its end of the channel is gone
        return DxgKind.MESSAGE_LOST
    if code == ENOMEM and function == "dxgkio_make_resident":
        return DxgKind.NOT_RESIDENT
    return DxgKind.UNKNOWN


def quoted(text: str) -> str:
    """Return the kernel's own words without the driver's name, escaped and cut."""
    return escaped(text.removeprefix(_DRIVER))[:LONGEST_WORDS]


class KnownTraces:
    """Traces by id of their entry, in ``found``; those of frames after their end."""

    def __init__(self, patterns: Patterns) -> None:
        self.found: dict[str, FaultTrace] = {}
        self._patterns = patterns
        self._frame: list[str] | None = None
        self._length = 0
        self._begin = Line(0.0, "")
        self._begin_at_s: float | None = None

    def take(self, line: Line, at_s: float | None) -> None:
        """Count a line, or add it to the frame it belongs to.

        ``at_s``: Unix time of the line, None where it is not known.
        """
        if self._frame is not None and line.at_s - self._begin.at_s > FRAME_S:
            self._close()
        text = line.text[:LONGEST_TEXT]
        cut = _CUT.match(text) is not None
        if cut or (self._frame is None and _BEGIN.match(text)):
            self._close()
            self._frame, self._length, self._begin, self._begin_at_s = [], 0, line, at_s
            if cut:
                return
        if self._frame is None:
            self._count(text, (text,), at_s)
        elif _END.match(text):
            self._close()
        elif self._length + len(text) <= LONGEST_FRAME:
            self._frame.append(text)
            self._length += len(text) + 1

    def settle(self, now_s: float) -> None:
        """End the frame that gets no end. ``now_s``: seconds since the boot."""
        if now_s - self._begin.at_s > FRAME_S:
            self._close()

    def _close(self) -> None:
        lines, self._frame = self._frame, None
        if lines:
            self._count(" ".join(lines), lines, self._begin_at_s)

    def _count(self, text: str, lines: Sequence[str], at_s: float | None) -> None:
        for entry, patterns in self._patterns.items():
            if matches(patterns, text):
                words = next((line for line in lines if matches(patterns, line)), lines[0])
                before = self.found.get(entry)
                count = 1 if before is None else before.count + 1
                self.found[entry] = FaultTrace(count, escaped(words)[:LONGEST_WORDS], at_s)
