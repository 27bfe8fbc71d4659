"""What root reports, its silence, and what people are told of containers, hangs and the bus."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from gpud.agent.measure.breaker import State
from gpud.agent.state import files
from gpud.agent.state.board import Board
from gpud.agent.state.containers import ContainerVerdict
from gpud.agent.state.snapshot import MachineState, ProbeKey, Snapshot
from gpud.core import wire
from gpud.core.clock import Instant
from gpud.core.health import Health, Level
from gpud.core.report import (
    STALE_AFTER_S,
    ContainerFailure,
    ContainerRun,
    ContainersReport,
    KernelLogReport,
    KernelTrouble,
    ProcessRef,
    RootReport,
    ToolkitReport,
    ToolkitState,
)
from gpud.core.sample import Backend, Failure, Inventory, Reason, RunReport, Unit
from gpud.document.machine import BreakerReport
from tests import snapshots
from tests.events import Event, breaker_changed, folded, inventory_taken, root_read, run_finished

if TYPE_CHECKING:
    from collections.abc import Callable


NOW = Instant(wall_s=5e9, mono_s=1000.0)
PLAIN_REPORT = structs.replace(
    snapshots.ROOT,
    written_s=0.0,  # the wall clock may say anything: only the beat counts
    beat_s=NOW.mono_s - 1,
    containers=None,
    kernel_log=None,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "root.json"
    place.write_bytes(wire.encode(PLAIN_REPORT))
    return place


def holding(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def beating(age_s: float) -> Callable[[Path], object]:
    return holding(wire.encode(structs.replace(PLAIN_REPORT, beat_s=NOW.mono_s - age_s)))


@pytest.mark.parametrize("age_s", [1.0, STALE_AFTER_S, -0.01])
def test_a_fresh_beat_is_heard_whatever_the_wall_clock_says(path: Path, age_s: float) -> None:
    beating(age_s)(path)
    assert files.read_root_status(path, NOW)[1] is None


def linked(path: Path) -> None:
    path.rename(path.with_name("real.json"))
    path.symlink_to("real.json")


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


NO_REPORTS = (b"", b"{}", b"garbage", b"[" * 100_000, b" " * 2_000_000)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="giving a file away needs root")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (beating(STALE_AFTER_S + 0.1), "the supervisor is gone"),
        (beating(90_000.0), "the supervisor is gone"),
        (beating(-5.0), "the supervisor is gone"),  # of another boot
        *((holding(content), "not a RootReport") for content in NO_REPORTS),
        (Path.unlink, "no supervisor runs"),
        (linked, "cannot read"),
        (piped, "not a file of root's"),
        pytest.param(
            lambda path: os.chown(path, 65534, 65534), "not a file of root's", marks=needs_root
        ),
    ],
)
def test_what_is_no_fresh_report_in_roots_own_file_is_silence_with_its_reason(
    path: Path, change: Callable[[Path], object], words: str
) -> None:
    change(path)
    report, silent = files.read_root_status(path, NOW)
    assert report is None
    assert words in (silent or "")


def test_a_beat_alone_is_published_and_no_news(path: Path) -> None:
    board = Board(Snapshot(MachineState(version="1", started_s=0.0)))

    def publish(report: RootReport) -> bool:
        board.changed.clear()
        path.with_suffix(".new").write_bytes(wire.encode(report))
        path.with_suffix(".new").rename(path)
        files.publish_root_status(path, board, NOW)
        assert board.read().root.report == report
        return board.changed.is_set()

    assert publish(PLAIN_REPORT)
    later = structs.replace(PLAIN_REPORT, written_s=1.0, beat_s=NOW.mono_s)
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


KEY = ProbeKey("container_nbody", 0)
BROKEN = ContainerFailure(
    Reason.TOOLKIT_MISSING, "could not select device driver", advice="install it"
)
assert snapshots.ROOT.containers is not None
REPORT: ContainersReport = snapshots.ROOT.containers
assert REPORT.run is not None
RUN: ContainerRun = REPORT.run


def after_report(snapshot: Snapshot, beat_s: float = 99.0, **changes: Any) -> Snapshot:
    root = structs.replace(
        snapshots.ROOT, beat_s=beat_s, containers=structs.replace(REPORT, **changes)
    )
    return root_read(root, None, 5.0)(snapshot)


def nbody(mono_s: float, failure: Failure | None = None, rate: float = 2e13) -> Event:
    sample = snapshots.sample("nbody", Unit.FLOPS_PER_SECOND, rate)
    samples = (sample,) if failure is None else ()
    report = RunReport("nbody", Backend.CUDA, snapshots.DEVICE, samples, failure=failure)
    return run_finished(report, snapshots.DEVICE.uuid, 5.0, mono_s)


@pytest.mark.parametrize("root", [None, structs.replace(snapshots.ROOT, containers=None)])
def test_a_root_that_reports_no_containers_takes_the_figure_and_the_counts_with_it(
    root: RootReport | None,
) -> None:
    after = root_read(root, None if root else "gone", 5.0)(snapshots.full())
    assert KEY not in after.measure.probes
    assert "container_nbody" not in after.measure.runs
    assert not [
        key
        for key in (*after.measure.failures, *after.measure.skips)
        if key[0] == "container_nbody"
    ]
    assert "containers" not in after.health
    assert after.root.comparison is None


def test_what_was_found_within_the_hour_holds_until_the_next_container_run() -> None:
    paired = after_report(snapshots.full())
    assert paired.root.comparison is not None
    assert paired.root.comparison.ratio == pytest.approx(0.8)
    later = after_report(nbody(9000.0, rate=1e12)(paired), beat_s=9001.0)
    assert later.root.comparison == paired.root.comparison
    fresh = structs.replace(RUN, finished_mono_s=9010.0)
    assert after_report(later, beat_s=9011.0, run=fresh).root.comparison != paired.root.comparison


FAILED = structs.replace(RUN, figure=None, failure=BROKEN)
DRIVER = Failure(Reason.DEVICE_LOST, "gone")
FOUND = inventory_taken(Inventory((snapshots.DEVICE,)), 1.0)
LOST_CUDA = inventory_taken(Inventory(failure=DRIVER), 1.0)


@pytest.mark.parametrize(
    ("run", "inside", "verdict", "level", "reason"),
    [
        (RUN, nbody(60.0), ContainerVerdict.AGREES, Level.OK, None),
        (RUN, nbody(3650.0, rate=1e12), ContainerVerdict.AGREES, Level.OK, None),
        (
            FAILED,
            nbody(60.0),
            ContainerVerdict.ONLY_CONTAINER_FAILS,
            Level.FAILED,
            "toolkit_missing",
        ),
        (
            FAILED,
            nbody(60.0, DRIVER),
            ContainerVerdict.BOTH_FAIL,
            Level.DEGRADED,
            "toolkit_missing",
        ),
        (
            RUN,
            nbody(60.0, DRIVER),
            ContainerVerdict.ONLY_IN_PROCESS_FAILS,
            Level.DEGRADED,
            "only_in_process_fails",
        ),
        (FAILED, LOST_CUDA, ContainerVerdict.BOTH_FAIL, Level.DEGRADED, "toolkit_missing"),
        (RUN, FOUND, ContainerVerdict.NOT_COMPARABLE, Level.OK, None),
        (FAILED, FOUND, ContainerVerdict.NOT_COMPARABLE, Level.FAILED, "toolkit_missing"),
        (RUN, nbody(3651.0), ContainerVerdict.NOT_COMPARABLE, Level.OK, None),
        (RUN, nbody(-3551.0), ContainerVerdict.NOT_COMPARABLE, Level.OK, None),
        (
            FAILED,
            nbody(3651.0, DRIVER),
            ContainerVerdict.NOT_COMPARABLE,
            Level.FAILED,
            "toolkit_missing",
        ),
    ],
)
def test_a_toolkits_fault_is_told_from_a_drivers(
    run: ContainerRun, inside: Event, verdict: ContainerVerdict, level: Level, reason: str | None
) -> None:
    after = after_report(folded(snapshots.bare(), FOUND, inside), run=run)
    assert after.root.comparison is not None
    assert after.root.comparison.verdict is verdict
    health = after.health["containers"]
    assert (health.level, health.reason) == (level, reason)
    if verdict is ContainerVerdict.ONLY_CONTAINER_FAILS:
        assert "look at the toolkit" in (health.detail or "")
        assert health.fix == "install it"
        assert after.measure.probes[KEY].report.samples == ()
        assert after.measure.probes[KEY].last_success_s == REPORT.last_success_s


@pytest.mark.parametrize(
    ("toolkit", "level", "reason"),
    [
        (ToolkitReport(ToolkitState.RUNTIME), Level.OK, None),
        (ToolkitReport(ToolkitState.NONE), Level.OK, "not_set_up"),
        (ToolkitReport(ToolkitState.BROKEN, "cdi_off"), Level.DEGRADED, "toolkit_cdi_off"),
    ],
)
def test_before_a_container_ran_the_toolkit_is_the_health_of_gpu_containers(
    toolkit: ToolkitReport, level: Level, reason: str | None
) -> None:
    health = after_report(FOUND(snapshots.bare()), run=None, toolkit=toolkit).health["containers"]
    assert (health.level, health.reason) == (level, reason)


def test_a_fault_holds_while_a_new_dockerd_was_not_asked_yet_and_ends_with_the_image() -> None:
    failed = after_report(snapshots.full(), run=FAILED)
    unknown, gone = (
        after_report(failed, run=FAILED, image_present=present) for present in (None, False)
    )
    assert unknown.health["containers"] == failed.health["containers"]
    assert gone.health["containers"].level is Level.OK


STUCK = BreakerReport(
    State.STUCK,
    since_s=1000.0,
    hangs=2,
    process=ProcessRef(4711, 1),
    what="launch on GPU-1",
    detail="launch on GPU-1: process 4711 does not go away (state D)",
    fix="wsl --shutdown",
)
OPEN = structs.replace(STUCK, state=State.OPEN, process=None, retry_s=1600.0, detail="no answer")
LOST_MESSAGE = KernelTrouble(
    "message_lost", "dxgvmb_send_create_process: create_process failed -75", 990.0
)
COUNTS = {"noise": 21, "message_lost": 0, "not_resident": 0, "field_spanning": 1, "unknown": 0}


def with_kernel_log(log: KernelLogReport | None, snapshot: Snapshot | None = None) -> Snapshot:
    report = structs.replace(snapshots.ROOT, kernel_log=log)
    return root_read(report, None, 1001.0)(snapshot or snapshots.bare())


def gpu(standing: BreakerReport, snapshot: Snapshot | None = None) -> Health:
    return breaker_changed(standing, 1001.0)(snapshot or snapshots.bare()).health["gpu"]


@pytest.mark.parametrize(
    ("standing", "level", "reason", "words"),
    [
        (
            STUCK,
            Level.FAILED,
            "stuck",
            ("process 4711", "2 times in a row", "no GPU work starts"),
        ),
        (OPEN, Level.FAILED, "hung", ("tried again 10 min after that",)),
        (
            BreakerReport(
                State.HALF_OPEN, 1000.0, 1, what="launch on GPU-1", detail="it is free again"
            ),
            Level.DEGRADED,
            "tried_again",
            ("it is free again; launch is tried in the next round",),
        ),
    ],
    ids=["stuck", "open", "half open"],
)
def test_a_gpu_that_hangs_says_why_and_what_comes_next(
    standing: BreakerReport, level: Level, reason: str, words: tuple[str, ...]
) -> None:
    health = gpu(standing)
    assert (health.level, health.reason, health.fix) == (level, reason, standing.fix)
    assert all(each in (health.detail or "") for each in words)


def test_what_the_kernel_says_is_evidence_for_a_hang_whichever_comes_first() -> None:
    log = KernelLogReport(counts=COUNTS, last=LOST_MESSAGE, recent={"message_lost": 1})
    first = gpu(STUCK, with_kernel_log(log))
    second = with_kernel_log(log, breaker_changed(STUCK, 1000.0)(snapshots.bare())).health["gpu"]
    assert first.detail == second.detail
    assert "the kernel's log: dxgvmb_send_create_process" in (first.detail or "")
    long_before = KernelLogReport(counts=COUNTS, last=structs.replace(LOST_MESSAGE, at_s=10.0))
    assert "kernel" not in (gpu(STUCK, with_kernel_log(long_before)).detail or "")


@pytest.mark.parametrize(
    ("recent", "level", "reason"),
    [
        ({}, Level.OK, None),
        ({"message_lost": 1}, Level.DEGRADED, "message_lost"),
        ({"message_lost": 3}, Level.DEGRADED, "message_lost"),
        ({"message_lost": 4}, Level.FAILED, "message_lost"),
        ({"message_lost": 1, "not_resident": 9}, Level.DEGRADED, "message_lost"),
        ({"not_resident": 9}, Level.DEGRADED, "not_resident"),
    ],
)
def test_the_bus_is_as_well_as_its_recent_lines(
    recent: dict[str, int], level: Level, reason: str | None
) -> None:
    log = KernelLogReport(counts=COUNTS, last=LOST_MESSAGE if recent else None, recent=recent)
    health = with_kernel_log(log).health["dxg"]
    assert (health.level, health.reason) == (level, reason)
    assert (health.fix is None) == (health.detail is None) == (level is Level.OK)


@pytest.mark.parametrize("log", [None, KernelLogReport(unreadable="refused", detail="no")])
def test_without_a_word_from_the_kernel_nothing_is_said_of_the_bus(
    log: KernelLogReport | None,
) -> None:
    before = with_kernel_log(KernelLogReport(counts=COUNTS))
    assert "dxg" in before.health
    assert "dxg" not in with_kernel_log(log, before).health
