"""What people are told of a GPU that hangs and of a bus that loses messages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from gpud.agent.measure.breaker import Standing, State
from gpud.core.health import Health, Level
from gpud.core.report import KernelLogReport, KernelTrouble, ProcessRef
from tests import snapshots
from tests.events import breaker_changed, root_read

if TYPE_CHECKING:
    from gpud.agent.state.snapshot import Snapshot

STUCK = Standing(
    State.STUCK,
    since_s=1000.0,
    hangs=2,
    process=ProcessRef(4711, 1),
    what="launch on GPU-1",
    detail="launch on GPU-1: process 4711 does not go away (state D)",
    fix="wsl --shutdown",
)
OPEN = replace(STUCK, state=State.OPEN, process=None, retry_s=1600.0, detail="no answer")
LOST = KernelTrouble("message_lost", "dxgvmb_send_create_process: create_process failed -75", 990.0)
COUNTS = {"noise": 21, "message_lost": 0, "not_resident": 0, "field_spanning": 1, "unknown": 0}


def with_kernel_log(log: KernelLogReport | None, snapshot: Snapshot | None = None) -> Snapshot:
    report = structs.replace(snapshots.ROOT, kernel_log=log)
    return root_read(report, None, 1001.0)(snapshot or snapshots.bare())


def gpu(standing: Standing, snapshot: Snapshot | None = None) -> Health:
    return breaker_changed(standing, 1001.0)(snapshot or snapshots.bare()).health["gpu"]


def test_a_stuck_one_says_which_process_and_that_nothing_starts() -> None:
    health = gpu(STUCK)
    assert (health.level, health.reason, health.fix) == (Level.FAILED, "stuck", "wsl --shutdown")
    assert "process 4711" in (health.detail or "")
    assert "2 times in a row" in (health.detail or "")
    assert "no GPU work starts" in (health.detail or "")


def test_an_open_one_says_when_it_is_tried_again() -> None:
    health = gpu(OPEN)
    assert (health.level, health.reason) == (Level.FAILED, "hung")
    assert "tried again 10 min after that" in (health.detail or "")


def test_a_half_open_one_is_on_its_way() -> None:
    free = "the GPU is free again"
    health = gpu(Standing(State.HALF_OPEN, 1000.0, 1, what="launch on GPU-1", detail=free))
    assert (health.level, health.reason, health.fix) == (Level.DEGRADED, "tried_again", None)
    assert health.detail == "the GPU is free again; launch is tried in the next round"


def test_what_the_kernel_says_is_evidence_for_a_hang_whichever_comes_first() -> None:
    log = KernelLogReport(counts=COUNTS, last=LOST, recent={"message_lost": 1})
    first = gpu(STUCK, with_kernel_log(log))
    second = with_kernel_log(log, breaker_changed(STUCK, 1000.0)(snapshots.bare())).health["gpu"]
    assert first.detail == second.detail
    assert "the kernel's log: dxgvmb_send_create_process" in (first.detail or "")


def test_what_the_kernel_said_long_before_is_no_evidence() -> None:
    log = KernelLogReport(counts=COUNTS, last=structs.replace(LOST, at_s=10.0))
    assert "kernel" not in (gpu(STUCK, with_kernel_log(log)).detail or "")


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
    log = KernelLogReport(counts=COUNTS, last=LOST if recent else None, recent=recent)
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
