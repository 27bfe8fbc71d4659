"""A stream that brings samples of which hardly one can be judged."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

WATCHED = 20
"""Samples, the latest, of which the judged ones are counted."""
SILENT = 2
"""Or fewer of them are as good as none."""
HEARD = 10
"""So many end a silence: one clean run an hour is no end of it."""


@dataclass(slots=True)
class Silence:
    """Why the latest samples were not judged: '' for one that was."""

    latest: list[tuple[float, str]] = field(default_factory=list)
    since_s: float | None = None

    def add(self, at_s: float, why: str) -> None:
        """Take one sample in."""
        self.latest.append((at_s, why))
        del self.latest[:-WATCHED]
        judged = sum(not one for _, one in self.latest)
        if self.since_s is None:
            if len(self.latest) == WATCHED and judged <= SILENT:
                self.since_s = next(at_s for at_s, one in self.latest if one)
        elif judged >= HEARD:
            self.since_s = None

    @property
    def why(self) -> str | None:
        """What most of the latest samples were not judged for, while it is silent."""
        if self.since_s is None:
            return None
        counted = Counter(one for _, one in self.latest if one)
        return counted.most_common(1)[0][0]

    def state(self) -> dict[str, Any]:
        """Give all of it as plain data."""
        return {"latest": [list(one) for one in self.latest], "since_s": self.since_s}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Silence:
        """Read back what ``state`` gave."""
        return cls([(at_s, why) for at_s, why in state["latest"]], state["since_s"])
