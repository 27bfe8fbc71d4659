"""Small copies and events: each figure contains what it says, and wrong bytes publish nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from gpud.child.probes import event, launch, memory_latency, small_copy, sync
from gpud.child.warmup import RUN_S
from gpud.core.sample import Reason
from tests.child.running import INTERPRETED, REAL, scripted

if TYPE_CHECKING:
    from pathlib import Path


SLOW = "copy_ns 30000\nsync_ns 10000"


def test_a_copy_contains_its_wait_and_a_round_trip_two_copies(tmp_path: Path) -> None:
    ended = scripted(tmp_path, "small_copy", SLOW)
    assert ended.document["conditions"]["pinned"] is True
    assert set(ended.samples) == set(small_copy.SPEC.modes)
    for mode, sample in ended.samples.items():
        expected_s = 70e-6 if mode.startswith("round_trip") else 40e-6
        assert sample["median"] == pytest.approx(expected_s, rel=0.01)
        assert sample["n"] == 250
        assert 0 < sample["null_median"] < 10e-6


@pytest.mark.parametrize("script", ["pinned_limit 0", "fail cuMemHostAlloc 2", "pinned_limit 4096"])
def test_small_copies_without_pinned_memory_are_measured_and_say_so(
    tmp_path: Path, script: str
) -> None:
    ended = scripted(tmp_path, "small_copy", script)
    assert ended.document["conditions"]["pinned"] is False
    assert set(ended.samples) == set(small_copy.SPEC.modes)


def test_events_measure_the_gpu_and_recording_measures_the_host(tmp_path: Path) -> None:
    script = "event_gpu_ns 1700\nkernel_ns 2500\nevent_ns 20000\nlaunch_ns 20000"
    ended = scripted(tmp_path, "event", script)
    assert set(ended.samples) == set(event.SPEC.modes)
    assert ended.samples["pair"]["median"] == pytest.approx(1.7e-6, rel=0.01)
    assert ended.samples["kernel"]["median"] == pytest.approx(4.2e-6, rel=0.01)
    assert ended.samples["record"]["median"] == pytest.approx(20e-6)
    # Two records and a launch must be on their way before the load in front of them ends.
    assert ended.document["conditions"]["ahead_s"] >= 60e-6


def test_a_pair_that_takes_no_time_is_missing_and_no_zero(tmp_path: Path) -> None:
    ended = scripted(tmp_path, "event")
    assert set(ended.samples) == {"kernel", "record"}
    (missing,) = ended.document["missing"]
    assert (missing["mode"], missing["reason"]) == ("pair", Reason.UNSUPPORTED)


def test_every_launch_is_one_that_was_asked_for(tmp_path: Path) -> None:
    counts = {mode: sample["n"] for mode, sample in scripted(tmp_path, "launch").samples.items()}
    cold = {"submit_cold": 250, "roundtrip_cold": 50, "pipelined_cold": 5}
    warm = {"submit": 1000, "roundtrip": 250, "pipelined": 5, "graph": 5}
    assert counts == {**cold, **warm, "first_launch": 1}


def test_round_imports_nothing_that_takes_long() -> None:
    modules = "gpud.child.__main__, gpud.child.cuda_gpu, gpud.child.probes.launch"
    line = [sys.executable, "-I", "-c", f"import sys, {modules}; print(*sys.modules)"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert not {"typing", "dataclasses", "inspect", "pathlib"} & set(done.stdout.split())


@pytest.mark.parametrize("before", [0, 1, 251, 301, 1301, 1600, 2500, 3150, 4450])
def test_one_refused_launch_spoils_the_run_wherever_it_is(tmp_path: Path, before: int) -> None:
    """The driver then goes on as if nothing had been."""
    failure = scripted(tmp_path, "launch", f"fail cuLaunchKernel 700 {before} 1").failure
    assert (failure["function"], failure["code"]) == ("cuLaunchKernel", 700)


LEFT_OUT = {"graph_10": "known fault"}


@pytest.mark.parametrize(
    ("probe", "script", "without", "reason", "left_out"),
    [
        ("launch", "", "cuGraphLaunch", Reason.UNSUPPORTED, {}),
        ("launch", "fail cuGraphAddKernelNode_v2 801", "", Reason.UNSUPPORTED, {}),
        ("launch", "fail cuGraphLaunch 719 3", "", Reason.LAUNCH_FAILED, {}),
        ("launch", "fail cuGraphInstantiateWithFlags 999", "", Reason.CUDA_ERROR, {}),
        ("launch", "fail cuGraphCreate 901", "", Reason.GRAPH_FAILED, {}),
        ("sync", "", "cuGraphLaunch", Reason.UNSUPPORTED, {}),
        ("sync", "fail cuGraphAddKernelNode_v2 801", "", Reason.UNSUPPORTED, {}),
        ("sync", "fail cuGraphCreate 901", "", Reason.GRAPH_FAILED, {}),
        ("sync", "fail cuGraphCreate 999", "", "left_out", LEFT_OUT),  # it is not tried
    ],
)
def test_a_driver_without_graphs_lacks_that_mode_and_no_other(  # noqa: PLR0917
    tmp_path: Path, probe: str, script: str, without: str, reason: str, left_out: dict[str, str]
) -> None:
    ended = scripted(tmp_path, probe, script, without.split(), left_out=left_out)
    mode, modes = (
        ("graph", launch.SPEC.modes) if probe == "launch" else (sync.GRAPH, sync.SPEC.modes)
    )
    assert set(modes) - set(ended.samples) == {mode}
    (missing,) = ended.document["missing"]
    assert (missing["mode"], missing["reason"]) == (mode, reason)
    words = left_out.get(mode) or without or script.split()[1]
    assert words in missing["detail"]


def test_a_graph_costs_its_launch_and_its_nodes(tmp_path: Path) -> None:
    script = "launch_ns 5000\ngraph_launch_ns 60000\ngraph_node_ns 1000\nsync_ns 40000"
    samples = scripted(tmp_path, "launch", script).samples
    # The GPU begins when all of them are there, and takes 1.5 us for each.
    assert samples["graph"]["median"] == pytest.approx(1.5e-6 + 1.5e-6, rel=0.01)
    assert samples["pipelined"]["median"] == pytest.approx(5.2e-6, rel=0.01)


def test_what_comes_right_after_idle_is_a_series_of_its_own(tmp_path: Path) -> None:
    idle = 1 + 250 + 50 + 5 * 200
    script = f"launch_ns 2000\nidle_launches {idle}\nidle_launch_ns 8000\nsync_ns 8500"
    samples = scripted(tmp_path, "launch", script).samples
    for mode, usual_s, cold_s in (
        ("submit", 2e-6, 8e-6),
        ("roundtrip", 12e-6, 18e-6),
        ("pipelined", 2.05e-6, 8.05e-6),
    ):
        assert samples[mode]["median"] == pytest.approx(usual_s, rel=0.01), mode
        assert samples[f"{mode}_cold"]["median"] == pytest.approx(cold_s, rel=0.01), mode


def test_the_first_launch_begins_before_the_context(tmp_path: Path) -> None:
    script = "context_ns 70000000\nmodule_load_ns 60000000\nfirst_launch_ns 20000000"
    ended = scripted(tmp_path, "launch", script)
    conditions = ended.document["conditions"]
    parts = [conditions[name] for name in ("context_s", "module_load_s", "first_call_s")]
    assert parts == pytest.approx([70e-3, 60e-3, 20e-3], rel=1e-3)
    assert sum(parts) <= ended.document["duration_s"]
    assert ended.samples["first_launch"]["median"] == pytest.approx(sum(parts))
    assert ended.samples["first_launch"]["n"] == 1
    assert ended.samples["submit_cold"]["maximum"] < 20e-3


def test_a_warm_up_that_does_not_settle_is_said_and_the_run_is_measured(tmp_path: Path) -> None:
    waking = "warmup_kernels 1000000\nwarmup_factor 100000"
    ended = scripted(tmp_path, "launch", waking, clock=REAL)
    assert ended.document["conditions"]["settled"] is False
    assert set(ended.samples) == set(launch.SPEC.modes)


@pytest.mark.parametrize(
    ("script", "runs"),
    [
        ("", 3),
        ("flops_per_second 2e11", 3),
        ("flops_per_second 5e13", 3),
        ("warmup_kernels 6\nwarmup_factor 3", 7),
        ("warmup_kernels 9\nwarmup_factor 3", 10),
    ],
)
def test_a_warm_up_ends_once_it_runs_evenly_and_is_as_long_on_any_gpu(
    tmp_path: Path, script: str, runs: int
) -> None:
    ledger = tmp_path / "ledger"
    ended = scripted(tmp_path, "event", f"{script}\nledger {ledger}")
    conditions = ended.document["conditions"]
    assert (conditions["settled"], conditions["warm_up_runs"]) == (True, runs)
    longest_s = json.loads(ledger.read_text())["longest_kernel_s"]
    assert RUN_S / 4 <= longest_s <= RUN_S


def test_interruptions_of_the_interpreter_are_not_in_the_net_p99(tmp_path: Path) -> None:
    """One call in 49 is interrupted for 900 ns, a null call as often as a launch."""
    interrupted = f"{INTERPRETED} 49 900"
    samples = scripted(tmp_path, "launch", "launch_ns 2000", clock=interrupted).samples
    for mode in ("submit", "submit_cold"):
        assert samples[mode]["p99"] == pytest.approx(2.9e-6)
        assert samples[mode]["p99_net"] == pytest.approx(2e-6)
    assert {mode for mode, sample in samples.items() if sample["p99_net"] is not None} == {
        "submit",
        "submit_cold",
    }


def test_a_long_launch_has_no_net_p99(tmp_path: Path) -> None:
    samples = scripted(tmp_path, "launch", "launch_ns 12000").samples
    assert samples["submit"]["p99_net"] is None


@pytest.mark.parametrize(
    ("script", "job"),
    [("fail cuGraphCreate 901", {}), ("", {"left_out": {sync.GRAPH: "known fault"}})],
)
def test_a_small_graph_that_is_not_launched_takes_no_gpu_time(
    tmp_path: Path, script: str, job: dict[str, Any]
) -> None:
    kernel_s = 1e-5
    slow = f"kernel_ns {kernel_s * 1e9}\n"
    whole = scripted(tmp_path / "whole", "sync", slow).document
    part = scripted(tmp_path / "part", "sync", slow + script, **job).document
    graph_s = whole["gpu_seconds"] - part["gpu_seconds"]
    assert graph_s == pytest.approx(sync.NODES * sync.COUNT * kernel_s, rel=0.1)


@pytest.mark.parametrize(
    "rule",
    [
        "fail cuStreamQuery 719 0 1",
        "fail cuStreamQuery 700 149 1",
        "fail cuEventSynchronize 719 40 1",
        "fail cuLaunchKernel 700 200 1",
        "corrupt gpud_count",
    ],
)
def test_a_refused_call_or_a_lost_launch_spoils_the_run(tmp_path: Path, rule: str) -> None:
    assert scripted(tmp_path, "sync", rule).failure["reason"]


@pytest.mark.parametrize(
    ("cache", "dram", "l2"),
    [(1 << 18, 16, 1 / 16), (2 << 20, 16, 1 / 2), (72 << 20, 512, 1), (1 << 26, 256, 1)],
)
def test_one_ring_outgrows_the_cache_and_one_fits(
    tmp_path: Path, cache: int, dram: float, l2: float
) -> None:
    conditions = scripted(tmp_path, "memory_latency", f"device.0.l2_bytes {cache}").document[
        "conditions"
    ]
    assert (conditions["dram_bytes"], conditions["l2_bytes"]) == (dram * 2**20, l2 * 2**20)


def test_memory_latency_takes_half_of_the_free_memory_at_most(tmp_path: Path) -> None:
    ended = scripted(tmp_path, "memory_latency", f"device.0.free_mem {32 << 20}")
    assert list(ended.samples) == [memory_latency.L2]
    (missing,) = ended.document["missing"]
    assert (missing["mode"], missing["reason"]) == (memory_latency.DRAM, Reason.OUT_OF_MEMORY)
