"""What is asked of the process that reads the history, and what it replies."""

from __future__ import annotations

from dataclasses import dataclass

from gpud.agent.body import Body
from gpud.agent.charting.thinning import Steps
from gpud.agent.wanted import Wanted


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for. GPUs are UUIDs, and ``wanted.CPU``."""

    probe: str
    modes: tuple[str, ...]
    gpus: tuple[str, ...]
    steps: Steps
    hourly: bool  # the range is so long that hours are read

    @property
    def wanted(self) -> Wanted:
        """Say which rows it is made of."""
        steps = self.steps
        return Wanted(steps.since_s, steps.until_s, (self.probe,), self.modes, self.gpus)


@dataclass(frozen=True, slots=True)
class Known:
    """What the program has or had, whatever the history holds."""

    modes: dict[str, tuple[str, ...]]  # by probe
    gpus: dict[str, int]  # numbers, by UUID

    @property
    def gpu_names(self) -> tuple[str, ...]:
        """Say what a GPU can be called; ``cpu`` is one of them."""
        return ("cpu", *(f"{number} ({uuid})" for uuid, number in self.gpus.items()))


@dataclass(frozen=True, slots=True)
class Question:
    """One line of it: of whose history, what, and which names are no mistakes."""

    directory: str
    asked: Asked
    known: Known


@dataclass(frozen=True, slots=True)
class Nameless:
    """A parameter names what nobody knows, neither the program nor the history; ``known`` is."""

    parameter: str
    asked: str
    known: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why the history cannot be read; the parts of a ``StoreError``."""

    message: str
    reason: str
    fix: str | None


@dataclass(frozen=True, slots=True)
class Reply:
    """One of the three. ``last``: it is a good one, and the next comes from a new process."""

    body: Body | None = None
    nameless: Nameless | None = None
    trouble: Trouble | None = None
    last: bool = False
