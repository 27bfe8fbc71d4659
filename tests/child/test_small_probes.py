"""Small copies and events: each figure contains what it says, and wrong bytes publish nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpud.child.probes import event, small_copy
from gpud.core.sample import Reason
from tests.child.running import scripted

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


def test_a_copy_that_spoils_a_byte_has_no_figures(tmp_path: Path) -> None:
    failure = scripted(tmp_path, "small_copy", "corrupt copy").failure
    assert failure["reason"] == Reason.VERIFICATION_FAILED
    assert failure["detail"] == "4 bytes did not come back as they were sent"


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


def test_launches_that_are_not_made_spoil_the_events(tmp_path: Path) -> None:
    failure = scripted(tmp_path, "event", "corrupt gpud_count").failure
    assert failure["reason"] == Reason.VERIFICATION_FAILED
