"""deploy/install ended at every step, and run again."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from tests.deploy.installing import HOME, RULE, fresh, install, settings, uninstall
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


def ended_at(made: Machine, asked: list[str], title: str, number: signal.Signals) -> None:
    """Install until ``title`` is announced, and be ended there, with all that was started."""
    # Under nohup a test, and what it starts, ignores SIGHUP.
    process = made.start("env", "--default-signal", *asked)
    assert process.stdout is not None
    said = ""
    while title not in said:
        seen = process.stdout.read(1)
        assert seen, f"{title} never came:\n{said}"
        said += seen
    os.killpg(process.pid, number)
    process.communicate()
    assert process.returncode != 0


# Steps that take a while, or have many after them: the signal must come before the end.
STEPS = {
    "system user gpud": signal.SIGKILL,
    "/opt/gpud: packages": signal.SIGINT,
    "/opt/gpud: bytecode": signal.SIGHUP,
    "/etc/sudoers.d/gpud": signal.SIGTERM,
}


def test_ended_in_the_middle_of_any_of_these_steps_the_next_run_completes_it(
    small: Machine, light: Path
) -> None:
    asked, expected = install(light, "--no-start"), ours(small)
    with fresh(light) as made:
        for title, number in STEPS.items():
            ended_at(made, asked, title, number)
            # What is in place is whole, or is not there.
            if (made.root / RULE).exists():
                made.well("visudo", "-cqf", f"/{RULE}")
            if (made.root / "opt/gpud").exists():
                made.well("/opt/gpud/bin/gpud", "version")
        made.well(*asked)
        assert ours(made) == expected
        made.well(*uninstall(light, "--purge"))
        assert not [name for name in made.changed() if "gpud" in name and HOME[1:] not in name]


def test_an_upgrade_is_restarted_once_and_a_version_that_does_not_start_leaves_the_one_before(
    installed: Machine, shared: Path
) -> None:
    broken = shared / "checkout/gpud/root/control.py"
    original = broken.read_text()
    with fresh(shared, installed.changes) as made:
        # A directory of the layer below cannot be exchanged.
        made.well("sh", "-ec", "cp -a /opt/gpud /opt/x; rm -r /opt/gpud; mv /opt/x /opt/gpud")
        settings(made, free_port())
        made.well(*install(shared))
        pidfile = made.root / "run/gpud/root.pid"
        first = pidfile.read_text()
        assert "gpud up" in made.well(*install(shared))
        assert pidfile.read_text() == first, "nothing was new"
        made.well("touch", "/opt/gpud/.fingerprint")  # of an upgrade that ended before its restart
        assert "gpud restart" in made.well(*install(shared))
        assert pidfile.read_text() != first
        mark = (made.root / "opt/gpud/.fingerprint").read_text()
        try:
            broken.write_text("raise SystemExit('this version is broken')\n")
            told = made.run(*install(shared))
        finally:
            broken.write_text(original)
        assert told.returncode == 1
        assert "    | this version is broken\n" in told.stderr
        assert (
            "gpud did not start; the lines above say why. What was installed before" in told.stdout
        )
        assert (made.root / "opt/gpud/.fingerprint").read_text() == mark
        assert not (made.root / "opt/gpud.gpud-new").exists()
        assert made.run("gpud", "status").returncode != 3, "it runs"
        made.well(*uninstall(shared))
