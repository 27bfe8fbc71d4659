from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from gpud.agent.state import files
from gpud.agent.state.board import Board
from gpud.agent.state.snapshot import MachineState, Snapshot
from gpud.core import wire
from gpud.core.clock import Instant
from gpud.core.health import Level
from gpud.core.report import STALE_AFTER_S, AgentReport, DockerdReport, ProcessRef, RootReport

if TYPE_CHECKING:
    from collections.abc import Callable

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


@pytest.mark.parametrize("age_s", [1.0, STALE_AFTER_S, -0.01])
def test_a_fresh_beat_is_heard_whatever_the_wall_clock_says(path: Path, age_s: float) -> None:
    report = structs.replace(REPORT, beat_s=NOW.mono_s - age_s)
    path.write_bytes(wire.encode(report))
    assert files.read_root_status(path, NOW)[0] == report


@pytest.mark.parametrize("age_s", [STALE_AFTER_S + 0.1, 90_000.0, -5.0])
def test_a_beat_too_old_or_of_another_boot_is_silence(path: Path, age_s: float) -> None:
    path.write_bytes(wire.encode(structs.replace(REPORT, beat_s=NOW.mono_s - age_s)))
    assert "the supervisor is gone" in silence(path)


@pytest.mark.parametrize("text", [b"", b"{}", b"garbage", b"[" * 100_000, b" " * 2_000_000])
def test_what_is_not_a_report_is_silence_with_its_reason(path: Path, text: bytes) -> None:
    path.write_bytes(text)
    assert "not a RootReport" in silence(path)


def linked(path: Path) -> None:
    path.rename(path.with_name("real.json"))
    path.symlink_to("real.json")


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Path.unlink, "no supervisor runs"),
        (linked, "cannot read"),
        (piped, "not a file of root's"),
        pytest.param(
            lambda path: os.chown(path, 65534, 65534),
            "not a file of root's",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="giving a file away needs root"),
        ),
    ],
)
def test_what_is_not_roots_own_file_is_silence(
    path: Path, change: Callable[[Path], None], words: str
) -> None:
    change(path)
    assert words in silence(path)


def test_a_beat_alone_is_published_and_no_news(path: Path) -> None:
    board = Board(Snapshot(MachineState(version="1", started_s=0.0)))

    def publish(report: RootReport) -> bool:
        board.changed.clear()
        path.with_suffix(".new").write_bytes(wire.encode(report))
        path.with_suffix(".new").rename(path)
        files.publish_root_status(path, board, NOW)
        assert board.read().root.report == report
        return board.changed.is_set()

    assert publish(REPORT)
    later = structs.replace(REPORT, written_s=1.0, beat_s=NOW.mono_s)
    assert not publish(later)
    assert not publish(structs.replace(later, dockerd=structs.replace(later.dockerd, ping_s=0.1)))
    assert publish(structs.replace(later, dockerd=structs.replace(later.dockerd, up=False)))
    assert board.read().health["dockerd"].level is Level.FAILED
    for late_s in (60.0, 62.0):
        board.changed.clear()
        files.publish_root_status(path, board, Instant(NOW.wall_s, NOW.mono_s + late_s))
        assert board.read().health["root"].reason == "silent"
    assert not board.changed.is_set()
    path.unlink()
    files.publish_root_status(path, board, NOW)
    assert board.read().health["root"].reason == "silent"
