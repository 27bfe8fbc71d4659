"""Starting, stopping and restarting, through the command line as a person does it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.e2e.program import Program, alive, as_nobody, children_of, program
from tests.terminals import Window
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.dockerd import PrivateDockerd

NOBODY = 65534


@pytest.fixture
def gpud(dockerd: PrivateDockerd) -> Iterator[Program]:
    with program(dockerd=dockerd.settings()) as made:
        made.write_settings()
        try:
            yield made
        finally:
            assert made.cli("down").returncode == 0


def supervisor(gpud: Program) -> int:
    pid, _ = (gpud.run_dir / "root.pid").read_text().split()
    return int(pid)


def up(gpud: Program, dockerd: PrivateDockerd) -> list[int]:
    """Start it with a dockerd that works, and give its process."""
    gpud.cli("up")
    gpud.health("dockerd", 0)
    return dockerd.dockerds()


def test_up_returns_when_gpud_runs_and_a_second_up_changes_nothing(gpud: Program) -> None:
    first = gpud.cli("up")
    assert (first.returncode, first.stdout, first.stderr) == (0, "gpud runs\n", "")
    pid = supervisor(gpud)
    assert alive(pid)
    gpud.health("dockerd", 0)
    assert gpud.cli("up").returncode == 0
    assert supervisor(gpud) == pid


def test_twelve_at_once_make_one_supervisor_and_one_dockerd(
    gpud: Program, dockerd: PrivateDockerd
) -> None:
    starters = [subprocess.Popen(gpud.command("up")) for _ in range(12)]
    assert [starter.wait(timeout=LIMIT_S) for starter in starters] == [0] * 12
    gpud.health("dockerd", 0)
    assert len(dockerd.dockerds()) == 1
    assert len(supervisors(gpud)) == 1


def supervisors(gpud: Program) -> list[int]:
    """Those there are; what one has just forked has its arguments until it has its own."""
    listed = subprocess.run(
        ["pgrep", "-f", f"gpud --home {gpud.home} up"], capture_output=True, text=True, check=False
    )
    result = {int(pid) for pid in listed.stdout.split()}
    forked = {child for pid in result for child in children_of(pid)}
    return sorted(result - forked)


def test_down_and_restart_keep_dockerd_and_down_is_remembered_until_up(
    gpud: Program, dockerd: PrivateDockerd
) -> None:
    [stored], before = up(gpud, dockerd), supervisor(gpud)
    stopped, agent = gpud.run_dir / "stopped", gpud.agent_pid()
    assert agent is not None
    assert gpud.cli("restart").returncode == 0
    assert supervisor(gpud) != before
    gpud.health("dockerd", 0)
    assert not stopped.exists()
    assert gpud.cli("down").stdout.startswith("gpud has stopped; dockerd and its containers run")
    assert stopped.exists()
    assert not alive(agent)
    assert dockerd.dockerds() == [stored]
    assert up(gpud, dockerd) == [stored]
    assert not stopped.exists()


def test_down_with_docker_stops_the_dockerd_that_gpud_keeps(
    gpud: Program, dockerd: PrivateDockerd
) -> None:
    up(gpud, dockerd)
    assert gpud.cli("down", "--docker").stdout == "gpud has stopped; dockerd has stopped\n"
    until(lambda: not dockerd.dockerds(), "dockerd has ended")
    assert gpud.cli("down").stdout == "gpud was not running\n"


def test_ctrl_c_in_a_terminal_ends_a_foreground_run_with_everything(gpud: Program) -> None:
    shown = Window(gpud.command("run"), os.environ)
    gpud.status_when(lambda d: d["health"].get("http"), "an answer")
    agent = gpud.agent_pid()
    assert agent is not None
    shown.send("\x03")
    assert shown.ended() == 0, shown.everything
    assert "Traceback" not in shown.everything
    assert not alive(agent)


def test_without_root_dockerd_is_watched_and_everything_else_runs(
    dockerd: PrivateDockerd,
) -> None:
    with program(dockerd=dockerd.settings()) as gpud:
        gpud.write_settings()
        for place in (gpud.home, *gpud.home.rglob("*")):
            shutil.chown(place, NOBODY, NOBODY)
        process = subprocess.Popen(
            [*as_nobody(gpud.home), *gpud.command("run")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            document = gpud.status_when(
                lambda d: d["root"] and d["probes"], "a status of an unprivileged run"
            )
            assert document["root"]["privileged"] is False
            assert document["root"]["dockerd"]["up"] is False
            assert dockerd.dockerds() == []
            status = gpud.cli("status", "--json")
            assert json.loads(status.stdout)["schema_version"] == 1
        finally:
            process.send_signal(signal.SIGTERM)
            output = process.communicate(timeout=LIMIT_S)[0].decode()
        assert process.returncode == 0
        assert "not root: dockerd is watched, not managed" in output
        assert "Traceback" not in output


def test_down_stops_what_runs_whatever_stands_in_the_settings(gpud: Program) -> None:
    gpud.cli("up")
    pid = supervisor(gpud)
    gpud.config.write_text("[http\n")
    ran = gpud.cli("down")
    assert (ran.returncode, ran.stdout.split(";")[0].strip()) == (0, "gpud has stopped")
    assert "not valid TOML" in ran.stderr
    assert not alive(pid)


def test_run_beside_a_running_gpud_names_that_one_and_no_stranger(gpud: Program) -> None:
    gpud.cli("up")
    gpud.health("http", 0)
    ran = gpud.cli("run")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert f"gpud: gpud is already running (pid {supervisor(gpud)})\n  fix: " in ran.stderr


def test_dockerd_is_not_said_to_run_on_where_there_is_none() -> None:
    with program() as made:
        made.write_settings()
        made.cli("up")
        until((made.run_dir / "root.json").exists, "root's report")
        assert made.cli("restart").stdout == "gpud has restarted\n"
        assert made.cli("down").stdout == "gpud has stopped\n"
