from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gpud.core import containers
from gpud.core.containers import (
    Comparison,
    ContainerVerdict,
    InProcess,
    compared,
    judgement,
    parsed,
)
from gpud.core.errors import WireError
from gpud.core.health import Level
from gpud.core.report import (
    ContainerFigure,
    ContainerRun,
    ContainersReport,
    ProbeStage,
    ToolkitReport,
    ToolkitState,
)
from gpud.core.sample import Backend, Device, Failure, Reason, Unit
from tests.snapshots import ROOT

CAPTURES = sorted((Path(__file__).resolve().parent.parent / "captures/nbody").glob("*.txt"))
LAPTOP = (CAPTURES[0].parent / "rtx-a2000-laptop.txt").read_text()
FIGURE = ContainerFigure(
    flops_per_second=4e12,
    interactions_per_second=2e11,
    bodies=20480,
    iterations=50,
    gpu_index=0,
    gpu_name="n",
    compute_capability="8.6",
)
RUN = ContainerRun(1e9, 100.0, 2.0, figure=FIGURE)
BROKEN = Failure(Reason.TOOLKIT_FAILED, "the toolkit's words", advice="do this")
FAILED = ContainerRun(1e9, 100.0, 2.0, failure=BROKEN)
DRIVER = Failure(Reason.INIT_FAILED, "cuInit: 999")
DEVICE = Device(0, "GPU-0", "n", "0000:01:00.0", "8.6", 20, 1, 1)


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_what_real_gpus_printed_is_read(path: Path) -> None:
    figure = parsed(path.read_text())
    if path.stem == "rtx-a2000-laptop":  # GFLOP/s and billions there, base units here
        assert figure.flops_per_second == pytest.approx(3.863604e12)
        assert figure.interactions_per_second == pytest.approx(1.9318e11)
        assert (figure.bodies, figure.iterations) == (20480, 10)
        assert figure.compute_capability == "8.6"
    counted = figure.interactions_per_second * 20
    assert figure.flops_per_second == pytest.approx(counted, rel=1e-3)
    assert figure.bodies % 256 == 0
    assert figure.gpu_name in path.read_text()
    assert figure.gpu_index == 0


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("3863.604", "9863.604", "contradict"),
        ("193.180", "593.180", "contradict"),
        ("21.712 ms", "0.000 ms", "a figure of nothing"),
        ("= 193.180", "= 0.000", "a figure of nothing"),
        ("at 20 flops", "at 30 flops", "30 flops"),
        ("single-precision", "double-precision", "no line with the flops"),
        ("20480 bodies", "nan bodies", "no line with the time"),
        ("= 193.180 ", "= inf ", "no line with the interactions"),
        ("GPU Device 0", "GPU Device -1", "no line with the device"),
        ("21.712", "9" * 400, "no line with the time"),
        (LAPTOP, LAPTOP * 2, "2 lines"),
        (LAPTOP, LAPTOP + " " * 40_000, "more than 32768"),
    ],
)
def test_what_cannot_be_true_is_refused(before: str, after: str, said: str) -> None:
    assert before in LAPTOP
    with pytest.raises(WireError, match=said):
        parsed(LAPTOP.replace(before, after))


@given(st.text() | st.text(alphabet="0123456789.=\n ").map(lambda text: LAPTOP + text))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        figure = parsed(text)
    except WireError as error:
        words = str(error)
    else:
        words = figure.gpu_name
        assert figure.flops_per_second > 0
    assert len(words) < 700


@given(
    bodies=st.integers(1, 2**20),
    iterations=st.integers(1, 10**6),
    elapsed_ms=st.floats(1, 1e8),
)
def test_every_honest_benchmark_is_read(bodies: int, iterations: int, elapsed_ms: float) -> None:
    interactions = bodies * bodies * iterations / elapsed_ms * 1e3 / 1e9
    if not 0.1 < interactions < 1e9:
        return  # three decimals would not hold it, or no GPU could
    text = (
        f'GPU Device 3: "Ada" with compute capability 8.9\n> Compute 8.9 CUDA device: [X]\n'
        f"{bodies} bodies, total time for {iterations} iterations: {elapsed_ms:.3f} ms\n"
        f"= {interactions:.3f} billion interactions per second\n"
        f"= {interactions * 20:.3f} single-precision GFLOP/s at 20 flops per interaction\n"
    )
    figure = parsed(text)
    assert figure.interactions_per_second == pytest.approx(interactions * 1e9, rel=0.01)
    assert figure.gpu_index == 3


def test_a_run_is_kept_in_the_shape_of_every_other() -> None:
    report = containers.run_report(RUN, DEVICE)
    assert (report.probe, report.backend, report.device) == (
        "container_nbody",
        Backend.CUDA,
        DEVICE,
    )
    assert report.samples[0].median == FIGURE.flops_per_second
    assert report.samples[0].unit is Unit.FLOPS_PER_SECOND
    assert containers.run_report(FAILED, None).failure == BROKEN
    assert containers.run_report(FAILED, None).samples == ()


