"""Traces of known faults in the kernel's log: the catalogue's patterns on its lines and frames.

A frame is what the kernel writes about one warning, BUG or Oops: many records, with the function
that matters somewhere among them. It is one text for the patterns and counts as one trace. Pure:
lines and moments come in.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from gpud.core.report import FaultTrace
from gpud.core.text import escaped
from gpud.known_issues.matching import LONGEST_TEXT, matches
from gpud.root.dxg import LONGEST_WORDS, Line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Patterns = Mapping[str, Sequence[re.Pattern[str]]]

FRAME_S: Final = 2.0
"""A frame is written within milliseconds; one without an end, such as a BUG of the watchdog, is
over after this."""
LONGEST_FRAME: Final = 8192
"""Characters: registers and a call trace are some 6,000."""

_CUT: Final = re.compile(r"-{3,}\[ cut here \]-{3,}")
_BEGIN: Final = re.compile(r"(?:BUG|Oops|general protection fault)\b.{0,200}:")
_END: Final = re.compile(r"---\[ end (?:trace|Kernel panic)")


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
