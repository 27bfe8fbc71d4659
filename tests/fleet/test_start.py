"""The first machine of a fleet: a real gpud, what a person types, and the store it arrives in."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.program import Program, alive, free_port, program
from tests.e2e.scraping import running
from tests.fleet import tools
from tests.fleet.tools import FOLDER
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.scraping import Tool


@pytest.fixture
def gpud() -> Iterator[Program]:
    with program() as made:
        made.start()
        yield made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Tool]:
    made = tools.victoria(tmp_path / "victoria")
    with running(made):
        yield made


def shippers(state: Path) -> list[int]:
    """Every process that has this person's state among its arguments."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(str(state).encode() in word for word in words) and alive(int(folder.name)):
            found.append(int(folder.name))
    return found


def test_five_shells_start_one_vmagent_and_the_machine_arrives_under_its_own_name(
    gpud: Program, store: Tool, tmp_path: Path
) -> None:
    until(gpud.metrics, "gpud answers")
    (tmp_path / "gpud-fleet").write_text(
        f"URL=http://127.0.0.1:{store.port}/api/v1/write\nSITE='north wing'\nOWNER=ada\n"
        f"GPUD=127.0.0.1:{gpud.port}\nLISTEN=127.0.0.1:{free_port()}\n"
        "INTERVAL=1s\nCHOICE='-loggerLevel=INFO -loggerTimezone=UTC'\n"
    )
    state = tmp_path / "gpud-fleet.state"
    around = {
        **os.environ,
        "GPUD_FLEET": str(tmp_path / "gpud-fleet"),
        "XDG_STATE_HOME": str(state),
    }
    try:
        shells = [subprocess.Popen([FOLDER / "push/start"], env=around) for _ in range(5)]
        assert [shell.wait(timeout=LIMIT_S) for shell in shells] == [0] * 5
        [(labels, _)] = until(lambda: store.values('gpud_machine_info{job="gpud"}'), "it arrives")
        assert (labels["site"], labels["owner"]) == ("north wing", "ada")
        assert re.fullmatch(rf"[a-z0-9.-]+-{labels['machine_id'][:8]}", labels["instance"])
        until(lambda: len(shippers(state)) == 2, "flock and vmagent alone are left")
    finally:
        for process in shippers(state):
            os.kill(process, signal.SIGTERM)
        until(lambda: not shippers(state), "vmagent has ended")
