"""The unit of systemd, below a systemd of the machine's own, and who else is called gpud."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.deploy.installing import (
    HOME,
    ROOT,
    USER,
    fresh,
    install,
    left_behind,
    settings,
    uninstall,
)
from tests.e2e.program import free_port
from tests.overlay import SYSTEMD
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.overlay import Machine

UNIT = "etc/systemd/system/gpud-wsl.service"


def booted(made: Machine) -> None:
    """Wait until systemd has started what it starts at boot."""
    state = ("systemctl", "is-system-running")
    until(lambda: made.run(*state).stdout == "running\n", "systemd")


def unit(made: Machine, key: str) -> str:
    return made.well("systemctl", "show", "--value", "--property", key, "gpud-wsl").strip()


def runs_as_unit(made: Machine) -> str:
    """The supervisor's pid: the one in root.pid, of which systemd knows."""
    pid = (made.root / "run/gpud/root.pid").read_text().split()[0]
    assert (unit(made, "ActiveState"), unit(made, "MainPID")) == ("active", pid)
    return pid


def test_systemd_runs_gpud_and_brings_it_back_and_the_shell_leaves_it_at_that(
    shared: Path, installed: Machine
) -> None:
    with fresh(shared, installed.changes, first=SYSTEMD) as made:
        booted(made)
        settings(made, free_port(), policy="auto")
        said = made.well(*install(shared, "--systemd"))
        assert "gpud up" in said
        first = runs_as_unit(made)
        report = json.loads((made.root / "run/gpud/root.json").read_text())
        assert report["dockerd"]["policy"] == "observe", "dockerd is left to systemd"
        made.well("runuser", "-u", USER, "--", "/opt/gpud/bin/gpud-start")
        assert runs_as_unit(made) == first
        made.well("kill", "-KILL", first)
        until(lambda: unit(made, "MainPID") not in {"0", first}, "the next supervisor")
        until(lambda: unit(made, "ActiveState") == "active", "the next supervisor")
        second = runs_as_unit(made)
        as_person = ("runuser", "-u", USER, "--", "gpud")
        for _ in range(6):  # systemd itself refuses the sixth start within ten seconds
            made.well(*as_person, "restart")
        assert runs_as_unit(made) != second
        made.well("systemctl", "stop", "gpud-wsl")
        assert (made.root / "run/gpud/stopped").exists(), "an opened shell does not start it"
        made.well(*as_person, "up")
        runs_as_unit(made)
        made.well(*as_person, "down")
        until(lambda: unit(made, "ActiveState") == "inactive", "the end of the unit")
        assert "nothing to do" in made.well(*install(shared))
        runs_as_unit(made)
        made.well(*install(shared, "--no-systemd"))
        assert not (made.root / UNIT).exists()
        assert unit(made, "LoadState") == "not-found"
        assert made.run("gpud", "status").returncode != 3, "it runs without the unit"
        made.well(*uninstall(shared, "--purge"))


def test_unit_takes_over_from_a_shell_and_an_uninstall_leaves_nothing_of_it(
    shared: Path, installed: Machine
) -> None:
    with fresh(shared, installed.changes, first=SYSTEMD) as made:
        booted(made)
        settings(made, free_port())
        made.well(*install(shared))
        before = (made.root / "run/gpud/root.pid").read_text()
        assert f"would: /{UNIT}" in made.well(*install(shared, "--systemd", "--dry-run"))
        assert "gpud restart" in made.well(*install(shared, "--systemd"))
        assert (made.root / "run/gpud/root.pid").read_text() != before
        pid = runs_as_unit(made)
        made.well(*uninstall(shared, "--purge"))
        assert made.run("kill", "-0", pid).returncode != 0
        assert unit(made, "LoadState") == "not-found"
        there = {name for name, what in left_behind(made, {}).items() if what != "removed"}
        assert not {name for name in there if "gpud" in name.replace(HOME[1:], "")}


@pytest.mark.soak
def test_upgrade_restarts_the_unit_and_it_stays_enabled(shared: Path, installed: Machine) -> None:
    changed = shared / "checkout/gpud/core/text.py"
    original = changed.read_text()
    with fresh(shared, installed.changes, first=SYSTEMD) as made:
        booted(made)
        settings(made, free_port())
        made.well(*install(shared, "--systemd"))
        first, text = runs_as_unit(made), (made.root / UNIT).read_text()
        try:
            changed.write_text(f"{original}# changed\n")
            assert "gpud restart" in made.well(*install(shared))
        finally:
            changed.write_text(original)
        assert runs_as_unit(made) != first
        assert unit(made, "UnitFileState") == "enabled"
        assert (made.root / UNIT).read_text() == text
        made.well(*uninstall(shared, "--purge"))


def test_unit_that_systemd_does_not_run_yet_leaves_gpud_to_the_shell(
    light: Path, small: Machine
) -> None:
    with fresh(light, small.changes) as made:
        told = made.run(*install(light, "--systemd"))
        assert told.returncode == 1
        assert "systemd is not the first process here" in told.stderr
        assert "systemd=true" in told.stderr
        assert not (made.root / UNIT).exists()


def test_unit_is_one_that_systemd_understands(small: Machine, light: Path) -> None:
    with fresh(light, small.changes) as made:
        copy = made.root / "tmp/gpud-wsl.service"
        copy.write_bytes((ROOT / "deploy/gpud-wsl.service").read_bytes())
        ran = made.run("systemd-analyze", "verify", "/tmp/gpud-wsl.service")
        assert (ran.returncode, re.findall(r"gpud-wsl.*", ran.stderr)) == (0, [])


@pytest.mark.parametrize("path", ["/etc/systemd/system/gpud.service", "/var/lib/gpud/gpud.state"])
def test_another_project_of_this_name_stops_an_installation_before_it_changes_anything(
    path: str, light: Path
) -> None:
    with fresh(light) as made:
        made.well("install", "-D", "/dev/null", path)
        before = made.changed()
        told = made.run(*install(light))
        assert told.returncode == 1
        assert "belongs to another project that is called gpud" in told.stderr
        assert "keep one of the two" in told.stderr
        changed = {name for name, what in made.changed().items() if before.get(name) != what}
        assert changed <= {"var", "var/log", "var/log/gpud", "var/log/gpud/install.log", "opt"}
        told = made.run(*uninstall(light, "--purge"))
        assert (made.root / path[1:]).exists(), told.stdout + told.stderr
