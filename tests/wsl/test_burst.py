"""Fifty windows at once on a cold boot: a restored session, or a tmux that opens its panes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.waiting import until
from tests.wsl.conftest import SUDO_LOG
from tests.wsl.terminal import PROMPT

if TYPE_CHECKING:
    from tests.wsl.machine import Machine, Process

WINDOWS = 50


def test_fifty_windows_on_a_cold_boot_begin_a_single_supervisor_and_dockerd(
    next_day: Machine,
) -> None:
    before = begun(next_day)
    next_day.boot()
    windows = [next_day.terminal(wait=False) for _ in range(WINDOWS)]
    for window in windows:
        window.open()
    for window in windows:
        window.expect(PROMPT)
    until(lambda: next_day.report().get("dockerd", {}).get("up"), "a dockerd that answers")
    until(lambda: not starting(next_day), "the end of every attempt")
    assert [now - then for now, then in zip(begun(next_day), before, strict=True)] == [1, 1, 1]
    assert (len(next_day.named("gpud")), len(next_day.named("dockerd"))) == (1, 1)
    assert not [window for window in windows if "gpud" in window.everything]


def starting(machine: Machine) -> list[Process]:
    """Starters that have not ended."""
    return [p for p in machine.processes() if "gpud-start" in p.command or p.name == "sudo"]


def begun(machine: Machine) -> tuple[int, int, int]:
    """How often sudo was asked, a supervisor and a dockerd were begun, since the first boot."""
    sudo, root = (log(machine, name) for name in (SUDO_LOG[1:], "var/log/gpud/root.log"))
    asked = sudo.count("COMMAND=/opt/gpud/bin/gpud up")
    return asked, root.count('"supervisor_started"'), root.count('"action": "start"')


def log(machine: Machine, name: str) -> str:
    """The file as the distribution has it: in its own changes, or in a layer below."""
    layers = (machine.changes, *machine.layers)
    return next((text.read_text() for at in layers if (text := at / name).exists()), "")
