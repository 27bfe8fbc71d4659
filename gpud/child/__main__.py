"""Command line of a probe process: reads one job, prints one JSON document, and ends.

``--list`` prints the probes, ``--inventory`` the GPUs, ``--run`` one run; the last two read a
``Job`` on stdin. Exit codes: 0 the document holds figures, 1 a failure, 2 the job makes no sense.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import platform
import sys
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpud import discovery
from gpud.child import kernels, probes
from gpud.child.progress import Budget, Orphaned, Progress
from gpud.core import advice
from gpud.core.errors import ProbeError
from gpud.core.sample import Backend, Failure, Job, ProbeSpec, Reason, RunReport, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType
    from typing import TextIO

    from gpud.child.cpu import Cpu
    from gpud.child.cuda_gpu import Gpu
    from gpud.core.sample import Condition

LARGEST_JOB = 1 << 16
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def main() -> int:
    """Answer the one argument."""
    output = _reserved_stdout()
    match sys.argv[1:]:
        case ["--list"]:
            return _list_probes(output)
        case ["--inventory"]:
            job = _job()
            return 2 if job is None else _list_gpus(job, output)
        case ["--run"]:
            job = _job()
            return 2 if job is None else _run(job, output)
    print("usage: gpud.child --list | --inventory | --run", file=sys.stderr)
    return 2


def _list_probes(output: TextIO) -> int:
    usable, refused = discovery.modules(probes, ("SPEC", "run"))
    specs = [asdict(module.SPEC) for module in usable.values()]
    _print(output, {"probes": specs, "refused": refused})
    return 0


def _list_gpus(job: Job, output: TextIO) -> int:
    progress = Progress(job)
    from gpud.child import cuda

    inventory = cuda.inventory(job, progress)
    if inventory.failure is not None:
        inventory = replace(inventory, failure=_worded(inventory.failure, job))
    inventory = replace(inventory, refused=tuple(_worded(each, job) for each in inventory.refused))
    _print(output, asdict(inventory))
    return 0 if inventory.failure is None else 1


def _run(job: Job, output: TextIO) -> int:
    progress = Progress(job)
    budget = Budget(job.budget_s, progress=progress)
    exists = job.probe in discovery.names(probes)
    module = discovery.module(probes, job.probe, ("SPEC", "run")) if exists else "no such probe"
    if isinstance(module, str):
        print(f"probe {job.probe!a:.60}: {module}", file=sys.stderr)
        return 2
    budget.gpu_s = module.SPEC.gpu_budget_s
    try:
        report = _report(module, job, budget, progress)
    except Orphaned:
        return 1
    _print(output, asdict(report))
    return 0 if report.failure is None else 1


def _report(module: ModuleType, job: Job, budget: Budget, progress: Progress) -> RunReport:
    """Run the probe; a failure is reported with the conditions read until then.

    The report is drafted before the device is released: a driver that hangs or crashes there costs
    no figure. Errors: ``Orphaned``.
    """
    spec: ProbeSpec = module.SPEC
    report = RunReport(probe=spec.name, backend=spec.backend, conditions=_conditions(spec))
    progress.draft(asdict(report))
    try:
        with _opened(spec, job, progress) as hardware:
            report = replace(report, device=hardware.device)
            conditions = {**report.conditions, **progress.facts}
            progress.draft(asdict(replace(report, conditions=conditions)))
            report = _measured(module, report, hardware, budget, job)
            report = replace(report, duration_s=budget.spent() + progress.start_s)
            progress.draft(asdict(report))
    except Orphaned:
        raise
    except Exception as error:  # noqa: BLE001  # the boundary: whatever happens is the result
        conditions = {**report.conditions, **progress.facts}
        took_s = budget.spent() + progress.start_s
        failure = _failure(error, job)
        return replace(report, conditions=conditions, duration_s=took_s, failure=failure)
    if hardware.release_errors:
        words = "; ".join(hardware.release_errors.values())
        report = replace(report, conditions={**report.conditions, "release_errors": words})
    return report


def _failure(error: Exception, job: Job) -> Failure:
    if isinstance(error, ProbeError):
        return _worded(error.failure, job)
    if isinstance(error, MemoryError):
        return Failure(Reason.OUT_OF_MEMORY, "the host has no memory left for this run")
    return Failure(Reason.INTERNAL, f"{type(error).__name__}: {error}")


def _measured(
    module: ModuleType, report: RunReport, hardware: Gpu | Cpu, budget: Budget, job: Job
) -> RunReport:
    """Add the figures, or why there are none. ``Errors: Orphaned``."""
    # One full pass now, none later: a collection inside a timed region is a false outlier.
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        budget.check()
        outcome = module.run(hardware, budget, job.seed)
    except Orphaned:
        raise
    except Exception as error:  # noqa: BLE001  # as in ``_report``, and the GPU is still there
        return _with_costs(replace(report, failure=_failure(error, job)), hardware)
    costly = _with_costs(report, hardware)
    return replace(
        costly,
        samples=outcome.samples,
        missing=outcome.missing,
        conditions={**costly.conditions, **outcome.conditions, "verified": True},
        curve=outcome.curve,
    )


def _with_costs(report: RunReport, hardware: Gpu | Cpu) -> RunReport:
    """Add what a run has cost and under which conditions, whether it measured anything or not."""
    return replace(
        report,
        conditions={**report.conditions, **hardware.conditions()},
        gpu_seconds=hardware.busy_s,
        vram_peak_bytes=hardware.vram_peak_bytes,
        pinned_peak_bytes=hardware.pinned_peak_bytes,
    )


@contextmanager
def _opened(spec: ProbeSpec, job: Job, progress: Progress) -> Iterator[Gpu | Cpu]:
    """Open what the probe runs on; neither CUDA nor numpy is loaded for the other."""
    if spec.backend is Backend.CPU:
        # Read by the BLAS when numpy loads. One core is a reference that does not depend on what
        # else runs, and it leaves the other cores to the person.
        os.environ.update(dict.fromkeys(BLAS_THREADS, "1"))
        from gpud.child.cpu import Cpu

        yield Cpu()
        return
    from gpud.child import cuda_gpu

    # A spinning wait where the wait is in the figure; a throughput run must not burn a core.
    spin = spec.unit in {Unit.SECONDS, Unit.ELEMENTS}
    with cuda_gpu.opened(job, spin=spin, progress=progress) as gpu:
        yield gpu


def _conditions(spec: ProbeSpec) -> dict[str, Condition]:
    sources = sorted(Path(kernels.__path__[0]).glob("*.ptx"))
    ptx = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()
    clock = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    return {
        "probe_version": spec.version,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "ptx_sha256": ptx if spec.backend is Backend.CUDA else None,
        "clocksource": clock.read_text().strip() if clock.exists() else None,
        "cpu_count": os.cpu_count(),
        "load_1m": os.getloadavg()[0],
    }


def _worded(failure: Failure, job: Job) -> Failure:
    """Word the advice for this machine's platform, read below ``sysroot``."""
    root = Path(job.sysroot)
    try:
        kernel = (root / "proc/sys/kernel/osrelease").read_text(errors="replace")
    except OSError:
        kernel = platform.release()
    marked = any((root / mark.lstrip("/")).exists() for mark in advice.CONTAINER_MARKS)
    return advice.worded(failure, advice.platform(kernel, container=marked))


def _job() -> Job | None:
    """Read the job, or say on stderr what is wrong with it."""
    try:
        return Job(**json.loads(sys.stdin.buffer.read(LARGEST_JOB)))
    except (ValueError, TypeError, RecursionError) as error:
        print(f"not a job: {error}", file=sys.stderr)
        return None


def _reserved_stdout() -> TextIO:
    """Keep stdout for the document; a driver library that prints reaches stderr instead."""
    ours = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return ours


def _print(output: TextIO, document: dict[str, Any]) -> None:
    output.write(json.dumps(document, allow_nan=False) + "\n")  # whole, or not begun
    output.close()


if __name__ == "__main__":
    sys.exit(main())
