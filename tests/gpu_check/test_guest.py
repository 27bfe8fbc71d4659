"""The mode --guest beside the stand-in: short slices, few contexts, the same path as on a GPU."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import threading
from statistics import fmean
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from deploy.gpu_check import clocks, guest, main, spread, workload
from deploy.gpu_check.contexts import Contexts
from deploy.gpu_check.processes import Reference, Refused, Run
from tests.child.running import GPU
from tests.gpu_check.building import ROOT
from tests.gpu_check.test_command import SCRIPT, SMI, using, with_tools
from tests.standins.build import build_libcuda
from tests.waiting import until

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterator
    from pathlib import Path

ROOM = "device.0.free_mem 4294967296\n"
"""GPU memory beside which gpud runs its probes."""
METRICS = """\
# TYPE gpud_probe_runs_total counter
gpud_probe_runs_total{probe="launch"} 3.0
gpud_probe_runs_total{probe="triad"} 1.0
gpud_probe_skips_total{probe="triad",reason="gpu_busy"} 2.0
gpud_probe_skips_total{probe="matmul",reason="gpu_busy"} 5.0
gpud_probe_flagged_runs_total{probe="launch",flag="busy"} 1.0
gpud_own_gpu_seconds_total 0.25
gpud_own_vram_peak_bytes 4096
gpud_up 1
"""


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


def test_an_agent_that_leaves_the_gpu_alone_is_no_measurement(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here for want of free memory."""
    monkeypatch.setattr(workload, "START_LIMIT_S", 5.0)
    code, document, _ = studied(folder, "--only", "workload", "--seconds", "1")
    assert code == 1
    not_run = document["parts"]["workload"]["not_run"]
    assert not_run.startswith("gpud's agent does not use the GPU: {")


