"""The mode --guest beside the stand-in: short slices, few contexts, the same path as on a GPU."""

from __future__ import annotations

import json
import math
import random
import signal
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pytest

from deploy.gpu_check import clocks, guest, main, spread, workload
from deploy.gpu_check.contexts import Contexts
from tests.gpu_check.test_command import SCRIPT, SMI, interrupted, using, with_tools
from tests.standins.build import build_libcuda

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROOM = "device.0.free_mem 4294967296\n"
"""GPU memory beside which gpud runs its probes."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A PATH with an nvidia-smi, and every part made short; nothing runs in the end."""
    monkeypatch.setenv("PATH", with_tools(tmp_path, {"nvidia-smi": SMI}))
    monkeypatch.setattr(spread, "PROBES", ("triad", "nbody"))
    monkeypatch.setattr(spread, "CONTEXTS", 2)
    monkeypatch.setattr(spread, "SAMPLES", 2)
    monkeypatch.setattr(spread, "ROUNDS", 2)
    monkeypatch.setattr(workload, "SLICES", 4)
    monkeypatch.setattr(guest, "CONTEXTS", 20)
    yield tmp_path
    assert using(tmp_path / "libcuda.so.1") == []


def studied(folder: Path, *options: str, script: str = "") -> tuple[int, dict[str, Any], str]:
    """Exit code, document, page."""
    library = build_libcuda(folder, SCRIPT + script)
    given = ["--guest", "--library", str(library), "--out", str(folder / "out"), *options]
    (work := folder / "work").mkdir()
    code = guest.study(main._arguments(given), work, Contexts(print), print)
    (file,) = (folder / "out").glob("*-guest.json")
    return code, json.loads(file.read_text()), file.with_suffix(".md").read_text()


def test_runs_of_one_context_are_compared_with_those_of_others(folder: Path) -> None:
    code, document, page = studied(folder, "--only", "spread")
    assert code == 0
    triad = document["parts"]["spread"]["triad.triad"]
    assert triad["mean"] == pytest.approx(5e11, rel=0.01)
    assert triad["within"] < 0.01
    assert triad["first"] == pytest.approx(1, abs=0.01)
    assert "| triad.triad | 0.00% | 0.00% | 1.0000 |" in page


def test_what_a_user_could_change_is_tried_and_the_clocks_are_recorded(folder: Path) -> None:
    code, document, page = studied(folder, "--only", "changes")
    assert code == 0
    changes = document["parts"]["changes"]
    names = {spread.AS_IT_IS, spread.COMPETING, spread.NO_BOOST, spread.NO_CACHE}
    assert set(changes["figures"]) == set(changes["clocks"]) == names
    for change in names:
        assert len(changes["figures"][change]["triad.triad"]) == 2
        assert [each["sm_mhz"] for each in changes["clocks"][change]] == [2475, 2475]
    assert "triad.triad" not in changes["moved"][spread.NO_BOOST]
    assert f"- {spread.NO_BOOST}:" in page
    assert "2475 SM MHz, 10501 memory MHz, 61 °C" in page


@pytest.mark.soak
def test_a_workload_runs_with_and_without_gpud_in_turns(folder: Path) -> None:
    given = ("--only", "workload", "--seconds", "12")
    _, document, page = studied(folder, *given, script=ROOM)
    part = document["parts"]["workload"]
    assert [each["gpud"] for each in part["slices"]] == [True, False, False, True]
    assert part["kernel"] == "matmul_128"
    assert all(each["rate"] > 0 for each in part["slices"])
    effect = part["effect"]
    assert effect["low"] <= effect["mean"] <= effect["high"]
    assert effect["verdict"] in {"held", "missed", "not decided"}
    assert part["pace"] > 1
    assert effect["mean"] == pytest.approx(part["seen"]["mean"] / part["pace"])
    assert part["gpud"]["gpud_own_gpu_seconds_total"] > 0
    for each in part["slices"]:
        assert (each["did"].get("gpud_own_gpu_seconds_total", 0) > 0) == each["gpud"]
    assert part["gpud"]["memory_mib beside the workload"] == 0  # as the nvidia-smi here says
    assert f"Target at most 0.5%: {effect['verdict']}." in page


def test_contexts_are_counted(folder: Path) -> None:
    code, document, page = studied(folder, "--only", "contexts")
    assert code == 0
    part = document["parts"]["contexts"]
    assert (part["made"], part["wanted"], part["code"]) == (20, 20, 0)
    assert len(part["seconds"]) == 20
    assert "- 20 of 20 contexts were made and given back." in page


def test_a_driver_that_grants_no_more_contexts_is_a_result(folder: Path) -> None:
    refusing = "fail cuDevicePrimaryCtxRetain 999 7\n"
    _, document, page = studied(folder, "--only", "contexts", script=refusing)
    part = document["parts"]["contexts"]
    assert (part["made"], part["function"], part["code"]) == (7, "cuDevicePrimaryCtxRetain", 999)
    assert "- Then cuDevicePrimaryCtxRetain refused with 999." in page


def test_contexts_are_not_counted_in_wsl2(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.release", lambda: "6.6.87.2-microsoft-standard-WSL2")
    code, document, _ = studied(folder, "--only", "contexts")
    assert code == 1
    assert "WSL2" in document["parts"]["contexts"]["not_run"]


def test_variance_within_and_between_contexts_is_told_apart() -> None:
    chance = random.Random(1)
    contexts = [100 + 5 * chance.gauss() for _ in range(400)]
    groups = [[context + 2 * chance.gauss() for _ in range(5)] for context in contexts]
    found = spread.components(groups)
    assert found.within == pytest.approx(0.02, rel=0.1)
    assert found.between == pytest.approx(0.05, rel=0.1)
    alike = spread.components([[100 + chance.gauss() for _ in range(5)] for _ in range(400)])
    assert alike.between < 0.003
    assert spread.components([[110.0, 100.0, 100.0]] * 2).first == pytest.approx(1.1)


def test_whoever_ends_it_beside_a_workload_finds_nothing_left(tmp_path: Path) -> None:
    options = ("--guest", "--only", "workload")
    said = "slice 1 of 20, with gpud"
    interrupted(tmp_path, signal.SIGTERM, options, said, 2, ROOM)  # the agent's child is the second


def test_the_interval_of_an_effect_holds_the_truth_19_times_of_20() -> None:
    chance, right = random.Random(2), 0
    for _ in range(1000):
        pairs = [(99 + chance.gauss(), 100.0) for _ in range(10)]
        found = workload.effect(pairs)
        right += found.low <= 0.01 <= found.high
    assert 930 <= right <= 970


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [
        ((0.001, 0.002, 0.001, 0.002), "held"),
        ((0.02, 0.021, 0.02, 0.021), "missed"),
        ((-0.02, 0.03, -0.02, 0.03), "not decided"),
    ],
)
def test_a_target_within_the_interval_is_not_decided(
    losses: tuple[float, ...], verdict: str
) -> None:
    found = workload.effect([(1 - loss, 1.0) for loss in losses])
    assert found.verdict == verdict
    assert found.mean == pytest.approx(fmean(losses))


def test_nvidia_smi_is_not_asked_in_a_loop_in_wsl2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.release", lambda: "6.6.87.2-microsoft-standard-WSL2")
    asked = tmp_path / "asked"
    smi = f"#!/bin/sh\necho 2475 | tee '{asked}'\n"
    monkeypatch.setenv("PATH", with_tools(tmp_path, {"nvidia-smi": smi}))
    with clocks.followed("GPU") as seen:
        assert seen.between(0, math.inf) == {}
    assert not asked.exists()
