"""How soon a dockerd is back, kept by gpud and by supervisord in the same run.

    .venv/bin/python benchmarks/dockerd.py [--kills 100] [--quick-kills 100] [--hangs 3]

Each of the two keeps a private dockerd of its own, with the same program and flags, as its own
defaults say (supervisord: ``autorestart=true``). They take turns: ``kill -9``, and the time to a
good ``/_ping`` from a new process; each dockerd has lived ``--lived`` seconds before its next kill,
since supervisord gives up on a program that thrice lives less than ``startsecs`` (1 s). gpud is
then also killed with no pause at all. The cold start beside them is that of a third dockerd,
started directly all along the run. Needs root, dockerd, and Debian's package ``supervisor``.

A dockerd hangs in two ways: stopped (``SIGSTOP``), and silent and idle, because its authorization
plugin gives no answer. supervisord meets each once, for ``--hung-within`` seconds. ``--kills 0``
leaves all but gpud's hangs out, and needs no supervisord. ``busy_dockerd.py`` has the busy ones.

The budget is the median of gpud within the cold start + 0.3 s, and 15 s for each hung dockerd, from
its last moment to the first answer of the next. Exit code 1 beyond it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests import authz
from tests.dockerd import PrivateDockerd, private_dockerd
from tests.e2e.program import alive, program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BUDGET_S = 0.3
HUNG_BUDGET_S = 15.0
WELL_AFTER_S = 31.0
"""What ends sooner has failed to live, and the next start waits longer with each such end."""
LOOK_EVERY_S = 0.002
BACK_WITHIN_S = 30.0
REAPING = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER, kept over an exec
os.execvp(sys.argv[1], sys.argv[1:])
"""
CONF = """[supervisord]
nodaemon=true
user=root
logfile={root}/supervisord.log
pidfile={root}/supervisord.pid
childlogdir={root}

[program:dockerd]
command={command}
autorestart=true
"""


@dataclass
class Kept:
    """One dockerd, who keeps it, and the times it took to come back."""

    keeper: str
    dockerd: PrivateDockerd
    pid: int = 0
    born_s: float = 0.0
    times: list[float] = field(default_factory=list)

    def settle(self, lived_s: float) -> None:
        """Let it grow as old as it has to be."""
        time.sleep(max(0.0, self.born_s + lived_s - time.monotonic()))

    def wait_back(self, since_s: float, within_s: float = BACK_WITHIN_S) -> float | None:
        """Give the seconds from ``since_s`` to a good answer of another process than before."""
        while time.monotonic() - since_s < within_s:
            pid = who_answers(self.dockerd.socket)
            if pid is not None and pid != self.pid:
                self.pid, self.born_s = pid, time.monotonic()
                return self.born_s - since_s
            time.sleep(LOOK_EVERY_S)
        return None

    def kill(self) -> float:
        """End it as nobody can refuse, and time its return."""
        begun_s = time.monotonic()
        os.kill(self.pid, signal.SIGKILL)
        took_s = self.wait_back(begun_s)
        assert took_s is not None, f"not back within {BACK_WITHIN_S:g} s, kept by {self.keeper}"
        return took_s

    def line(self, name: str, cold_s: float) -> str:
        """One row of the table."""
        middle = median(self.times)
        return (
            f"{name:34} {len(self.times):5}  {middle:7.3f} s  {max(self.times):7.3f} s"
            f"  {middle - cold_s:+7.3f} s"
        )


