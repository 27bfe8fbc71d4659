"""What a waiting person sees on stderr: a bar on a terminal, plain lines in a pipe, or nothing.

The bar is drawn from the event loop and not from a thread: while a child measures, this process
wakes up a few times a second and that is all.
"""

from __future__ import annotations

import contextlib
import io
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gpud.agent.byhand.terminal import ascii_only, dumb
from gpud.core.text import escaped

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

TICK_S = 0.2
SAY_AGAIN_S = 20.0
NEARLY = 0.95
"""Of its own part a run that takes longer than expected fills no more until it has ended."""


@dataclass(slots=True)
class Course:
    """How far along everything is, in expected seconds."""

    total_s: float = 0.0
    done_s: float = 0.0
    current_s: float = 0.0  # of the run that has begun

    def begin(self, expected_s: float) -> None:
        """Count what ran until now as done, and begin the next."""
        self.done_s += self.current_s
        self.current_s = expected_s

    def share(self, elapsed_s: float) -> float:
        """Give 0..1; ``elapsed_s`` since the present run began. Never more than all of it."""
        if self.total_s <= 0:
            return 0.0
        reached_s = self.done_s + min(max(elapsed_s, 0.0), NEARLY * self.current_s)
        return min(reached_s / self.total_s, 1.0)


class Progress(Protocol):
    """What the session tells. Nothing here raises: a closed stderr spoils no measurement."""

    def plan(self, total_s: float) -> None:
        """Say how long everything will take."""

    def begin(self, label: str, expected_s: float) -> None:
        """Say what runs now; what ran before has ended."""

    def waiting(self, words: str, waited_s: float) -> None:
        """Say what the next run waits for, as often as it likes."""

    def say(self, words: str) -> None:
        """Say something once."""

    def tick(self) -> None:
        """Draw anew, if that is what it does."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class Silent:
    """For ``--json`` in a pipe."""

    def plan(self, total_s: float) -> None:
        """Nothing."""

    def begin(self, label: str, expected_s: float) -> None:
        """Nothing."""

    def waiting(self, words: str, waited_s: float) -> None:
        """Nothing."""

    def say(self, words: str) -> None:
        """Nothing."""

    def tick(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Lines:
    """One line per run, and one now and then while waiting."""

    def __init__(self) -> None:
        self._said_s: float | None = None

    def plan(self, total_s: float) -> None:
        """Nothing: a line has no length."""

    def begin(self, label: str, expected_s: float) -> None:  # noqa: ARG002  # of the protocol
        """Print the label."""
        self._said_s = None
        self.say(f"{label} ...")

    def waiting(self, words: str, waited_s: float) -> None:
        """Print it at the beginning, and then every ``SAY_AGAIN_S``."""
        if self._said_s is None or waited_s - self._said_s >= SAY_AGAIN_S:
            self._said_s = waited_s
            self.say(f"waiting for {words}")

    def say(self, words: str) -> None:
        """Print it."""
        with contextlib.suppress(OSError, ValueError):
            print(escaped(words), file=sys.stderr, flush=True)

    def tick(self) -> None:
        """Nothing moves."""

    def close(self) -> None:
        """Nothing to undo."""


class Bar:
    """rich's bar; it disappears when everything has ended, and the table takes its place."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
        )
        from rich.table import Column

        plain = ascii_only(sys.stderr)
        if plain and isinstance(sys.stderr, io.TextIOWrapper):
            sys.stderr.reconfigure(encoding="ascii", errors="backslashreplace")  # rich looks there
        self._console: Console = Console(stderr=True)
        overflow = "crop" if plain else "ellipsis"
        label = Column(no_wrap=True, overflow=overflow, ratio=2)  # type: ignore[arg-type]
        self._progress: RichProgress = Progress(
            TextColumn("{task.description}", markup=False, table_column=label),
            BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=10)),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            expand=True,
            auto_refresh=False,
        )
        self._course = Course()
        self._begun_s = time.monotonic()
        self._task: TaskID | None = None
        self._said: str | None = None
        self._describe("looking for probes and GPUs")

    def plan(self, total_s: float) -> None:
        """Take the length of the bar."""
        self._course.total_s = total_s

    def begin(self, label: str, expected_s: float) -> None:
        """Name what runs in front of the bar."""
        self._course.begin(expected_s)
        self._begun_s = time.monotonic()
        self._said = None
        self._describe(label)

    def waiting(self, words: str, waited_s: float) -> None:
        """Say once above the bar for whom, and in front of it for how long."""
        if self._said is None:
            self._said = words
            self.say(f"waiting for {words}")
        self._begun_s = time.monotonic()
        self._describe(f"waiting for {waited_s:.0f} s")

    def say(self, words: str) -> None:
        """Print it above the bar."""
        with contextlib.suppress(OSError, ValueError):
            self._progress.console.print(escaped(words), markup=False, highlight=False)

    def tick(self) -> None:
        """Draw anew."""
        if self._task is None:
            return
        with contextlib.suppress(OSError, ValueError):
            share = self._course.share(time.monotonic() - self._begun_s)
            self._progress.update(self._task, completed=share)
            self._progress.refresh()

    def close(self) -> None:
        """Take the bar away and give the cursor back."""
        with contextlib.suppress(OSError, ValueError):
            self._progress.stop()

    def _describe(self, label: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            if self._task is None:
                self._progress.start()
                self._task = self._progress.add_task(escaped(label), total=1.0)
            self._progress.update(self._task, description=escaped(label))
        self.tick()


def chosen(*, as_json: bool) -> Progress:
    """Choose by where stderr goes: a document in a pipe wants no company."""
    if sys.stderr.isatty():
        return Lines() if dumb() else Bar()
    return Silent() if as_json else Lines()
