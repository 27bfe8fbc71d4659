"""Start of what was installed, and its first look at the machine."""

from __future__ import annotations

import pwd
import re
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from gpud.install import people, tree, unit
from gpud.install.console import CLEAN
from gpud.install.places import RUN_DIR, TREE
from gpud.install.setup import Done, PlanLine, Step, removed

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpud.install.setup import Plan, Setup

PIDFILE: Final = RUN_DIR / "root.pid"
SETTLES_S: Final = 10.0


def steps(setup: Setup) -> Plan:
    """Plan the start, or the restart after an upgrade."""
    if setup.options.no_start:
        if not setup.dry:
            removed(tree.NEW)
        return
    runs = PIDFILE.exists()
    if setup.dry:
        what = "start gpud (restart it after an upgrade), which starts dockerd, and ask gpud doctor"
        yield Done("gpud (runs)") if runs and not setup.upgrade else PlanLine(f"  would: {what}")
        return
    # A pid file older than the tree: an upgrade that was interrupted before its restart.
    stale = runs and tree.MARK.stat().st_mtime > PIDFILE.stat().st_mtime
    verb = "restart" if setup.upgrade or stale or (runs and unit.waits()) else "up"
    failures: list[str] = []
    yield _start(
        setup, verb, lambda: failures.append("gpud did not start; the lines above say why")
    )
    if failures and setup.previous:
        yield Step(f"{TREE}: what ran before", tree.exchanged, failed=lambda: None)
        yield _start(
            setup, "restart", lambda: failures.append("what ran before did not start either")
        )
        failures[0] += ". What was installed before is back"
    removed(tree.NEW)
    if not failures and not _settled():
        failures.append("gpud has started and says nothing yet: gpud status")
    setup.later += failures


def _start(setup: Setup, verb: str, failed: Callable[[], None]) -> Step:
    def shown() -> None:
        setup.console.show_log(5)
        failed()

    run = partial(setup.console.run, TREE / "bin/gpud", verb, env=CLEAN)
    return Step(f"gpud {verb}", run, failed=shown)


def _settled() -> bool:
    """Wait until it has looked at dockerd and at the GPU, so that doctor has something to judge."""
    until_s = time.monotonic() + SETTLES_S
    while True:
        # As somebody else: root opens no file that the agent writes, nor waits for one.
        look = ("timeout", "5", "head", "-c", "4M", RUN_DIR / "agent.json")
        text = people.as_user(pwd.getpwnam("nobody"), *look).stdout
        dockerd = re.search(r'"dockerd":\{"state":"(\w+)', text)
        if '"cuda":{' in text and dockerd and dockerd[1] != "starting":  # null until CUDA was asked
            return True
        if time.monotonic() > until_s:
            return '"health":' in text  # a slow driver or dockerd is for doctor to tell
        time.sleep(0.1)


def examine(setup: Setup) -> None:
    """Let doctor say what it finds: a matter of this machine; gpud is installed all the same."""
    if setup.options.no_start or not (TREE / "bin/gpud").exists():
        return
    setup.console.say("")
    if people.as_user(setup.person, TREE / "bin/gpud", "doctor", shown=True).returncode:
        setup.console.say(
            "Not everything is well yet; the lines above say what and how to mend it."
        )


def page(setup: Setup) -> str | None:
    """Return the address of the page, as gpud itself says it."""
    shown = people.as_user(setup.person, TREE / "bin/gpud", "status").stdout
    found = re.search(r"page (https?://[^ ,\n]+)", shown)
    return found[1] if found else None