def who_answers(path: str) -> int | None:
    """Give the pid behind a good ``/_ping``; None while there is none."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(0.5)
        asking.connect(path)
        asking.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
        if b" 200 " in asking.recv(4096):
            raw = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            pid: int = struct.unpack("iII", raw)[0]
            return pid
    return None


@contextlib.contextmanager
def kept_by_gpud(*more: str) -> Iterator[Kept]:
    """``gpud run``, whole, with its default times; ``more`` are flags of dockerd."""
    with (
        private_dockerd() as dockerd,
        program(dockerd=dockerd.settings(args=(*dockerd.args, *more))) as gpud,
    ):
        gpud.start()
        kept = Kept("gpud", dockerd)
        assert kept.wait_back(time.monotonic()), gpud.logs()
        yield kept


@contextlib.contextmanager
def kept_by_supervisord(*more: str) -> Iterator[Kept]:
    """Run supervisord with its default times, and orphans reaped as a good pid 1 would.

    Under a pid 1 that does not, the zombie of the old containerd would cost dockerd another 15 s.
    """
    with private_dockerd() as dockerd:
        conf = dockerd.root / "supervisord.conf"
        conf.write_text(CONF.format(root=dockerd.root, command=" ".join([*dockerd.argv(), *more])))
        running = subprocess.Popen(
            [sys.executable, "-c", REAPING, "supervisord", "-n", "-c", conf],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            kept = Kept("supervisord", dockerd)
            assert kept.wait_back(time.monotonic()), (dockerd.root / "supervisord.log").read_text()
            yield kept
        finally:
            running.terminate()
            running.wait()


def cold_start(dockerd: PrivateDockerd) -> float:
    """Start a dockerd directly and end it again; seconds to its first good answer."""
    with (dockerd.root / "log").open("wb") as log:
        begun_s = time.monotonic()
        started = subprocess.Popen(dockerd.argv(), stdout=log, stderr=log)
        try:
            while who_answers(dockerd.socket) is None:
                assert time.monotonic() - begun_s < BACK_WITHIN_S
                time.sleep(LOOK_EVERY_S)
            return time.monotonic() - begun_s
        finally:
            started.terminate()
            started.wait()


def hung(
    kept: Kept, hang: Callable[[], object], heal: Callable[[], object], within_s: float
) -> float | None:
    """Hang it at any moment between two pings; seconds to a good answer of another."""
    kept.settle(WELL_AFTER_S + random.random())
    begun_s, old = time.monotonic(), kept.pid
    hang()
    while alive(old) and time.monotonic() - begun_s < within_s:
        time.sleep(LOOK_EVERY_S)
    heal()  # a plugin has to answer for the next one as well
    return kept.wait_back(begun_s, within_s)


def stop(kept: Kept, within_s: float) -> float | None:
    """Stop it with SIGSTOP; let it run again when nobody replaces it."""
    pid = kept.pid

    def resume() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    return hung(kept, lambda: os.kill(pid, signal.SIGSTOP), resume, within_s)


def hangs(given: argparse.Namespace) -> bool:
    """Print how soon a hung dockerd is replaced; True within the budget."""
    times: list[float | None] = []
    keepers = [("gpud", kept_by_gpud, given.hangs)]
    if given.kills:
        keepers.append(("supervisord", kept_by_supervisord, 1))
    for name, keeper, count in keepers:
        with authz.plugin() as plugin, keeper(plugin.flag) as kept:
            ways: dict[str, Callable[[], float | None]] = {
                "stopped": lambda: stop(kept, given.hung_within),
                "silent and idle": lambda: hung(
                    kept, plugin.silence, plugin.speak, given.hung_within
                ),
            }
            for way, replaced in ways.items():
                took = [replaced() for _ in range(count)]
                good = [each for each in took if each is not None]
                words = f"{median(good):7.3f} s  {max(good):7.3f} s" if good else ""
                missed = f"  {len(took) - len(good)} not replaced" if len(good) < len(took) else ""
                print(f"{f'{way}, kept by {name}':34} {len(took):5}  {words}{missed}", flush=True)
                times += took if name == "gpud" else []
    return all(each is not None and each <= HUNG_BUDGET_S for each in times)


def kills(given: argparse.Namespace) -> bool:
    """Print how soon a killed dockerd is back; True within the budget."""
    cold: list[float] = []
    with kept_by_gpud() as ours, kept_by_supervisord() as theirs, private_dockerd() as direct:
        for number in range(given.kills):
            if number % 5 == 0:
                cold.append(cold_start(direct))
            for kept in (ours, theirs) if number % 2 else (theirs, ours):
                kept.settle(given.lived)
                kept.times.append(kept.kill())
        at_once = Kept("gpud", ours.dockerd, ours.pid)
        at_once.times = [at_once.kill() for _ in range(given.quick_kills)]
    cold_s = median(cold)
    print(f"{'cold start of dockerd':34} {len(cold):5}  {cold_s:7.3f} s  {max(cold):7.3f} s")
    print(ours.line("killed, kept by gpud", cold_s))
    print(theirs.line("killed, kept by supervisord", cold_s))
    if at_once.times:
        print(at_once.line("killed without pause, kept by gpud", cold_s))
    ratio = median(theirs.times) / median(ours.times)
    print(f"supervisord takes {ratio:.1f} times as long as gpud")
    return median(ours.times) <= cold_s + BUDGET_S


def main() -> int:
    """Print the table."""
    given = _arguments()
    for needed in ("dockerd", "supervisord") if given.kills else ("dockerd",):
        if shutil.which(needed) is None:
            package = {"dockerd": "docker.io", "supervisord": "supervisor"}[needed]
            print(f"needs {needed}: sudo apt-get install {package}", file=sys.stderr)
            return 2
    if os.geteuid() != 0:
        print("needs root: dockerd does", file=sys.stderr)
        return 2
    print(f"{'':34} {'n':>5}  {'median':>9}  {'worst':>9}  over cold start")
    kept = {}
    if given.kills:
        kept[f"cold start + {BUDGET_S:g} s"] = kills(given)
    if given.hangs:
        kept[f"hung: {HUNG_BUDGET_S:g} s"] = hangs(given)
    for name, well in kept.items():
        print(f"budget: {name}: {'kept' if well else 'MISSED'}")
    return 0 if all(kept.values()) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--quick-kills", type=int, default=100)
    parser.add_argument("--lived", type=float, default=1.5)
    parser.add_argument("--hangs", type=int, default=3)
    parser.add_argument("--hung-within", type=float, default=60.0)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
