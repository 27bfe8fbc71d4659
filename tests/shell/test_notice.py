"""From an alert to the prompt: root makes the file, the agent's user writes it, shells show it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.agent.alerts.telling import LOST, SLOW
from tests.shell.test_hook import BASH, FISH, HOME, ZSH, Shell, opened, running

if TYPE_CHECKING:
    from tests.shell.world import World

SAID = SLOW.summary.replace("µ", "u")
MAKE = """
import pwd
from pathlib import Path
from gpud.root import files
user = pwd.getpwnam("gpud")
files.handed(Path("/run/gpud/notice"), (user.pw_uid, user.pw_gid))
"""
TELL = """
import asyncio, json, sys
from gpud.agent.alerts.sinks import notice
from gpud.agent.alerts.sink import Context
from gpud.core.alerts import Alert, Severity
from gpud.agent.alerts.message import Message, plain
from gpud.core.settings import Settings
[sink] = notice.create(Context(Settings(), "ada", lambda: None))
alerts = tuple(
    Alert("GpudSlowdown", Severity.WARNING, {"n": str(n)}, plain(text), "", 0.0, 0.0)
    for n, text in enumerate(json.loads(sys.argv[1]))
)
over = tuple(Alert("GpudSlowdown", Severity.WARNING, {}, plain(text), "", 0.0, 0.0, 1.0)
    for text in json.loads(sys.argv[2]))
asyncio.run(sink.send(Message((), over, alerts)))
"""
PYTHON = "/opt/gpud/bin/python"


def tell(machine: World, *firing: str, over: tuple[str, ...] = ()) -> None:
    command = (PYTHON, "-I", "-c", TELL, json.dumps(firing), json.dumps(over))
    done = machine.run(*command, user="gpud")
    assert done.returncode == 0, done.stderr


@pytest.fixture(params=[BASH, ZSH, FISH], ids=lambda shell: str(shell.name))
def shell(request: pytest.FixtureRequest, machine: World) -> Shell:
    chosen: Shell = request.param
    chosen.prepare(machine)
    running(machine)
    machine.own(f"{HOME}/.local/state/gpud/start.log", "")
    made = machine.run(PYTHON, "-I", "-c", MAKE, user=None)
    assert made.returncode == 0, made.stderr
    return chosen


def test_an_alert_is_shown_once_and_its_end_as_well(machine: World, shell: Shell) -> None:
    assert opened(machine, shell) == ""
    tell(machine, SLOW.summary)
    assert opened(machine, shell) == f"gpud: {SAID}"
    tell(machine, SLOW.summary)
    assert opened(machine, shell) == ""
    tell(machine, LOST.summary, SLOW.summary)
    assert opened(machine, shell) == f"gpud: {LOST.summary} (and 1 more: gpud alerts)"
    tell(machine, over=(SLOW.summary,))
    assert opened(machine, shell) == f"gpud: resolved: {SAID}"
    tell(machine)
    assert opened(machine, shell) == ""
