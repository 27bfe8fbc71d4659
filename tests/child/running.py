"""Start real probe children, the way the agent does, and read what they leave behind."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpud.child import kernels
from gpud.child.cuda_gpu import LoadedCuda
from gpud.child.progress import Progress
from tests.standins.build import build_libcuda
from tests.standins.loaded import loop, virtual_time
from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpud.child.cuda_gpu import Gpu
    from gpud.core.sample import Job

CHILD = (sys.executable, "-I", "-m", "gpud.child")
GPU = "GPU-6d0c5f2e-8a41-4b7d-9e13-000000000000"
"""What the stand-in says its first device is."""
KERNELS = Path(kernels.__file__).parent
OTHER_GPU = f"{GPU[:-1]}1"
PEERED = {"peer_copy", "small_peer_copy"}
"""Probes that copy between the two."""
INTERPRETED = "700 40"
"""Virtual nanoseconds of a call and of a reading of the clock, in Python: ``virtual_clock.c``."""
REAL = ""
"""The clock of the machine, which goes on while other programs have the CPU."""
MEASURES_THE_CPU = {"cpu_call", "cpu_matmul", "crossover"}
"""What these probes measure takes no virtual time."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A child that has ended. ``code`` is negative where a signal ended it."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one document on stdout: a single line, and nothing beside it."""
        assert self.out.count("\n") == 1, self
        document: dict[str, Any] = json.loads(self.out, parse_constant=_refuse)
        return document

    @property
    def failure(self) -> dict[str, Any]:
        """Why there is no number, after looking that the run says nothing else."""
        report = self.document
        assert self.code == 1, self
        assert report["samples"] == []
        assert "Traceback" not in self.err
        failure: dict[str, Any] = report["failure"]
        return failure

    @property
    def samples(self) -> dict[str, dict[str, Any]]:
        """The figures by mode, of a run that must have gone well."""
        assert self.code == 0, self
        assert self.document["failure"] is None
        return {sample["mode"]: sample for sample in self.document["samples"]}


@contextmanager
def opened(job: Job, *, spin: bool, progress: Progress | None = None) -> Iterator[Gpu]:
    """Open a GPU in this process for one run."""
    cuda, progress = LoadedCuda(), progress or Progress()
    try:
        with cuda.gpu(job, spin=spin, progress=progress) as gpu:
            yield gpu
    finally:
        cuda.close(progress)


def ask(
    option: str,
    arguments: str | bytes,
    timeout_s: float = LIMIT_S,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Give one child bytes on stdin and wait for its end."""
    content = arguments.encode() if isinstance(arguments, str) else arguments
    ended = subprocess.run(
        [*CHILD, option],
        input=content,
        capture_output=True,
        check=False,
        timeout=timeout_s,
        env=environment,
    )
    return Ended(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


def run(probe: str, library: Path, *, clock: str | None = None, **job: Any) -> Ended:
    """Run one probe against a library; on the stand-in's first GPU, unless ``job`` names one.

    ``clock``: what a call and a reading of the clock cost in virtual time, or ``REAL``. Without it
    time is virtual, except where the probe measures the CPU.
    """
    if clock is None:
        clock = REAL if probe in MEASURES_THE_CPU else INTERPRETED
    arguments = {"probe": probe, **gpus_of(probe), "cuda_library": str(library), **job}
    environment = virtual_time(library.parent, clock) if clock else None
    return ask("--serve", json.dumps(arguments), environment=environment)


def scripted(
    folder: Path,
    probe: str,
    script: str = "",
    without: Iterable[str] = (),
    *,
    clock: str | None = None,
    **job: Any,
) -> Ended:
    """Run one probe against a stand-in that behaves as ``script`` says."""
    script = f"devices {len(gpus_of(probe))}\n{script}"
    return run(probe, build_libcuda(folder, script, without), clock=clock, **job)


def gpus_of(probe: str) -> dict[str, Any]:
    """Give the GPUs of a job, as many as its probe works on."""
    return {"gpu": GPU, "peer": OTHER_GPU} if probe in PEERED else {"gpu": GPU}


def c_loop_s(library: Path, mode: str, count: int = 300, row: int = 200) -> float:
    """Give what a C program measures in virtual time: the median, for each launch of a row."""
    taken_ns, clock_ns, *_ = loop(library, count, mode, 0, row)
    return (taken_ns - clock_ns) * 1e-9 / (row if mode in {"pipelined", "graph"} else 1)


def c_product_s(library: Path, mode: str, repeats: int, n: int) -> float:
    """Give what a C program measures a product to take: the median of 7 batches of ``repeats``."""
    file, _ = kernels.image(f"gpud_matmul_{mode}")
    taken_ns, *_ = loop(library, 7, mode, 0, repeats, n, KERNELS / file)
    return taken_ns * 1e-9 / repeats


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
