"""Who may ask an installed gpud: a member of gpud-users, and somebody who becomes one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.deploy.installing import USER, fresh, install, settings, uninstall
from tests.e2e.program import free_port

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from tests.overlay import Machine

OTHER = "gpud-other"
GROUP = "gpud-users"


def ask(made: Machine, user: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Ask as a user whose session began before any membership: it has no supplementary group."""
    session = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")
    return made.run(*session, "/usr/local/bin/gpud", *words)


def test_members_ask_without_a_password_and_others_when_they_have_become_one(
    shared: Path, installed: Machine
) -> None:
    with fresh(shared, installed.changes) as made:
        settings(made, free_port())
        made.well("useradd", "--create-home", OTHER)
        said = made.well(*install(shared, "--dry-run"))
        assert f"group {GROUP}: nothing to do" in said
        assert f"group {GROUP} ({USER}): nothing to do" in said
        made.well(*install(shared))
        waiting = "until [ -S /run/gpud/api/api.sock ]; do sleep 0.05; done"
        made.well("timeout", "300", "sh", "-c", waiting)
        lock = made.well("stat", "-c", "%a %U:%G", "/run/gpud/gpu.lock", "/run/gpud/api/api.sock")
        assert lock == f"664 root:{GROUP}\n666 gpud:gpud\n"
        ran = ask(made, USER, "probe", "cpu_call", "--json")
        assert ran.returncode == 0, ran.stderr
        assert json.loads(ran.stdout)["runs"][0]["probe"] == "cpu_call"
        assert ask(made, USER, "history", "--json").returncode == 0
        assert ask(made, USER, "baseline", "reset", "--all").returncode in {0, 2}
        denied = [
            ("history",),
            ("probe", "cpu_call"),
            ("baseline", "reset", "--all"),
            ("alerts", "ack", "ab"),
            ("gpus", "forget", "all"),
        ]
        for words in denied:
            ran = ask(made, OTHER, *words)
            assert (ran.returncode, ran.stdout) == (4, "")
            assert ran.stderr == (
                f"gpud: you are not in the group {GROUP}\n"
                f"  fix: sudo usermod -aG {GROUP} {OTHER} (works at once in shells that are open)\n"
            )
        made.well("usermod", "-aG", GROUP, OTHER)
        assert ask(made, OTHER, "history", "--json").returncode == 0
        made.well("gpasswd", "-d", OTHER, GROUP)
        assert ask(made, OTHER, "history", "--json").returncode == 4
        _logs_are_for_members(made)
        checks = json.loads(ask(made, OTHER, "doctor", "--json").stdout)["checks"]
        (found,) = [check for check in checks if check["title"] == GROUP]
        assert (found["verdict"], "usermod -aG" in found["fix"]) == ("advice", True)
        made.well("/usr/local/bin/gpud", "down")
        for user, code in ((USER, 4), (OTHER, 4)):  # the lock wants a session with the group
            assert ask(made, user, "probe", "cpu_call").returncode == code
        member = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups")
        assert made.run(*member, "/usr/local/bin/gpud", "probe", "cpu_call").returncode == 0
        assert ask(made, USER, "history").returncode == 3
        made.well(*uninstall(shared))
        assert made.run("getent", "group", GROUP).returncode != 0
        assert made.well("stat", "-c", "%a %G", "/var/log/gpud") == "755 root\n"


def _logs_are_for_members(made: Machine) -> None:
    files = made.well(
        "find",
        "/var/log/gpud",
        "-name",
        "*.log",
        "!",
        "-name",
        "install.log",
        "-printf",
        "%m %g\\n",
    )
    assert set(files.splitlines()) == {f"640 {GROUP}"}
    folders = made.well("stat", "-c", "%a %G", "/var/log/gpud", "/var/log/gpud/agent")
    assert folders == f"2755 {GROUP}\n2755 {GROUP}\n"
    member = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups")
    ran = made.run(*member, "/usr/local/bin/gpud", "logs")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ask(made, OTHER, "logs").returncode == 4
