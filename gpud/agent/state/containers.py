"""Health of GPU containers: the container probe beside the in-process n-body run.

The sample and gpud's own n-body count 20 flops an interaction and are different kernels with a
different number of bodies. So their ratio is no verdict: it is told apart what works in neither
place (the driver) and what works outside only (the toolkit).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import structs

from gpud.core.health import Health, Level
from gpud.core.report import (
    ContainerRun,
    ContainersReport,
    ProbeStage,
    RootReport,
    ToolkitState,
)
from gpud.core.sample import Backend, Failure, RunReport, Sample, Unit
from gpud.document.machine import ComparisonReport

if TYPE_CHECKING:
    from gpud.agent.state.snapshot import ProbeState
    from gpud.core.sample import Device, Inventory

PROBE: Final = "container_nbody"
MODE: Final = "nbody"
IN_PROCESS: Final = "nbody"
"""The probe whose figure the container's is compared with."""
PAIR_WITHIN_S = 3600.0
"""Runs further apart say nothing of each other."""
LIBRARY_FIX: Final = (
    "`gpud doctor` says which libcuda is loaded, and whether another one shadows WSL's"
)


def measured_device(run: ContainerRun, inventory: Inventory | None) -> Device | None:
    """Find the GPU that a container measured: the same index, and the same name."""
    if inventory is None or run.figure is None:
        return None
    measured = (run.figure.gpu_index, run.figure.gpu_name)
    return next((d for d in inventory.devices if (d.index, d.name) == measured), None)


def run_report(run: ContainerRun, device: Device | None) -> RunReport:
    """Give the run in the shape of every other, for the history."""
    figure = run.figure
    if figure is None:
        failure = None if run.failure is None else Failure(*structs.astuple(run.failure))
        return RunReport(PROBE, Backend.CUDA, device, failure=failure, duration_s=run.duration_s)
    rate = figure.flops_per_second
    sample = Sample(
        MODE,
        Unit.FLOPS_PER_SECOND,
        n=1,
        median=rate,
        minimum=rate,
        maximum=rate,
    )
    return RunReport(
        PROBE,
        Backend.CUDA,
        device,
        (sample,),
        conditions={"bodies": figure.bodies, "iterations": figure.iterations},
        duration_s=run.duration_s,
    )


def measuring(root: RootReport | None) -> bool:
    """Say whether a container measures, or is about to: two runs at once would both be wrong."""
    report = None if root is None else root.containers
    return report is not None and report.stage in (ProbeStage.ANNOUNCED, ProbeStage.RUNNING)


class ContainerVerdict(StrEnum):
    """What the container's figure and the in-process one say together."""

    AGREES = "agrees"
    ONLY_CONTAINER_FAILS = "only_container_fails"
    ONLY_IN_PROCESS_FAILS = "only_in_process_fails"
    BOTH_FAIL = "both_fail"
    NOT_COMPARABLE = "not_comparable"


def compared(
    run: ContainerRun, inside: ProbeState | None, device: Device | None
) -> ComparisonReport:
    """Tell a toolkit's fault from a driver's; ``inside`` is the last in-process n-body run.

    ``device``: the GPU that the container measured, None for one that gpud did not.
    """
    figure, at_s = run.figure, run.finished_mono_s

    def report(
        verdict: ContainerVerdict, words: str, ratio: float | None = None
    ) -> ComparisonReport:
        gpu = None if figure is None else figure.gpu_index
        return ComparisonReport(verdict, words, ratio, gpu, at_s)

    if inside is None or abs(inside.finished_mono_s - at_s) > PAIR_WITHIN_S:
        words = "there is no in-process n-body run within an hour of it"
        return report(ContainerVerdict.NOT_COMPARABLE, words)
    rate = next((sample.median for sample in inside.report.samples), None)
    if figure is None and rate is None:
        words = "neither the container nor gpud itself can compute: look at the driver"
        return report(ContainerVerdict.BOTH_FAIL, words)
    if figure is None:
        words = "gpud computes on this GPU and the container does not: look at the toolkit"
        return report(ContainerVerdict.ONLY_CONTAINER_FAILS, words)
    if rate is None:
        words = "the container computes and gpud does not: look which libcuda gpud loads"
        return report(ContainerVerdict.ONLY_IN_PROCESS_FAILS, words)
    if device is None:
        words = f"the container measured {figure.gpu_name}, which is not the GPU gpud measured"
        return report(ContainerVerdict.NOT_COMPARABLE, words)
    ratio = figure.flops_per_second / rate
    words = f"the container reaches {100 * ratio:.0f} % of the in-process n-body"
    return report(ContainerVerdict.AGREES, words, ratio)


def health(
    report: ContainersReport, comparison: ComparisonReport | None, *, has_gpu: bool
) -> Health | None:
    """Say how GPU containers are; None where nobody can want one.

    A toolkit that is not installed is no fault while nobody has an image to run on a GPU.
    """
    toolkit, run = report.toolkit, report.run
    if run is not None and report.image_present is not False:  # unknown for a moment: it holds
        return _of_run(run, comparison)
    if toolkit is None or not has_gpu:
        return None
    if toolkit.state == ToolkitState.BROKEN:
        return Health(Level.DEGRADED, f"toolkit_{toolkit.reason}", toolkit.detail, toolkit.fix)
    reason = "not_set_up" if toolkit.state == ToolkitState.NONE else None
    return Health(Level.OK, reason, toolkit.detail, toolkit.fix)


def _of_run(run: ContainerRun, comparison: ComparisonReport | None) -> Health:
    words = "" if comparison is None else comparison.detail
    if run.failure is not None:
        both = comparison is not None and comparison.verdict is ContainerVerdict.BOTH_FAIL
        detail = f"{run.failure.detail}; {words}" if words else run.failure.detail
        # The driver's own fault is told where it belongs; here it is only seen a second time.
        level = Level.DEGRADED if both else Level.FAILED
        return Health(level, run.failure.reason, detail, run.failure.advice)
    if comparison is not None and comparison.verdict is ContainerVerdict.ONLY_IN_PROCESS_FAILS:
        return Health(Level.DEGRADED, comparison.verdict, words, LIBRARY_FIX)
    return Health(Level.OK, None, words or None)
