"""A hang at each call: the agent answers others meanwhile, and starts no second child."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from gpud import discovery
from gpud.agent.measure.breaker import State
from gpud.agent.measure.launch import Launcher, LaunchRefused
from gpud.agent.state.board import Board
from gpud.child import probes
from gpud.core.sample import Job, Reason, RunReport, Skip
from tests import snapshots
from tests.child.running import gpus_of
from tests.child.sweep import CALLED, SHARED, Subject, Sweep, devices, linked, sweeping

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NEVER_S = 100.0
"""Budget and limit of a child, the largest there are: its alarm is sent when it hangs."""
START_UP = {
    name for name in CALLED if name.startswith(("cuInit", "cuDevice", "cuDriver", "cuModule"))
} - {"cuDeviceCanAccessPeer", "cuModuleGetFunction", "cuModuleGetGlobal_v2"} | {
    "cuCtxSetCurrent",
    "cuEventCreate",
    "cuStreamCreate",
}
OFTEN = 10
"""Calls in a run from which on a function is hung in the middle too."""
AT_ONCE, LOOK_EVERY_S = 2, 0.02
"""Children on their way to where they hang: more would take each other's time to come so far."""


@dataclass(frozen=True, slots=True)
class Hang:
    """A function that does not return once it was called ``after`` times.

    ``releases``: that call gives something back, after the results are there.
    """

    function: str
    after: int
    subject: Subject
    releases: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a launcher made of one hang."""

    report: RunReport
    state: str
    refused: Skip | None
    spawned: int


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    with sweeping(tmp_path_factory.mktemp("hangs")) as made:
        yield made


def hangs(sweep: Sweep, functions: list[str]) -> list[Hang]:
    """Functions at their first call, and in the middle where one is called often."""
    found = []
    for function in functions:
        subject = sweep.prober(function)
        calls = sweep.clean[subject].calls
        closed = max(at for at, name in enumerate(calls) if name == "cuCtxSynchronize")
        places = [at for at, name in enumerate(calls) if name == function]
        middle = [len(places) // 2] if len(places) >= OFTEN else []
        found += [Hang(function, after, subject, places[after] > closed) for after in (0, *middle)]
    return found


async def hung(hang: Hang, library: Path) -> Outcome:
    """Let one launcher meet one hang, then ask it again."""
    board = Board(snapshots.bare())
    launcher = Launcher(library.with_name("gpu.lock"), board=board, deadline_ratio=1.0)
    module = discovery.module(probes, hang.subject.name, ("SPEC", "run"))
    assert not isinstance(module, str)
    spec = replace(module.SPEC, budget_s=NEVER_S)
    job = Job(
        hang.subject.name,
        **gpus_of(hang.subject.name),
        cuda_library=str(library),
        budget_s=NEVER_S,
        start_limit_s=NEVER_S,
    )
    report = await launcher.run(spec, job)
    refused = None
    try:
        await launcher.run(spec, job)
    except LaunchRefused as refusal:
        refused = refusal.skip
    launcher.close()
    return Outcome(report, launcher.standing.state, refused, board.read().measure.children)


async def all_hung(cases: dict[Hang, Path]) -> dict[Hang, Outcome]:
    """Meet them all in one event loop.

    What ends each hang is a task of the same loop: a launcher that waited for its child without
    letting others run would wait for ever.
    """
    turns = asyncio.Semaphore(AT_ONCE)

    async def meet(hang: Hang, library: Path) -> Outcome:
        async with turns:
            task = asyncio.create_task(hung(hang, library))
            calls = library.with_name("calls")
            while not task.done():
                if calls.exists() and calls.read_text().split().count(hang.function) > hang.after:
                    os.kill(pid_of_child(library), signal.SIGALRM)
                    break
                await asyncio.sleep(LOOK_EVERY_S)
            return await task

    outcomes = await asyncio.gather(*(meet(*case) for case in cases.items()))
    return dict(zip(cases, outcomes, strict=True))


def pid_of_child(library: Path) -> int:
    return int(library.with_name("gpu.lock").read_text().split()[0])


def assert_named(hang: Hang, report: RunReport) -> None:
    """A hang costs the run and names the call; one while the GPU is given back costs no figure."""
    failure = report.failure
    if hang.releases:
        assert (failure, bool(report.samples)) == (None, True), (hang, failure)
        if hang.function in SHARED:
            return
        assert str(report.conditions["release_errors"]).startswith(f"{hang.function}: "), hang
        return
    assert failure is not None, hang
    assert hang.function in (failure.function or "").split(" or "), (hang, failure)
    starts = hang.function in START_UP and not hang.after
    reason = Reason.SLOW_START if starts else Reason.HUNG
    assert (failure.reason, report.samples) == (reason, ()), (hang, failure)
    assert failure.advice, hang
    assert report.conditions["probe_version"], hang


@pytest.mark.parametrize("each", [3, pytest.param(1, marks=pytest.mark.soak)])
def test_hang_at_any_call_blocks_no_other_task_and_opens_the_breaker(
    sweep: Sweep, tmp_path: Path, each: int
) -> None:
    cases = {}
    for number, hang in enumerate(hangs(sweep, CALLED[::each])):
        own = tmp_path / str(number)
        script = f"{devices(hang.subject)}log {own}/calls\nhang {hang.function} {hang.after}\n"
        cases[hang] = linked(sweep.library(hang.subject), own, script)
    for hang, what in asyncio.run(all_hung(cases)).items():
        assert_named(hang, what.report)
        assert (what.state, what.refused, what.spawned) == (State.OPEN, Skip.BREAKER_OPEN, 1), hang
        calls = cases[hang].with_name("calls").read_text().split()
        assert calls[-1] == hang.function, hang  # it hung where it was told to
        assert calls.count(hang.function) == hang.after + 1, hang
        with pytest.raises(ProcessLookupError):
            os.kill(pid_of_child(cases[hang]), 0)