@pytest.mark.parametrize(
    ("run", "recent", "inside", "verdict"),
    [
        (RUN, (4e12,), InProcess(200.0, 5e12), ContainerVerdict.AGREES),
        (RUN, (4e12,), InProcess(200.0, 1e12), ContainerVerdict.AGREES),
        (RUN, (4e12,) * 3, InProcess(200.0, 9e12), ContainerVerdict.CONTAINER_SLOWER),
        (RUN, (4e12,) * 2, InProcess(200.0, 9e12), ContainerVerdict.AGREES),
        (RUN, (8e12, 4e12, 4e12), InProcess(200.0, 9e12), ContainerVerdict.AGREES),
        (FAILED, (), InProcess(200.0, 5e12), ContainerVerdict.ONLY_CONTAINER_FAILS),
        (FAILED, (), InProcess(200.0, failure=DRIVER), ContainerVerdict.BOTH_FAIL),
        (RUN, (4e12,), InProcess(200.0, failure=DRIVER), ContainerVerdict.ONLY_IN_PROCESS_FAILS),
        (RUN, (4e12,), None, ContainerVerdict.NOT_COMPARABLE),
        (FAILED, (), None, ContainerVerdict.NOT_COMPARABLE),
        (RUN, (4e12,), InProcess(3701.0, 5e12), ContainerVerdict.NOT_COMPARABLE),
        (RUN, (4e12,), InProcess(-3501.0, 5e12), ContainerVerdict.NOT_COMPARABLE),
        (FAILED, (), InProcess(3701.0, failure=DRIVER), ContainerVerdict.NOT_COMPARABLE),
    ],
)
def test_a_toolkits_fault_is_told_from_a_drivers(
    run: ContainerRun,
    recent: tuple[float, ...],
    inside: InProcess | None,
    verdict: ContainerVerdict,
) -> None:
    assert compared(run, recent, inside).verdict is verdict


def test_the_ratio_is_the_containers_rate_over_gpuds_own_on_the_same_gpu() -> None:
    comparison = compared(RUN, (4e12,), InProcess(100.0, 5e12))
    assert comparison.ratio == pytest.approx(0.8)
    assert comparison.gpu == 0
    assert "80%" in comparison.detail
    other = compared(RUN, (4e12,), InProcess(100.0, 5e12), same_gpu=False)
    assert (other.verdict, other.ratio) == (ContainerVerdict.NOT_COMPARABLE, None)


def told(
    run: ContainerRun | None = None, state: ToolkitState = ToolkitState.RUNTIME
) -> ContainersReport:
    broken = state is ToolkitState.BROKEN
    toolkit = ToolkitReport(state, "cdi_off" if broken else None, "words", "fix")
    return ContainersReport(ProbeStage.WAITING, "i", image_present=True, toolkit=toolkit, run=run)


def verdict(of: ContainerVerdict) -> Comparison:
    return Comparison(of, "the words of the verdict")


@pytest.mark.parametrize(
    ("report", "comparison", "level", "reason"),
    [
        (told(RUN), verdict(ContainerVerdict.AGREES), Level.OK, None),
        (told(RUN), verdict(ContainerVerdict.NOT_COMPARABLE), Level.OK, None),
        (told(RUN), verdict(ContainerVerdict.CONTAINER_SLOWER), Level.DEGRADED, "container_slower"),
        (
            told(RUN),
            verdict(ContainerVerdict.ONLY_IN_PROCESS_FAILS),
            Level.DEGRADED,
            "only_in_process_fails",
        ),
        (
            told(FAILED),
            verdict(ContainerVerdict.ONLY_CONTAINER_FAILS),
            Level.FAILED,
            "toolkit_failed",
        ),
        (told(FAILED), verdict(ContainerVerdict.NOT_COMPARABLE), Level.FAILED, "toolkit_failed"),
        (told(FAILED), verdict(ContainerVerdict.BOTH_FAIL), Level.DEGRADED, "toolkit_failed"),
        (told(), None, Level.OK, None),
        (told(state=ToolkitState.NONE), None, Level.OK, "not_set_up"),
        (told(state=ToolkitState.BROKEN), None, Level.DEGRADED, "toolkit_cdi_off"),
    ],
)
def test_the_health_of_gpu_containers(
    report: ContainersReport, comparison: Comparison | None, level: Level, reason: str | None
) -> None:
    said = judgement(report, comparison, has_gpu=True)
    assert said is not None
    assert (said.level, said.reason) == (level, reason)


def test_a_failed_run_is_told_with_dockers_words_what_they_mean_and_the_fix() -> None:
    said = judgement(told(FAILED), verdict(ContainerVerdict.ONLY_CONTAINER_FAILS), has_gpu=True)
    assert said is not None
    assert said.detail == "the toolkit's words; the words of the verdict"
    assert said.fix == "do this"


def test_a_fault_holds_while_a_new_dockerd_was_not_asked_yet_and_ends_with_the_image() -> None:
    unknown, gone = (
        structs.replace(told(FAILED), image_present=present) for present in (None, False)
    )
    comparison = verdict(ContainerVerdict.ONLY_CONTAINER_FAILS)
    said = judgement(unknown, comparison, has_gpu=True)
    assert said == judgement(told(FAILED), comparison, has_gpu=True)
    later = judgement(gone, comparison, has_gpu=True)
    assert later is not None
    assert later.level is Level.OK


def test_nobody_is_told_about_a_toolkit_on_a_machine_without_a_gpu() -> None:
    assert judgement(told(state=ToolkitState.NONE), None, has_gpu=False) is None


@pytest.mark.parametrize("stage", ProbeStage)
def test_the_gpu_is_taken_from_the_announcement_on(stage: ProbeStage) -> None:
    root = structs.replace(ROOT, containers=ContainersReport(stage, "i"))
    assert containers.taken(root) is (stage in {ProbeStage.ANNOUNCED, ProbeStage.RUNNING})
    assert not containers.taken(None)
