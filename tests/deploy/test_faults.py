"""Installation, upgrade and removal that are killed, or that something fails below.

The next run of the same command ends as if nothing had been. The tree is made of the few packages
that an installation itself loads, so that it is built within a second or two.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.deploy.installing import HOME, USER, fresh
from tests.deploy.test_interruptions import ours

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.overlay import Machine

SEED, MOMENTS = 19, 20
VERBS = ("install", "upgrade", "uninstall")
STEPWISE = """
import os, signal, sys
root, at, verb, *words = sys.argv[1:]
sys.path.insert(0, root)
from gpud.install import setup, undo
from gpud.install.__main__ import main
passed = []
def moment(title):
    passed.append(title)
    print("moment", title, flush=True)
    if len(passed) == int(at):
        os.kill(os.getpid(), signal.SIGKILL)
def watched(kind, name):
    original = getattr(kind, name)
    def step(self, what, *more):
        title = what if isinstance(what, str) else what.title
        moment(f"before {title}")
        original(self, what, *more)
        moment(f"after {title}")
    setattr(kind, name, step)
watched(setup.Setup, "_do")
watched(undo.Removal, "remove")
main([root, verb, *words])
"""
"""Runs the installer and kills it at a moment: each is the begin or the end of a step."""


@pytest.fixture(scope="module")
def before(shared: Path, light: Path) -> Iterator[Machine]:
    """What an upgrade and a removal begin with."""
    with fresh(shared) as made:
        made.well(*line(light, shared, "install"))
        yield made


def line(light: Path, shared: Path, verb: str) -> list[str]:
    root = light / ("newer" if verb == "upgrade" else "checkout")
    if verb == "uninstall":
        return [str(root / "deploy/uninstall"), "--purge"]
    given = ["--user", USER, "--wheelhouse", str(shared / "wheels"), "--no-start"]
    return [str(root / "deploy/install"), *given]


def stepwise(asked: list[str], at: int) -> list[str]:
    """Give the line that does the same and is killed at a moment."""
    script, *words = asked
    root, verb = Path(script).parents[1], Path(script).name
    python = ["/usr/bin/python3", "-I", "-B", "-c", STEPWISE]
    return [*python, str(root), str(at), verb, *words]


@contextlib.contextmanager
def machine(verb: str, shared: Path, before: Machine) -> Iterator[Machine]:
    """A machine on which a verb has something to do."""
    with fresh(shared, *([] if verb == "install" else [before.changes])) as made:
        if verb == "upgrade":  # a directory of the layer below cannot be exchanged
            made.well("sh", "-ec", "cp -a /opt/gpud /opt/x; rm -r /opt/gpud; mv /opt/x /opt/gpud")
        if verb == "uninstall":
            made.well("install", "-d", "-o", "gpud", "/var/lib/gpud", "/var/log/gpud/agent")
            made.well("install", "-o", "gpud", "/etc/hostname", "/var/lib/gpud/gpud.db")
        yield made


def result(made: Machine, verb: str) -> object:
    """What is compared: all that was changed, or that nothing is left."""
    if verb != "uninstall":
        made.well("/opt/gpud/bin/gpud", "version")
        return ours(made)
    return listing(made)


def listing(made: Machine) -> list[str]:
    """Every name in the places of an installation, but for the backups of useradd and userdel."""
    places = ("/opt", "/etc", "/usr/local/bin", "/usr/local/share", "/var/lib", "/var/log", HOME)
    names = made.well("find", *places, "-xdev", "-not", "-path", "/var/lib/*/*").splitlines()
    return sorted(name for name in names if not name.endswith("-"))


@pytest.fixture(scope="module")
def undisturbed(light: Path, shared: Path, before: Machine) -> dict[str, object]:
    """What each verb comes to, and the number of its moments."""
    ends: dict[str, object] = {}
    for verb in VERBS:
        with machine(verb, shared, before) as made:
            began_s = time.monotonic()
            said = made.well(*stepwise(line(light, shared, verb), at=0))
            ends[f"{verb} takes"] = time.monotonic() - began_s
            ends[f"{verb} moments"] = said.count("moment ")
            ends[verb] = result(made, verb)
    with fresh(shared) as made:
        assert ends["uninstall"] == listing(made)
    return ends


def ends_well(made: Machine, asked: list[str], verb: str, undisturbed: dict[str, object]) -> None:
    if (made.root / "opt/gpud/bin").exists():  # what is in place is whole, or not there
        made.well("/opt/gpud/bin/python", "-I", "-c", "import gpud, msgspec")
    made.well(*asked)
    assert result(made, verb) == undisturbed[verb]


def killed_after(made: Machine, asked: list[str], delay_s: float) -> None:
    """Kill a command and all that it has started, unless it has ended by then."""
    process = made.start(*asked)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(delay_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@dataclass(frozen=True)
class Bench:
    """What a test of a verb needs."""

    light: Path
    shared: Path
    before: Machine
    undisturbed: dict[str, object]

    def killed_at(self, verb: str, at: int) -> None:
        """Kill a verb at a moment, and run it again."""
        asked = line(self.light, self.shared, verb)
        with machine(verb, self.shared, self.before) as made:
            killed = made.run(*stepwise(asked, at))
            assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
            print(verb, at, killed.stdout.splitlines()[-1])
            ends_well(made, asked, verb, self.undisturbed)

    def moments(self, verb: str) -> int:
        count = self.undisturbed[f"{verb} moments"]
        assert isinstance(count, int)
        return count


@pytest.fixture(scope="module")
def bench(light: Path, shared: Path, before: Machine, undisturbed: dict[str, object]) -> Bench:
    return Bench(light, shared, before, undisturbed)


@pytest.mark.parametrize("verb", VERBS)
def test_killed_before_or_after_a_step_the_next_run_ends_well(verb: str, bench: Bench) -> None:
    bench.killed_at(verb, random.Random(f"{SEED} {verb}").randint(1, bench.moments(verb)))


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("verb", VERBS)
def test_killed_before_and_after_each_step_the_next_run_ends_well(verb: str, bench: Bench) -> None:
    assert bench.moments(verb) > 8
    for at in range(1, bench.moments(verb) + 1):
        bench.killed_at(verb, at)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("verb", VERBS)
def test_killed_at_seeded_moments_the_next_run_ends_well(verb: str, bench: Bench) -> None:
    asked = line(bench.light, bench.shared, verb)
    takes_s = bench.undisturbed[f"{verb} takes"]
    assert isinstance(takes_s, float)
    rng = random.Random(SEED)
    for delay_s in (rng.uniform(0, takes_s) for _ in range(MOMENTS)):
        with machine(verb, bench.shared, bench.before) as made:
            print(f"{verb}: {delay_s:.2f} s of {takes_s:.1f} s")
            killed_after(made, asked, delay_s)
            ends_well(made, asked, verb, bench.undisturbed)


def test_upgrade_on_a_full_disk_leaves_what_runs_and_goes_on_when_there_is_room(
    bench: Bench,
) -> None:
    asked = line(bench.light, bench.shared, "upgrade")
    with machine("upgrade", bench.shared, bench.before) as made:
        mount = "mkdir /mnt/o; mount -t tmpfs -o size=48M tmpfs /mnt/o; cp -a /opt/gpud /mnt/o"
        made.well("sh", "-ec", f"{mount}; mount --move /mnt/o /opt; rmdir /mnt/o")
        mark = (made.root / "opt/gpud/.fingerprint").read_text()
        made.well("fallocate", "-l", str(free(made) - (4 << 20)), "/opt/else")
        ended = made.run(*asked)
        assert ended.returncode == 1
        assert "No space left on device" in ended.stderr
        assert (made.root / "opt/gpud/.fingerprint").read_text() == mark
        made.well("gpud", "version")
        made.well("rm", "/opt/else")
        made.well("mount", "-o", "remount,size=400M", "/opt")
        made.well(*asked)
        assert (made.root / "opt/gpud/.fingerprint").read_text() != mark
        made.well("gpud", "version")


def free(made: Machine) -> int:
    return int(made.well("df", "--output=avail", "-B1", "/opt").split()[1])


@pytest.mark.soak
def test_upgrade_without_a_network_leaves_what_runs_and_is_made_when_it_is_back(
    bench: Bench,
) -> None:
    script, *words = line(bench.light, bench.shared, "upgrade")
    at = words.index("--wheelhouse")
    asked = [script, *words[:at], *words[at + 2 :]]
    with machine("upgrade", bench.shared, bench.before) as made:
        ended = made.run("unshare", "--net", *asked)
        assert ended.returncode == 1
        assert "fix: check that the network reaches the package index" in ended.stderr
        made.well("gpud", "version")
        made.well(*asked)
        assert result(made, "upgrade") == bench.undisturbed["upgrade"]
