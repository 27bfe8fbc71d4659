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
            Standing(State.HALF_OPEN, 1000.0, 1, what="launch on GPU-1", detail="it is free again"),
            Level.DEGRADED,
            "tried_again",
            ("it is free again; launch is tried in the next round",),
        ),
    ],
    ids=["stuck", "open", "half open"],
)
def test_a_gpu_that_hangs_says_why_and_what_comes_next(
    standing: Standing, level: Level, reason: str, words: tuple[str, ...]
) -> None:
    health = gpu(standing)
    assert (health.level, health.reason, health.fix) == (level, reason, standing.fix)
    assert all(each in (health.detail or "") for each in words)


def test_what_the_kernel_says_is_evidence_for_a_hang_whichever_comes_first() -> None:
    log = KernelLogReport(counts=COUNTS, last=LOST, recent={"message_lost": 1})
    first = gpu(STUCK, with_kernel_log(log))
    second = with_kernel_log(log, breaker_changed(STUCK, 1000.0)(snapshots.bare())).health["gpu"]
    assert first.detail == second.detail
    assert "the kernel's log: dxgvmb_send_create_process" in (first.detail or "")
    long_before = KernelLogReport(counts=COUNTS, last=structs.replace(LOST, at_s=10.0))
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
