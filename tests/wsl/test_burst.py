"""Fifty windows at once on a cold boot: a restored session, or a tmux that opens its panes."""

from __future__ import annotations

import select
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.waiting import until
from tests.wsl.terminal import PROMPT

if TYPE_CHECKING:
    from tests.wsl.machine import Machine, Process
    from tests.wsl.terminal import Terminal

WINDOWS = 50
ROUNDS, MANY_ROUNDS = 2, 20


@dataclass(frozen=True, slots=True)
class Round:
    """Times in seconds from the opening of the first window; counts of this boot."""

    prompts_s: list[float]
    ready_s: float
    asked: int
    supervisors_begun: int
    dockerds_begun: int
    supervisors: list[Process]
    dockerds: list[Process]


def burst(machine: Machine) -> Round:
    asked, begun, started = _asked(machine), *_begun(machine)
    machine.boot()
    windows = [machine.terminal(wait=False) for _ in range(WINDOWS)]
    opened_s = time.monotonic()
    for window in windows:
        window.open()
    prompts_s = _prompts(windows, opened_s)
    until(lambda: machine.report().get("dockerd", {}).get("up"), "a dockerd that answers")
    ready_s = time.monotonic() - opened_s
    until(lambda: not _starting(machine), "the end of every attempt")
    now_begun, now_started = _begun(machine)
    seen = Round(
        prompts_s=prompts_s,
        ready_s=ready_s,
        asked=_asked(machine) - asked,
        supervisors_begun=now_begun - begun,
        dockerds_begun=now_started - started,
        supervisors=machine.named("gpud"),
        dockerds=machine.named("dockerd"),
    )
    for window in windows:
        assert "gpud" not in window.everything
    machine.shutdown()
    return seen


def _prompts(windows: list[Terminal], opened_s: float) -> list[float]:
    """When each window showed its prompt."""
    seen_s = []
    waiting = list(windows)
    while waiting:
        ready = select.select(waiting, [], [], 60)[0]
        assert ready, f"{len(waiting)} windows without a prompt"
        for window in ready:
            window.read()
            assert not window.ended
            if window.seen(PROMPT):
                seen_s.append(time.monotonic() - opened_s)
                waiting.remove(window)
    return seen_s


def _starting(machine: Machine) -> list[Process]:
    return [p for p in machine.processes() if "gpud-start" in p.command or p.name == "sudo"]


def _asked(machine: Machine) -> int:
    """How often sudo was asked for gpud since the installation."""
    return _log(machine, "var/log/sudo.log").count("COMMAND=/opt/gpud/bin/gpud up")


def _begun(machine: Machine) -> tuple[int, int]:
    """How many supervisors, and how many dockerds, were begun since the installation."""
    text = _log(machine, "var/log/gpud/root.log")
    return text.count('"supervisor_started"'), text.count('"action": "start"')


def _log(machine: Machine, name: str) -> str:
    """The file as the distribution has it: in its own changes, or in a layer below."""
    layers = (machine.changes, *machine.layers)
    return next((text.read_text() for at in layers if (text := at / name).exists()), "")


def rounds(machine: Machine, count: int) -> None:
    seen = [burst(machine) for _ in range(count)]
    for number, one in enumerate(seen):
        figures = f"round {number}: {one}"
        assert len(one.prompts_s) == WINDOWS, figures
        assert one.supervisors_begun == len(one.supervisors) == 1, figures
        assert one.dockerds_begun == len(one.dockerds) == 1, figures
        assert one.asked == 1, figures
    prompts_s = [p for one in seen for p in one.prompts_s]
    print(
        f"{count} rounds of {WINDOWS} windows: sudo asked {sum(one.asked for one in seen)} times;"
        f" prompt p50 {statistics.median(prompts_s):.3f} s, max {max(prompts_s):.3f} s;"
        f" dockerd answers after p50 {statistics.median(one.ready_s for one in seen):.3f} s"
    )


@pytest.mark.timeout(300)
def test_fifty_windows_on_a_cold_boot_begin_a_single_supervisor_and_dockerd(
    next_day: Machine,
) -> None:
    rounds(next_day, ROUNDS)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_fifty_windows_on_a_cold_boot_twenty_times(next_day: Machine) -> None:
    rounds(next_day, MANY_ROUNDS)
