from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from gpud.agent.state import files
from gpud.core import wire
from gpud.core.clock import Instant
from gpud.core.report import STALE_AFTER_S, AgentReport, DockerdReport, ProcessRef, RootReport

if TYPE_CHECKING:
    from pathlib import Path

NOW = Instant(wall_s=5e9, mono_s=1000.0)
REPORT = RootReport(
    gpud_version="1",
    process=ProcessRef(1, 1),
    privileged=True,
    boot_id="b",
    started_s=0.0,
    written_s=0.0,  # the wall clock may say anything: only the beat counts
    beat_s=NOW.mono_s - 1,
    dockerd=DockerdReport(state="up", policy="auto", up=True),
    agent=AgentReport(state="running"),
)


def silence(path: Path) -> str:
    report, silent = files.read_root_status(path, NOW)
    assert report is None
    assert silent is not None
    return silent


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "root.json"
    place.write_bytes(wire.encode(REPORT))
    return place


def test_a_fresh_report_is_heard_whatever_the_wall_clock_says(path: Path) -> None:
    assert files.read_root_status(path, NOW)[0] == REPORT


@pytest.mark.parametrize("age_s", [STALE_AFTER_S + 0.1, 90_000.0, -5.0])
def test_a_beat_too_old_or_of_another_boot_is_silence(path: Path, age_s: float) -> None:
    path.write_bytes(wire.encode(structs.replace(REPORT, beat_s=NOW.mono_s - age_s)))
    assert "the supervisor is gone" in silence(path)


def test_a_beat_at_the_very_limit_is_still_heard(path: Path) -> None:
    path.write_bytes(wire.encode(structs.replace(REPORT, beat_s=NOW.mono_s - STALE_AFTER_S)))
    assert files.read_root_status(path, NOW)[0] is not None


def test_a_beat_written_after_the_look_at_the_clock_is_heard(path: Path) -> None:
    path.write_bytes(wire.encode(structs.replace(REPORT, beat_s=NOW.mono_s + 0.01)))
    assert files.read_root_status(path, NOW)[0] is not None


def test_a_missing_file_says_that_no_supervisor_runs(tmp_path: Path) -> None:
    assert "no supervisor runs" in silence(tmp_path / "root.json")


@pytest.mark.parametrize("text", [b"", b"{}", b"garbage", b"[" * 100_000, b" " * 2_000_000])
def test_what_is_not_a_report_is_silence_with_its_reason(path: Path, text: bytes) -> None:
    path.write_bytes(text)
    assert "not a RootReport" in silence(path)


def test_a_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(path)
    assert "cannot read" in silence(link)


def test_a_fifo_delays_nothing_and_is_refused(tmp_path: Path) -> None:
    fifo = tmp_path / "root.json"
    os.mkfifo(fifo)
    assert "not a file of root's" in silence(fifo)


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file away needs root")
def test_a_file_of_somebody_else_is_refused(path: Path) -> None:
    os.chown(path, 65534, 65534)
    assert "not a file of root's" in silence(path)
