"""A child that is served with jobs, one after the other, and a job for it.

The GPUs form a ring: the peer of each is the next one that CUDA lists, so that every link has runs.
In WSL2 several GPUs in one process are a known cause of crashes (microsoft/WSL#7852), GPU contexts
are few, and there is no access from one GPU to another's memory.
"""

from __future__ import annotations

import os
import secrets
import subprocess
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpud.agent import children
from gpud.core import progress
from gpud.core.sample import Job
from gpud.core.wsl import is_wsl2
from gpud.gpu_lock import opened_anew

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpud.core.progress import Note
    from gpud.core.sample import Device, ProbeSpec
    from gpud.core.settings import Settings


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
    def gpus(self) -> Sequence[str | None]:
        """The GPUs that it needs a context of: the child's own, and one for this job alone."""
        return (self.job.gpu,) if self.job.peer is None else (self.job.gpu, self.job.peer)

    @property
    def what(self) -> str:
        """The job in words: "launch on GPU-..."."""
        subject = self.job.probe or INVENTORY
        return f"{subject} on {' and '.join(filter(None, self.gpus))}" if self.job.gpu else subject


def job_of(
    settings: Settings,
    spec: ProbeSpec | None = None,
    device: Device | None = None,
    peer: Device | None = None,
) -> Job:
    """Return the job of a run on a GPU or the CPU, or without a probe that of the list of GPUs."""
    job = Job(
        cuda_library=settings.cuda.library,
        sysroot=settings.sysroot,
        cache_dir=_cache_dir(settings),
        start_limit_s=settings.cuda.start_limit_s,
    )
    if spec is None:
        return job
    return replace(
        job,
        probe=spec.name,
        gpu=None if device is None else device.uuid,
        budget_s=spec.budget_s,
        seed=secrets.randbelow(2**31 - 1) + 1,
        vram_free_min_bytes=settings.gate.vram_free_min_bytes,
        peer=None if peer is None else peer.uuid,
    )


def _cache_dir(settings: Settings) -> str | None:
    """Return the agent's cache of compiled kernels: first_launch is another figure without.

    The first job of a child that loads the driver decides, the list of GPUs as well. Only for the
    folder's owner: root leaves no file of its own there.
    """
    folder = Path(settings.state_dir)
    try:
        own = folder.stat().st_uid == os.geteuid()
    except OSError:
        return None
    return str(folder / "cuda-cache") if own else None


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


def absence(devices: Sequence[Device], facts: Mapping[str, str]) -> str | None:
    """Return why nothing is copied between GPUs; None where it is.

    ``facts``: as ``MachineState.platform`` has them.
    """
    if is_wsl2(facts.get("kernel", "")):
        return "not on WSL2"
    return None if len(devices) > 1 else "there is no second GPU"


def peer_of(device: Device, devices: Sequence[Device]) -> Device:
    """Return the next GPU of several."""
    uuids = [each.uuid for each in devices]
    return devices[(uuids.index(device.uuid) + 1) % len(devices)]
