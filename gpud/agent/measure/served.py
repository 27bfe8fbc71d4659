"""A child that is served with jobs, one after the other, and a job for it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from io import FileIO
from typing import TYPE_CHECKING, Final

from gpud.agent import children
from gpud.core import progress
from gpud.gpu_lock import opened_anew

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.core.progress import Note
    from gpud.core.sample import Job


INVENTORY: Final = "inventory"
"""The list of GPUs, among the names of jobs."""


@dataclass(frozen=True, slots=True)
class Work:
    """One job for a child. ``person``: it was asked for by hand."""

    job: Job
    budget_s: float
    gpu: bool
    person: bool

    @property
    def what(self) -> str:
        """The job in words: "launch on GPU-..."."""
        subject = self.job.probe or INVENTORY
        return f"{subject} on {self.job.gpu}" if self.job.gpu else subject


class ServedChild:
    """A child that answers jobs, the memory that it notes them in, and what it has taken.

    ``lock``: a descriptor of the lock's file, to note in it what the child does; None where there
    is no lock to take, or a child that is stuck has it (``locked`` False). The child alone has the
    lock: a parent that is stopped keeps it from nobody. ``gpu``: the UUID of the GPU that it has a
    context of.
    """

    def __init__(self, command: Sequence[str], lock: int | None, *, locked: bool) -> None:
        """Start the child, which inherits the locked descriptor ``lock``.

        After this, ``close`` must be called. Errors: ``OSError``.
        """
        self.lock, self.locked = None if lock is None else opened_anew(lock), locked
        self.gpu: str | None = None
        self.driver = self.numpy = False  # whether it has loaded them
        self.memory = FileIO(os.memfd_create("progress"), "r+")
        self.memory.truncate(progress.SIZE)
        inherited = [self.memory.fileno()] if lock is None else [self.memory.fileno(), lock]
        try:
            self.child = children.Child(command, subprocess.PIPE, pass_fds=inherited)
        except OSError:
            self.memory.close()
            if self.lock is not None:
                os.close(self.lock)
            raise

    def fits(self, work: Work) -> bool:
        """Return whether it can do one more job.

        A driver says what it saw when it was loaded, and the BLAS of the CPU's reference has one
        thread for good.
        """
        if self.child.exited.is_set() or not work.gpu:
            return not (self.child.exited.is_set() or self.driver)
        if not self.locked or self.numpy or (self.driver and not work.job.probe):
            return False
        return self.gpu in {None, work.job.gpu}

    def note(self) -> Note:
        """Read what the child has noted of its last job."""
        return progress.read(os.pread(self.memory.fileno(), progress.SIZE, 0))

    def close(self) -> None:
        """Take note of it no more, and end its input; it ends itself then, and the lock with it."""
        self.child.close()
        self.memory.close()
        if self.lock is not None:
            os.close(self.lock)
