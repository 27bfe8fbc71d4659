"""deploy/install ended at every step, and run again."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.deploy.installing import (
    HOME,
    RULE,
    fresh,
    install,
    settings,
    uninstall,
)
from tests.e2e.program import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from tests.overlay import Machine


def ours(made: Machine) -> dict[str, str]:
    """What was changed, less what differs from one installation to the next by its nature."""
    own_time = (".pyc", ".log", "RECORD", "manifest", "/.fingerprint", "/.sums")
    return {
        name: what.rpartition(" ")[0] if name.endswith(own_time) else what
        for name, what in made.changed().items()
        if not name.startswith(("etc/shadow", "etc/gshadow", "etc/sub", "var/tmp/"))
    }


def killed_at(made: Machine, shared: Path, title: str, number: signal.Signals) -> None:
    """Install until ``title`` is announced, and be ended there, with all that was started."""
    process = made.start(*install(shared, "--no-start"))
    assert process.stdout is not None
    said = ""
    while title not in said:
        seen = process.stdout.read(1)
        assert seen, f"{title} never came:\n{said}"
        said += seen
    os.killpg(process.pid, number)
    process.communicate()
    assert process.returncode != 0


FIRST_AND_LAST = [
    "system user gpud",
    "/opt/gpud: packages",
    "/opt/gpud: put in place",
    "/etc/sudoers.d/gpud",
    f"{HOME}/.bashrc",
]
ALL = [
    *FIRST_AND_LAST,
    "tools to build with",
    "/opt/gpud: an empty environment",
    "/opt/gpud: gpud itself",
    "/opt/gpud: bytecode",
    "/usr/local/bin/gpud",
    "/etc/gpud/gpud.toml",
    "/etc/gpud/secrets.toml",
    "/usr/local/share/bash-completion",
    "/usr/local/share/zsh",
    "/usr/local/share/fish",
    "/usr/local/share/man",
    f"{HOME}/.local/state/gpud",
]


def interrupted(
    shared: Path, installed: Machine, titles: list[str], number: signal.Signals
) -> None:
    with fresh(shared) as made:
        for title in titles:
            killed_at(made, shared, title, number)
            # What is in place is whole, or is not there.
            if (made.root / RULE).exists():
                made.well("visudo", "-cqf", f"/{RULE}")
            if (made.root / "opt/gpud").exists():
                made.well("/opt/gpud/bin/gpud", "version")
        made.well(*install(shared, "--no-start"))
        assert ours(made) == ours(installed)
        made.well(*uninstall(shared, "--purge"))
        assert not [name for name in made.changed() if "gpud" in name and HOME[1:] not in name]


def test_killed_in_the_middle_of_any_of_these_steps_the_next_run_completes_it(
    shared: Path, installed: Machine
) -> None:
    interrupted(shared, installed, FIRST_AND_LAST, signal.SIGKILL)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("title", ALL)
def test_ended_at_every_step_the_next_run_completes_it(
    shared: Path, installed: Machine, title: str, number: signal.Signals
) -> None:
    interrupted(shared, installed, [title], number)


def test_an_upgrade_that_was_ended_before_its_restart_is_made_up_for(
    installed: Machine, shared: Path
) -> None:
    with fresh(shared, installed.changes) as made:
        settings(made, free_port())
        made.well(*install(shared))
        first = (made.root / "run/gpud/root.pid").read_text()
        assert "gpud up" in made.well(*install(shared))
        assert (made.root / "run/gpud/root.pid").read_text() == first, "nothing was new"
        made.well("touch", "/opt/gpud/.fingerprint")
        assert "gpud restart" in made.well(*install(shared))
        assert (made.root / "run/gpud/root.pid").read_text() != first
        made.well(*uninstall(shared))
