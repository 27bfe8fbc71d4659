"""The GPU container probe: what NVIDIA's n-body sample prints, and what its figure means.

The sample and gpud's own n-body count 20 flops an interaction and are different kernels with a
different number of bodies. So their ratio is no verdict by itself: it only tells apart what works
in neither place (the driver), what works outside only (the toolkit), and a container that is far
slower run after run.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gpud.core.errors import WireError
from gpud.core.health import Health, Level
from gpud.core.report import (
    ContainerFigure,
    ContainerRun,
    ContainersReport,
    ProbeStage,
    RootReport,
    ToolkitState,
)
from gpud.core.sample import Backend, Device, Failure, RunReport, Unit
from gpud.core.stats import summarised

PROBE: Final = "container_nbody"
MODE: Final = "nbody"
IN_PROCESS: Final = "nbody"
"""The probe whose figure the container's is compared with."""
FLOPS_PER_INTERACTION = 20
LARGEST_OUTPUT = 32 * 1024
SLOWER_BELOW = 0.5
"""Of the in-process figure. Wide on purpose: other kernels, another moment, maybe a game."""
SLOW_RUNS = 3
"""In a row: one slow run is a GPU that was busy."""
PAIR_WITHIN_S = 3600.0
"""Runs further apart say nothing of each other."""
AGREES_WITHIN = 0.01
"""The printed figures are rounded to three decimals; more than this is no rounding."""

_NUMBER = r"(\d{1,12}(?:\.\d{1,6})?)"
_LINES: Final = {
    "device": re.compile(
        r'GPU Device (\d{1,3}): "[^"]{0,64}" with compute capability (\d{1,2}\.\d{1,2})'
    ),
    "name": re.compile(r"> Compute \d{1,2}\.\d{1,2} CUDA device: \[(.{1,96})\]"),
    "time": re.compile(rf"(\d{{1,9}}) bodies, total time for (\d{{1,7}}) iterations: {_NUMBER} ms"),
    "interactions": re.compile(rf"= {_NUMBER} billion interactions per second"),
    "flops": re.compile(
        rf"= {_NUMBER} single-precision GFLOP/s at (\d{{1,3}}) flops per interaction"
    ),
}


def parsed(output: str) -> ContainerFigure:
    """Read the sample's benchmark.

    Units: base units out. Errors: ``WireError`` unless each line is there once and all figures
    agree with the time and the number of bodies: the text comes out of a container.
    """
    if len(output) > LARGEST_OUTPUT:
        raise WireError(f"more than {LARGEST_OUTPUT} characters of output")
    lines = [line.strip() for line in output.splitlines()]
    matched: dict[str, re.Match[str]] = {}
    for what, pattern in _LINES.items():
        matches = [match for line in lines if (match := pattern.fullmatch(line))]
        if len(matches) != 1:
            many = "no line" if not matches else f"{len(matches)} lines"
            raise WireError(f"{many} with the {what} of the benchmark; {_excerpt(lines)}")
        matched[what] = matches[0]
    bodies, iterations = int(matched["time"][1]), int(matched["time"][2])
    elapsed_s = float(matched["time"][3]) / 1e3
    interactions = float(matched["interactions"][1]) * 1e9
    flops = float(matched["flops"][1]) * 1e9
    if int(matched["flops"][2]) != FLOPS_PER_INTERACTION:
        raise WireError(f"{matched['flops'][2]} flops an interaction, not {FLOPS_PER_INTERACTION}")
    if not (elapsed_s > 0 and interactions > 0 and flops > 0):
        raise WireError("a figure of nothing at all")
    counted = float(bodies) * bodies * iterations / elapsed_s
    if not (
        math.isclose(interactions, counted, rel_tol=AGREES_WITHIN)
        and math.isclose(flops, FLOPS_PER_INTERACTION * interactions, rel_tol=AGREES_WITHIN)
    ):
        raise WireError(f"figures that contradict each other; {_excerpt(lines)}")
    return ContainerFigure(
        flops_per_second=flops,
        interactions_per_second=interactions,
        bodies=bodies,
        iterations=iterations,
        gpu_index=int(matched["device"][1]),
        gpu_name=matched["name"][1],
        compute_capability=matched["device"][2],
    )


def _excerpt(lines: list[str]) -> str:
    last = next((line for line in reversed(lines) if line), "")
    return f"the last line is {last[:120]!r}" if last else "it printed nothing"


def run_report(run: ContainerRun, device: Device | None) -> RunReport:
    """Give the run in the shape of every other, for the history."""
    figure = run.figure
    if figure is None:
        return RunReport(
            PROBE, Backend.CUDA, device, failure=run.failure, duration_s=run.duration_s
        )
    sample = summarised([figure.flops_per_second], mode=MODE, unit=Unit.FLOPS_PER_SECOND)
    return RunReport(
        PROBE,
        Backend.CUDA,
        device,
        (sample,),
        conditions={"bodies": figure.bodies, "iterations": figure.iterations},
        duration_s=run.duration_s,
    )


