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
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.deploy.installing import HOME, fresh, install, uninstall
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


def line(light: Path, verb: str) -> list[str]:
    if verb == "uninstall":
        return uninstall(light, "--purge")
    script, *words = install(light, "--no-start")
    return [script.replace("checkout", "newer") if verb == "upgrade" else script, *words]


def stepwise(asked: list[str], at: int) -> list[str]:
    """Give the line that does the same and is killed at a moment."""
    script, *words = asked
    root, verb = Path(script).parents[1], Path(script).name
    python = ["/usr/bin/python3", "-I", "-B", "-c", STEPWISE]
    return [*python, str(root), str(at), verb, *words]


@contextlib.contextmanager
def machine(verb: str, light: Path, small: Machine) -> Iterator[Machine]:
    """A machine on which a verb has something to do."""
    with fresh(light, *([] if verb == "install" else [small.changes])) as made:
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


@dataclass(frozen=True)
class Course:
    """An undisturbed run of a verb: its seconds, the number of its moments, and its result."""

    takes_s: float
    moments: int
    result: object


def killed_after(made: Machine, asked: list[str], delay_s: float) -> None:
    """Kill a command and all that it has started, unless it has ended by then."""
    process = made.start(*asked)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(delay_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@dataclass
class Bench:
    """What a test of a verb needs."""

    light: Path
    small: Machine
    courses: dict[str, Course] = field(default_factory=dict)

    def undisturbed(self, verb: str) -> Course:
        """Run a verb to its end, once for all tests."""
        if verb not in self.courses:
            with machine(verb, self.light, self.small) as made:
                began_s = time.monotonic()
                said = made.well(*stepwise(line(self.light, verb), at=0))
                takes_s = time.monotonic() - began_s
                self.courses[verb] = Course(takes_s, said.count("moment "), result(made, verb))
        return self.courses[verb]

    def ends_well(self, made: Machine, verb: str) -> None:
        """Run a verb again, after which nothing tells that it was killed."""
        if (made.root / "opt/gpud/bin").exists():  # what is in place is whole, or not there
            made.well("/opt/gpud/bin/python", "-I", "-c", "import gpud, msgspec")
        made.well(*line(self.light, verb))
        assert result(made, verb) == self.undisturbed(verb).result

    def killed_at(self, verb: str, at: int) -> None:
        """Kill a verb at a moment, and run it again."""
        with machine(verb, self.light, self.small) as made:
            killed = made.run(*stepwise(line(self.light, verb), at))
            assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
            print(verb, at, killed.stdout.splitlines()[-1])
            self.ends_well(made, verb)


@pytest.fixture(scope="module")
def bench(light: Path, small: Machine) -> Bench:
    return Bench(light, small)


def test_nothing_is_left_where_an_installation_was_removed(bench: Bench) -> None:
    with fresh(bench.light) as made:
        assert bench.undisturbed("uninstall").result == listing(made)


@pytest.mark.parametrize("verb", ["upgrade", "uninstall"])
def test_killed_before_or_after_a_step_the_next_run_ends_well(verb: str, bench: Bench) -> None:
    moments = bench.undisturbed(verb).moments
    bench.killed_at(verb, random.Random(f"{SEED} {verb}").randint(1, moments))


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("verb", VERBS)
def test_killed_before_and_after_each_step_the_next_run_ends_well(verb: str, bench: Bench) -> None:
    moments = bench.undisturbed(verb).moments
    assert moments > 8
    for at in range(1, moments + 1):
        bench.killed_at(verb, at)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("verb", VERBS)
def test_killed_at_seeded_moments_the_next_run_ends_well(verb: str, bench: Bench) -> None:
    takes_s = bench.undisturbed(verb).takes_s
    rng = random.Random(SEED)
    for delay_s in (rng.uniform(0, takes_s) for _ in range(MOMENTS)):
        with machine(verb, bench.light, bench.small) as made:
            print(f"{verb}: {delay_s:.2f} s of {takes_s:.1f} s")
            killed_after(made, line(bench.light, verb), delay_s)
            bench.ends_well(made, verb)


def test_upgrade_on_a_full_disk_leaves_what_runs_and_goes_on_when_there_is_room(
    bench: Bench,
) -> None:
    asked = line(bench.light, "upgrade")
    with machine("upgrade", bench.light, bench.small) as made:
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
    script, *words = line(bench.light, "upgrade")
    at = words.index("--wheelhouse")
    asked = [script, *words[:at], *words[at + 2 :]]
    with machine("upgrade", bench.light, bench.small) as made:
        ended = made.run("unshare", "--net", *asked)
        assert ended.returncode == 1
        assert (
            "fix: the lines above say why; for want of a network use --wheelhouse" in ended.stderr
        )
        made.well("gpud", "version")
        made.well(*asked)
        assert result(made, "upgrade") == bench.undisturbed("upgrade").result