def test_without_the_agents_packages_the_day_is_not_run_and_says_how(tmp_path: Path) -> None:
    library = build_libcuda(tmp_path, SCRIPT)
    command = [sys.executable, "-S", str(ROOT / "deploy" / "gpu-check"), "--guest"]
    command += ["--only", "workload", "--library", str(library), "--out", str(tmp_path / "out")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
    assert ended.returncode == 1
    assert "Not run: gpud's agent needs its packages: ModuleNotFoundError" in ended.stdout
    assert "-r deploy/requirements.txt" in ended.stdout


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


def test_contexts_are_not_counted_beside_another_process(folder: Path) -> None:
    (folder / "bin" / "pids").write_text("4242\n")
    code, document, _ = studied(folder, "--only", "contexts")
    assert code == 1
    assert document["parts"]["contexts"] == {"not_run": "another process uses the GPU: 4242"}


def test_contexts_are_not_counted_in_wsl2(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.release", lambda: "6.6.87.2-microsoft-standard-WSL2")
    code, document, _ = studied(folder, "--only", "contexts")
    assert code == 1
    assert "WSL2" in document["parts"]["contexts"]["not_run"]


def test_a_part_that_does_not_exist_is_named(folder: Path) -> None:
    with pytest.raises(Refused, match="--only launch: --guest has these parts: spread, changes"):
        studied(folder, "--only", "launch")


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


def test_the_interpreter_of_the_agent_writes_nothing_into_the_checkout(tmp_path: Path) -> None:
    python = workload.interpreter(tmp_path)
    words = "import sys, gpud.agent.compose; print(sys.pycache_prefix)"
    printed = subprocess.run(
        [python, "-I", "-c", words], capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == str(tmp_path / "bytecode")
    assert list(tmp_path.glob("bytecode/**/compose*.pyc"))


def test_a_metric_has_moved_where_its_ranges_do_not_touch() -> None:
    usual = {"a": [1.0, 1.1], "b": [1.0, 1.1], "c": [1.0, 1.001]}
    changed = {"a": [2.0, 2.2], "b": [1.05, 2.0], "c": [1.002, 1.003], "d": [1.0, 1.0]}
    assert spread.moved(usual, changed) == {"a": pytest.approx(2)}


@pytest.mark.parametrize("number", main.ENDING)
def test_whoever_ends_it_beside_a_workload_finds_nothing_left(
    tmp_path: Path, number: signal.Signals
) -> None:
    path = with_tools(tmp_path, {"nvidia-smi": SMI})
    ledger, temporary = tmp_path / "ledger", tmp_path / "temporary"
    temporary.mkdir()
    library = build_libcuda(tmp_path, f"{SCRIPT}{ROOM}ledger {ledger}\n")
    command = [sys.executable, str(ROOT / "deploy" / "gpu-check"), "--guest", "--only", "workload"]
    command += ["--library", str(library), "--out", str(tmp_path / "out")]
    environment = {"PATH": path, "HOME": str(tmp_path), "TMPDIR": str(temporary)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        while "slice 1 of 20, with gpud" not in process.stderr.readline():
            assert process.poll() is None
        until(lambda: len(using(library)) > 1, "the agent's child beside the workload")
        process.send_signal(number)
        words = process.stderr.read()
    assert process.returncode == 128 + number
    assert "Traceback" not in words
    assert using(library) == using(temporary, "cmdline") == []
    assert using(tmp_path / "bin" / "nvidia-smi", "cmdline") == []
    for line in ledger.read_text().splitlines():
        left = json.loads(line)
        assert (left["vram_left_bytes"], left["pinned_left_bytes"]) == (0, 0)
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / "out").exists()


def test_an_interruption_is_not_lost_in_a_workload_that_was_wrong(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho kernel\necho 1 1\ncat\nexit 1\n")
    program.chmod(0o755)
    child = SimpleNamespace(run=lambda *_: Run({}, {}, None, {"n": 128}))
    own = Reference(program, (), "gpud_", Contexts(print))
    there: Any = SimpleNamespace(child=child, specs={"matmul": {}}, uuid=GPU, own=own, cublas=None)

    def multiply(end: Callable[[], object]) -> None:
        with workload.prepared(there, 1) as running:
            running.start()
            end()

    with pytest.raises(SystemExit):
        multiply(sys.exit)
    with pytest.raises(Refused, match="ended with 1"):
        multiply(lambda: None)


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


def test_a_pace_counts_runs_on_the_gpu_against_those_of_the_same_time() -> None:
    specs = {
        "launch": {"pace": "small", "every": 1},
        "event": {"pace": "small", "every": 5},
        "triad": {"pace": "large", "every": 1},
    }
    runs = {"launch": 900, "event": 180, "triad": 60, "cpu_call": 5000}
    did = {f"gpud_probe_runs_total {name}": float(count) for name, count in runs.items()}
    assert workload.pace(did, specs, 900, wsl=False) == pytest.approx(1140 / 19)
    assert workload.pace(did, specs, 600, wsl=True) == pytest.approx(1140 / 2.2)


def test_the_counters_of_gpud_are_added_up() -> None:
    assert workload.counters(METRICS) == {
        "gpud_probe_runs_total launch": 3,
        "gpud_probe_runs_total triad": 1,
        "gpud_probe_skips_total gpu_busy": 7,
        "gpud_probe_flagged_runs_total busy": 1,
        "gpud_own_gpu_seconds_total": 0.25,
        "gpud_own_vram_peak_bytes": 4096,
    }
    assert workload.counters("") == {}


def test_the_highest_clock_of_a_stretch_counts() -> None:
    seen = clocks.Clocks()
    seen._samples = [(1.0, {"sm_mhz": 210.0}), (2.0, {"sm_mhz": 2475.0}), (9.0, {"watts": 9.0})]
    assert seen.between(0, 3) == {"sm_mhz": 2475}
    assert seen.between(4, 5) == {}


def test_runs_begin_when_nvidia_smi_has_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = tmp_path / "answers"
    os.mkfifo(answers)
    smi = f"#!/bin/sh\nexec cat '{answers}'\n"
    monkeypatch.setenv("PATH", with_tools(tmp_path, {"nvidia-smi": smi}))
    late = threading.Thread(target=answers.write_text, args=("2475, 10501, 61, [N/A], 812\n",))
    late.start()
    with clocks.followed("GPU") as seen:
        assert seen.between(0, math.inf)["sm_mhz"] == 2475
    late.join()


@pytest.mark.parametrize("words", ["exit 9", "exec sleep 600"])
def test_an_nvidia_smi_without_an_answer_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setattr(clocks, "FIRST_S", 30.0 if "exit" in words else 0.1)
    path = with_tools(tmp_path, {"nvidia-smi": f"#!/bin/sh\n{words}\n"})
    monkeypatch.setenv("PATH", path)
    with clocks.followed("GPU") as seen:
        assert seen.between(0, math.inf) == {}
        assert seen.begun.is_set() == ("exit" in words)
    assert using(tmp_path / "bin" / "nvidia-smi", "cmdline") == []


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


def test_a_day_is_compressed_but_no_round_comes_sooner_than_the_settings_allow() -> None:
    usual = workload.compressed("", 600, wsl=False)["schedule"]
    assert math.isclose(usual["large_interval_s"], 6.25)
    assert math.isclose(usual["small_interval_s"], 60 / 144)
    assert workload.compressed("", 60, wsl=False)["schedule"]["small_interval_s"] == 0.2
    wsl = workload.compressed("", 600, wsl=True)["schedule"]
    assert wsl["small_interval_s"] == wsl["large_interval_s"] == pytest.approx(600 / 144)
