"""Copies between two GPUs: known rates in virtual time, and what is found on a bad link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gpud.child.probes import peer_copy, small_peer_copy
from gpud.core.sample import Reason
from tests.child.running import OTHER_GPU, scripted
from tests.child.sweep import A_SMALL_GPU

if TYPE_CHECKING:
    from pathlib import Path

WITHIN = 0.02
"""Of the rate."""
RATES = {
    "to_peer": 2.2e10,
    "from_peer": 1.7e10,
    "staged_to_peer": 9e9,
    "staged_from_peer": 6e9,
}
"""Each mode another one, so that none can be taken for another."""
KEYS = {
    "to_peer": "peer_write",
    "from_peer": "peer_read",
    "staged_to_peer": "staged_write",
    "staged_from_peer": "staged_read",
}
LINK = "".join(f"{KEYS[mode]}_bytes_per_second {rate}\n" for mode, rate in RATES.items())
QUICK = "".join(f"staged_{way}_bytes_per_second 2e10\n" for way in ("write", "read"))
COSTS = "copy_ns 2500\nsync_ns 1000\npeer_gpu_ns 4000\nstaged_gpu_ns 15000\n"
STAGED = {"staged_to_peer", "staged_from_peer"}
SMALL_STAGED = {f"{mode}_4b" for mode in STAGED}
ACCESS = "cuDeviceCanAccessPeer", "cuCtxEnablePeerAccess", "cuCtxDisablePeerAccess"
MIB = 1 << 20


def test_large_copy_has_the_rate_of_its_link_in_each_mode(tmp_path: Path) -> None:
    """Beside a C program both probes are in tests/gpu_check/test_reference.py."""
    samples = scripted(tmp_path, "peer_copy", COSTS + LINK, budget_s=60).samples
    for mode, rate in RATES.items():
        assert samples[mode]["median"] == pytest.approx(rate, rel=WITHIN)


@pytest.mark.parametrize(
    ("probe", "staged"), [("peer_copy", STAGED), ("small_peer_copy", SMALL_STAGED)]
)
@pytest.mark.parametrize(
    ("script", "reason", "words"),
    [
        ("peer_access 0", Reason.UNSUPPORTED, "no access to each other's memory"),
        ("fail cuCtxEnablePeerAccess 711", Reason.UNSUPPORTED, "cuCtxEnablePeerAccess: "),
    ],
)
def test_without_access_direct_modes_are_missing_and_staged_ones_are_not(  # noqa: PLR0917
    tmp_path: Path, probe: str, staged: set[str], script: str, reason: Reason, words: str
) -> None:
    ended = scripted(tmp_path, probe, script, budget_s=60)
    assert set(ended.samples) == staged
    assert ended.document["conditions"]["peer_access"] is False
    for gap in ended.document["missing"]:
        assert not gap["mode"].startswith("staged_")
        assert (gap["reason"], words in gap["detail"]) == (reason, True)
    assert len(ended.document["missing"]) == 2


@pytest.mark.parametrize("way", ["peer_copy", "staged_copy"])
@pytest.mark.parametrize("probe", ["peer_copy", "small_peer_copy"])
def test_one_wrong_byte_anywhere_publishes_nothing(tmp_path: Path, way: str, probe: str) -> None:
    script = f"{QUICK}{A_SMALL_GPU}"
    conditions = scripted(tmp_path, probe, script, budget_s=60).document["conditions"]
    size = conditions.get("copy_bytes", small_peer_copy.SIZE)
    for byte in (0, size * 5 // 8 + 1, size - 1):
        failure = scripted(tmp_path, probe, f"{script}corrupt {way} {byte}", budget_s=60).failure
        assert failure["reason"] == Reason.VERIFICATION_FAILED
        assert f"did not arrive on {OTHER_GPU}" in failure["detail"]


@pytest.mark.parametrize("probe", ["peer_copy", "small_peer_copy"])
def test_second_context_and_access_to_it_end_with_the_run(tmp_path: Path, probe: str) -> None:
    log = tmp_path / "calls"
    conditions = scripted(tmp_path, probe, f"log {log}", budget_s=60).document["conditions"]
    assert conditions["peer"] == OTHER_GPU
    assert OTHER_GPU in conditions["note"]
    calls = log.read_text().split()
    assert [call for call in calls if call in ACCESS] == sorted(
        [*ACCESS, *ACCESS], key=ACCESS.index
    )
    assert calls.count("cuDevicePrimaryCtxRetain") == 2
    assert calls.count("cuDevicePrimaryCtxRelease_v2") == 2
    staged = calls[: calls.index("cuCtxEnablePeerAccess")]
    assert staged.count("cuMemcpyPeerAsync") > 10


@pytest.mark.parametrize("probe", ["peer_copy", "small_peer_copy"])
def test_memory_of_either_gpu_that_has_to_stay_free_stays_free(tmp_path: Path, probe: str) -> None:
    log = tmp_path / "calls"
    half = f"device.1.total_mem {1024 * MIB}\ndevice.1.free_mem {512 * MIB}\n"
    script = f"{half}log {log} cuMemAlloc_v2"
    for least_bytes, peer in ((64 << 30, False), (512 * MIB + 1, True), (-1, True)):
        limits: Any = {"vram_free_min_bytes": least_bytes}
        failure = scripted(tmp_path, probe, script, budget_s=60, **limits).failure
        assert failure["reason"] == (Reason.PEER_BUSY if peer else Reason.VRAM_SHORT)
        assert (OTHER_GPU in failure["detail"]) == peer, "whose memory it is"
    assert log.read_text().split() == ["cuMemAlloc_v2"], "of the first GPU, before the second one's"


@pytest.mark.parametrize("probe", ["peer_copy", "small_peer_copy"])
def test_run_without_its_second_gpu_says_so(tmp_path: Path, probe: str) -> None:
    failure = scripted(tmp_path, probe, peer=None).failure
    assert (failure["reason"], failure["detail"]) == (
        Reason.UNSUPPORTED,
        "this probe copies between two GPUs",
    )
    failure = scripted(tmp_path, probe, "fail cuDevicePrimaryCtxRetain 2 1").failure
    assert failure["reason"] == Reason.OUT_OF_MEMORY
    assert failure["detail"].startswith(f"the other GPU, {OTHER_GPU}: cuDevicePrimaryCtxRetain")
    failure = scripted(tmp_path, probe, "devices 1").failure
    assert (failure["reason"], OTHER_GPU in failure["detail"]) == (Reason.NO_DEVICE, True)


def test_slow_bus_makes_the_copy_smaller_and_not_the_run_longer(tmp_path: Path) -> None:
    slow = "".join(f"{key}_bytes_per_second 3e9\n" for key in KEYS.values())
    slow += "host_copy_bytes_per_second 1e9"
    ended = scripted(tmp_path, "peer_copy", slow, budget_s=60)
    assert [sample["median"] for sample in ended.samples.values()] == [pytest.approx(3e9, 0.01)] * 4
    assert ended.document["conditions"]["copy_bytes"] < peer_copy.LARGEST / 2
    assert ended.document["gpu_seconds"] < peer_copy.SPEC.gpu_budget_s
