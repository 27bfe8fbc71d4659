"""Blocking waits, queries, small graphs and memory latency; C is beside it in tests/gpu_check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gpud.child.probes import memory_latency, sync
from gpud.core.sample import Reason
from tests.child.running import scripted

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("script", "without"),
    [
        ("", "cuGraphLaunch"),
        ("fail cuGraphAddKernelNode_v2 801", ""),
        ("fail cuGraphCreate 901", ""),
    ],
)
def test_a_driver_without_graphs_lacks_the_small_one_alone(
    tmp_path: Path, script: str, without: str
) -> None:
    ended = scripted(tmp_path, "sync", script, without.split())
    assert set(ended.samples) == {"blocking", "query"}
    assert [gap["mode"] for gap in ended.document["missing"]] == ["graph_10"]


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


def test_a_small_graph_that_may_hang_is_left_out(tmp_path: Path) -> None:
    script = "fail cuGraphCreate 999"  # it is not tried
    ended = scripted(tmp_path, "sync", script, left_out={"graph_10": "known fault"})
    (missing,) = ended.document["missing"]
    assert missing == {"mode": "graph_10", "reason": "left_out", "detail": "known fault"}


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


def test_a_chain_that_leads_elsewhere_publishes_nothing(tmp_path: Path) -> None:
    failure = scripted(tmp_path, "memory_latency", "corrupt gpud_chase").failure
    assert failure["reason"] == Reason.VERIFICATION_FAILED


def test_memory_latency_takes_half_of_the_free_memory_at_most(tmp_path: Path) -> None:
    ended = scripted(tmp_path, "memory_latency", f"device.0.free_mem {32 << 20}")
    assert list(ended.samples) == [memory_latency.L2]
    (missing,) = ended.document["missing"]
    assert (missing["mode"], missing["reason"]) == (memory_latency.DRAM, Reason.OUT_OF_MEMORY)


def test_a_card_without_room_for_either_ring_is_the_reason(tmp_path: Path) -> None:
    failure = scripted(tmp_path, "memory_latency", f"device.0.free_mem {32 << 10}").failure
    assert failure["reason"] == Reason.OUT_OF_MEMORY
