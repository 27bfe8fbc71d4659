"""Command line of a child that measures: it answers each job on stdin with a document on stdout.

``--list`` prints the probes. ``--serve`` reads a ``Job`` a line and prints a document a line: the
GPUs, or one run. All runs on a GPU share its context, which is given back at the end of the input,
and when no job has come for a minute.
Exit codes: 0 the last document holds figures, 1 a failure, 2 it was called wrongly.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import sys
from contextlib import contextmanager

from gpud import discovery, regular_file
from gpud.child import kernels, probes
from gpud.child.progress import Budget, Orphaned, Progress
from gpud.core import advice
from gpud.core.errors import ProbeError
from gpud.core.record import replace, values
from gpud.core.sample import (
    Backend,
    Failure,
    Inventory,
    Job,
    ProbeSpec,
    Reason,
    RunReport,
    Unit,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType
    from typing import TextIO

    from gpud.child.cpu import Cpu
    from gpud.child.cuda_gpu import Gpu, LoadedCuda
    from gpud.core.sample import Condition

STDIN = 0
IDLE_S = 60.0
"""How long a child waits for its next job: who asks may be stopped, and it has a GPU and the lock.
It is in no call of the driver then, so it ends itself on WSL2 as well."""


def main() -> int:
    """Answer the one argument."""
    gc.freeze()  # what a start has imported stays, and is not looked through before each run
    output = _reserved_stdout()
    match sys.argv[1:]:
        case ["--list"]:
            return _list_probes(output)
        case ["--serve"]:
            return Jobs(output).answer()
    print("usage: gpud.child --list | --serve", file=sys.stderr)
    return 2


def _list_probes(output: TextIO) -> int:
    usable, refused = discovery.modules(probes, ("SPEC", "run"))
    specs = [module.SPEC for module in usable.values()]
    _print(output, {"probes": specs, "refused": refused})
    return 0


class Jobs:
    """The jobs of one process, one after the other, and the driver that those of a GPU share."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._cuda: LoadedCuda | None = None

    def answer(self) -> int:
        """Answer each job until the end of the input; then give the GPU back."""
        code = 0
        while line := _next_line():
            job = Job(**json.loads(line))
            progress = Progress(job)
            try:
                work = self._run if job.probe else self._list_gpus
                code = work(job, progress)
            except (Orphaned, BrokenPipeError):  # nobody reads what comes of it any more
                code = 1
                break
            finally:
                progress.over()
        if self._cuda is not None:  # that takes as long as the last run at most
            for words in self._cuda.close(Progress(job)).values():
                print(f"not given back: {words}", file=sys.stderr)
        return code

    def _list_gpus(self, job: Job, progress: Progress) -> int:
        from gpud.child import cuda

        library = None
        try:
            with progress.start_up():
                driver = self._driver.driver(job, progress)
                library = driver.library
                inventory = cuda.inventory(driver)
        except ProbeError as error:
            inventory = Inventory(library=library, failure=error.failure)
        if inventory.failure is not None:
            inventory = replace(inventory, failure=_worded(inventory.failure, job))
        refused = tuple(_worded(each, job) for each in inventory.refused)
        _print(self._output, replace(inventory, refused=refused))
        return 0 if inventory.failure is None else 1

    def _run(self, job: Job, progress: Progress) -> int:
        budget = Budget(job.budget_s, progress=progress)
        module = importlib.import_module(f"{probes.__name__}.{job.probe}")
        budget.gpu_s = module.SPEC.gpu_budget_s
        report = self._report(module, job, budget, progress)
        _print(self._output, report)
        return 0 if report.failure is None else 1

    def _report(
        self, module: ModuleType, job: Job, budget: Budget, progress: Progress
    ) -> RunReport:
        """Run the probe; a failure is reported with the conditions read until then.

        The report is drafted before the device is released: a driver that hangs or crashes there
        costs no figure. Errors: ``Orphaned``.
        """
        spec: ProbeSpec = module.SPEC
        report = RunReport(probe=spec.name, backend=spec.backend, conditions=_conditions(spec))
        progress.draft(report)
        try:
            with self._opened(spec, job, progress) as hardware:
                report = replace(report, device=hardware.device)
                conditions = {**report.conditions, **progress.facts}
                progress.draft(replace(report, conditions=conditions))
                report = _measured(module, report, hardware, budget, job)
                report = replace(report, duration_s=budget.spent() + progress.start_s)
                progress.draft(report)
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

    @contextmanager
    def _opened(self, spec: ProbeSpec, job: Job, progress: Progress) -> Iterator[Gpu | Cpu]:
        """Open what the probe runs on; CUDA is loaded for a GPU only."""
        if spec.backend is Backend.CPU:
            from gpud.child.cpu import Cpu

            yield Cpu()
            return
        # A spinning wait where the wait is in the figure; a throughput run must not burn a core.
        spin = spec.unit in {Unit.SECONDS, Unit.ELEMENTS}
        with self._driver.gpu(job, spin=spin, progress=progress) as gpu:
            yield gpu

    @property
    def _driver(self) -> LoadedCuda:
        if self._cuda is None:
            from gpud.child.cuda_gpu import LoadedCuda

            self._cuda = LoadedCuda()
        return self._cuda


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
    # One pass now, none later: a collection inside a timed region is a false outlier. What is left
    # by then stays for good, and later passes look only at what the runs in between have made.
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        budget.check()
        hardware.leave_free(job)
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


def _conditions(spec: ProbeSpec) -> dict[str, Condition]:
    clock = regular_file.text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    return {
        "probe_version": spec.version,
        "python": sys.version.partition(" ")[0],
        "kernel": os.uname().release,
        "ptx_sha256": kernels.digest() if spec.backend is Backend.CUDA else None,
        "clocksource": clock and clock.strip(),
        "cpu_count": os.cpu_count(),
        "load_1m": os.getloadavg()[0],
    }


def _worded(failure: Failure, job: Job) -> Failure:
    """Word the advice for this machine's platform, read below ``sysroot``."""
    from pathlib import Path

    root = Path(job.sysroot)
    kernel = regular_file.text(root / "proc/sys/kernel/osrelease") or os.uname().release
    marked = any((root / mark.lstrip("/")).exists() for mark in advice.CONTAINER_MARKS)
    return advice.worded(failure, advice.platform(kernel, container=marked))


def _next_line() -> bytes:
    """Wait for a job; empty at the end of the input, and when none has come for ``IDLE_S``."""
    if not select.select([STDIN], [], [], IDLE_S)[0]:
        return b""
    with open(STDIN, "rb", buffering=0, closefd=False) as jobs:  # takes one line, and no more
        return jobs.readline()


def _reserved_stdout() -> TextIO:
    """Keep stdout for the document; a driver library that prints reaches stderr instead."""
    ours = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return ours


def _print(output: TextIO, document: object) -> None:
    output.write(
        json.dumps(document, allow_nan=False, default=values) + "\n"
    )  # whole, or not begun
    output.flush()


if __name__ == "__main__":
    sys.exit(main())