def taken(root: RootReport | None) -> bool:
    """Say whether a container measures, or is about to: two runs at once would both be wrong."""
    report = None if root is None else root.containers
    return report is not None and report.stage in (ProbeStage.ANNOUNCED, ProbeStage.RUNNING)


class ContainerVerdict(StrEnum):
    """What the container's figure and the in-process one say together."""

    AGREES = "agrees"
    CONTAINER_SLOWER = "container_slower"
    ONLY_CONTAINER_FAILS = "only_container_fails"
    ONLY_IN_PROCESS_FAILS = "only_in_process_fails"
    BOTH_FAIL = "both_fail"
    NOT_COMPARABLE = "not_comparable"


@dataclass(frozen=True, slots=True)
class InProcess:
    """The last in-process n-body run: a figure or a failure, and when (CLOCK_MONOTONIC)."""

    finished_mono_s: float
    flops_per_second: float | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """One container run beside one in-process run. ``ratio`` is container over in-process."""

    verdict: ContainerVerdict
    detail: str
    ratio: float | None = None
    gpu: int | None = None
    run_mono_s: float = 0.0  # of the container run that was compared


def compared(
    run: ContainerRun,
    recent: tuple[float, ...],
    inside: InProcess | None,
    *,
    same_gpu: bool = True,
) -> Comparison:
    """Tell a toolkit's fault from a driver's.

    ``recent`` are the container's last figures in a row, flop/s; ``inside`` the in-process run.
    """
    at = run.finished_mono_s
    gpu = None if run.figure is None else run.figure.gpu_index
    if inside is None or abs(inside.finished_mono_s - at) > PAIR_WITHIN_S:
        words = "there is no in-process n-body run within an hour of it"
        return Comparison(ContainerVerdict.NOT_COMPARABLE, words, gpu=gpu, run_mono_s=at)
    if run.figure is None:
        if inside.flops_per_second is None:
            words = "neither the container nor gpud itself can compute: look at the driver"
            return Comparison(ContainerVerdict.BOTH_FAIL, words, run_mono_s=at)
        words = "gpud computes on this GPU and the container does not: look at the toolkit"
        return Comparison(ContainerVerdict.ONLY_CONTAINER_FAILS, words, run_mono_s=at)
    if inside.flops_per_second is None:
        words = "the container computes and gpud does not: look which libcuda gpud loads"
        return Comparison(ContainerVerdict.ONLY_IN_PROCESS_FAILS, words, gpu=gpu, run_mono_s=at)
    if not same_gpu or inside.flops_per_second <= 0:
        words = f"the container measured {run.figure.gpu_name}, which is not the GPU gpud measured"
        return Comparison(ContainerVerdict.NOT_COMPARABLE, words, gpu=gpu, run_mono_s=at)
    ratio = run.figure.flops_per_second / inside.flops_per_second
    fastest = max((run.figure.flops_per_second, *recent)) / inside.flops_per_second
    slow = len(recent) >= SLOW_RUNS and fastest < SLOWER_BELOW
    words = f"the container reaches {ratio:.0%} of the in-process n-body"
    if slow:
        words += f", in {SLOW_RUNS} runs never more than {fastest:.0%}"
    verdict = ContainerVerdict.CONTAINER_SLOWER if slow else ContainerVerdict.AGREES
    return Comparison(verdict, words, ratio=ratio, gpu=gpu, run_mono_s=at)


def judgement(
    report: ContainersReport, comparison: Comparison | None, *, has_gpu: bool
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


def _of_run(run: ContainerRun, comparison: Comparison | None) -> Health:
    words = "" if comparison is None else comparison.detail
    if run.failure is not None:
        both = comparison is not None and comparison.verdict is ContainerVerdict.BOTH_FAIL
        detail = f"{run.failure.detail}; {words}" if words else run.failure.detail
        # The driver's own fault is told where it belongs; here it is only seen a second time.
        level = Level.DEGRADED if both else Level.FAILED
        return Health(level, run.failure.reason, detail, run.failure.advice)
    if comparison is not None and comparison.verdict in (
        ContainerVerdict.CONTAINER_SLOWER,
        ContainerVerdict.ONLY_IN_PROCESS_FAILS,
    ):
        return Health(Level.DEGRADED, comparison.verdict, words, _FIXES[comparison.verdict])
    return Health(Level.OK, None, words or None)


_FIXES: Final[dict[str, str]] = {
    ContainerVerdict.CONTAINER_SLOWER: (
        "look whether the container gets the whole GPU, and what else uses it; "
        "`gpud_container_flops_ratio` shows since when"
    ),
    ContainerVerdict.ONLY_IN_PROCESS_FAILS: (
        "`gpud doctor` says which libcuda is loaded, and whether another one shadows WSL's"
    ),
}
