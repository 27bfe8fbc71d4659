"""GPU contexts made since the machine's boot, and how many it may have.

In WSL2 a boot is the start of the virtual machine; one report has its GPU gone after 350 to 440
contexts. The count outlives the agent: it is kept in ``contexts.json`` of the state directory.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from gpud import regular_file

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = "contexts.json"
OF_A_ROUND: Final = 2
"""Contexts of a round on one GPU, within a budget: one, and one more after it was lost."""

SPENT: Final = (
    "gpud has made {used} GPU contexts since WSL started, of {budget} that it may; this run makes "
    "another. If the GPU fails: `wsl --shutdown` from Windows"
)


class Count(msgspec.Struct, frozen=True):
    """The file. ``last_s`` is the Unix time of the last context."""

    boot_id: str
    contexts: int = 0
    rounds: int = 0
    last_s: float | None = None


class GpuContexts:
    """Counts contexts and rounds of this boot. ``budget``: contexts of one boot, None for any.

    Who may not write the file, or does not know the boot, counts in memory alone. The agent counts
    what it makes, and `gpud probe` where no agent runs. What a probe counts beside an agent that
    starts meanwhile is lost: a budget 100 below the least number that was reported bears that.
    """

    def __init__(self, folder: Path, boot_id: str, budget: int | None) -> None:
        self.budget = budget
        self._path = folder / NAME
        self._count = _stored(self._path, boot_id)
        self._of_round: Counter[str] = Counter()  # contexts of this process, by GPU

    @property
    def used(self) -> int:
        """Contexts made since the boot."""
        return self._count.contexts

    @property
    def rounds(self) -> int:
        """Rounds of probes since the boot."""
        return self._count.rounds

    @property
    def last_s(self) -> float | None:
        """Unix time of the last context; None for none."""
        return self._count.last_s

    @property
    def spent(self) -> bool:
        """Whether the schedule may make no more of them."""
        return self.budget is not None and self.used >= self.budget

    def lost(self, gpu: str) -> bool:
        """Whether the contexts that a round may lose on a GPU are made. Without a budget never."""
        return self.budget is not None and self._of_round[gpu] >= OF_A_ROUND

    @property
    def warning(self) -> str | None:
        """What to tell a person whose work makes another context than the budget has."""
        return SPENT.format(used=self.used, budget=self.budget) if self.spent else None

    def made(self, gpu: str = "", count: int = 1) -> None:
        """Count contexts on a GPU, ``""`` where it is not known. Errors: none."""
        self._of_round[gpu] += count
        self._keep(replace(self._count, contexts=self.used + count, last_s=time.time()))

    def round_begun(self) -> None:
        """Count a round. Errors: none."""
        self._of_round.clear()
        self._keep(replace(self._count, rounds=self.rounds + 1))

    def _keep(self, count: Count) -> None:
        """Write the file, for the folder's owner alone.

        Root leaves no file of its own where the agent writes.
        """
        self._count = count
        with contextlib.suppress(OSError):
            if count.boot_id and self._path.parent.stat().st_uid == os.geteuid():
                regular_file.replace(self._path, msgspec.json.encode(count) + b"\n")


def _stored(path: Path, boot_id: str) -> Count:
    """Read the count of this boot; a new one where there is none, or it is damaged."""
    with contextlib.suppress(msgspec.DecodeError):
        count = msgspec.json.decode(regular_file.text(path) or "", type=Count)
        if count.boot_id == boot_id:
            return count
    return Count(boot_id)
