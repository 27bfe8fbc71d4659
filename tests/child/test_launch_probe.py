"""The launch probe: what each mode contains, refused launches and graphs, and the tail."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gpud.child.probes import launch
from gpud.core.sample import Reason
from tests.child.running import INTERPRETED, REAL, scripted

if TYPE_CHECKING:
    from pathlib import Path


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


@pytest.mark.parametrize(
    ("script", "without", "reason"),
    [
        ("", "cuGraphLaunch", Reason.UNSUPPORTED),
        ("fail cuGraphAddKernelNode_v2 801", "", Reason.UNSUPPORTED),
        ("fail cuGraphLaunch 719 3", "", Reason.LAUNCH_FAILED),
        ("fail cuGraphInstantiateWithFlags 999", "", Reason.CUDA_ERROR),
        ("fail cuGraphCreate 901", "", Reason.GRAPH_FAILED),
    ],
)
def test_a_driver_without_graphs_lacks_that_mode_and_no_other(
    tmp_path: Path, script: str, without: str, reason: Reason
) -> None:
    ended = scripted(tmp_path, "launch", script, without.split())
    assert set(launch.SPEC.modes) - set(ended.samples) == {"graph"}
    (missing,) = ended.document["missing"]
    assert (missing["mode"], missing["reason"]) == ("graph", reason)
    assert (without or script.split()[1]) in missing["detail"]


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
