"""What the hook adds to opening a shell while gpud runs, and what fifty shells at once begin.

    sudo .venv/bin/python benchmarks/shell.py [--rounds 300] [--shells 50]

The budget: 0.3 ms over an empty bashrc, and no process. Beside it stands the well-known recipe
(``ps aux | grep dockerd``), in the same rounds: every round opens one shell of each kind, and the
figures are medians over the rounds, of times and of differences to the empty shell in that round.
All of it runs as an unprivileged user in namespaces of its own, with the real sudo; gpud and
dockerd behind it only say that they were started.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.e2e.program import until
from tests.shell.world import ROOT, USER, World, world

HOME = f"/home/{USER}"
STARTED = "/run/started"
DOCKERD = "/run/bin/dockerd"
RECIPE = f"""
RUNNING=`ps aux | grep dockerd | grep -v grep`
if [ -z "$RUNNING" ]; then
  sudo -n {DOCKERD} > /dev/null 2>&1 & disown
fi
"""
SNIPPETS = {
    "bash": "bashrc.snippet",
    "zsh": "deploy/zshrc.snippet",
    "fish": "deploy/config.fish.snippet",
}
TIME = """
import json, subprocess, sys, time
cases, rounds = json.loads(sys.argv[1]), int(sys.argv[2])
quiet = {name: subprocess.DEVNULL for name in ("stdin", "stdout", "stderr")}
took = {name: [] for name in cases}
for _ in range(rounds):
    for name, line in cases.items():
        begun = time.perf_counter()
        subprocess.run(line, **quiet)
        took[name].append(time.perf_counter() - begun)
print(json.dumps(took))
"""
BURST = """
import json, os, subprocess, sys, time
line, shells = json.loads(sys.argv[1]), int(sys.argv[2])
quiet = {name: subprocess.DEVNULL for name in ("stdin", "stdout", "stderr")}
begun = time.perf_counter()
left = {(one := subprocess.Popen(line, **quiet)).pid: one for _ in range(shells)}
took = []
while left:
    pid, _ = os.wait()
    took.append(time.perf_counter() - begun)
    left.pop(pid).returncode = 0
print(json.dumps(took))
"""


def prepare(machine: World) -> dict[str, list[str]]:
    """Write the files that the shells read; gives the line that opens each."""
    cases = {}
    for shell, snippet in SNIPPETS.items():
        for kind, text in (("empty", ""), ("gpud", (ROOT / snippet).read_text())):
            place = f"{HOME}/{shell}-{kind}"
            machine.own(f"{place}/fish/generated_completions/none", "")
            machine.own(f"{place}/{'fish/config.fish' if shell == 'fish' else '.' + shell}", text)
            machine.own(f"{place}/.zshrc", text)
            cases[f"{shell} {kind}"] = {
                "bash": ["bash", "--noprofile", "--rcfile", f"{place}/.bash", "-i", "-c", "exit"],
                "zsh": ["env", f"ZDOTDIR={place}", "zsh", "-d", "-i", "-c", "exit"],
                "fish": [
                    *("env", f"XDG_CONFIG_HOME={place}", f"XDG_DATA_HOME={place}"),
                    *("fish", "-i", "-c", "exit"),
                ],
            }[shell]
    machine.own(f"{HOME}/recipe", RECIPE)
    line = ["bash", "--noprofile", "--rcfile", f"{HOME}/recipe", "-i", "-c", "exit"]
    return {"bash empty": cases.pop("bash empty"), "bash recipe": line} | cases


def inside(machine: World, code: str, *words: str) -> dict[str, list[float]] | list[float]:
    """Run one of the two scripts as the user."""
    done = machine.run("/usr/bin/python3", "-c", code, *words, within_s=None)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[float]] | list[float] = json.loads(done.stdout)
    return found


def alone(machine: World, rounds: int) -> None:
    """Print what one shell costs while gpud, and for the recipe dockerd, runs."""
    cases = prepare(machine)
    pid, start = machine.sleeper()
    machine.write("/run/gpud/root.pid", f"{pid} {start}\n")
    machine.root("setsid bash -c 'exec -a dockerd sleep 1000' >/dev/null 2>&1 &")
    took = inside(machine, TIME, json.dumps(cases), str(rounds))
    assert isinstance(took, dict)
    print(f"{'one shell':<14}{'median ms':>12}{'+ ms':>10}{'ratio':>8}")
    for name, times in took.items():
        base = took[f"{name.split()[0]} empty"]
        added = 1e3 * median(mine - empty for mine, empty in zip(times, base, strict=True))
        ratio = median(times) / median(base)
        print(f"{name:<14}{1e3 * median(times):12.2f}{added:10.2f}{ratio:8.2f}")


def burst(machine: World, name: str, shells: int) -> tuple[int, int, list[float]]:
    """Open many at once where nothing runs yet: starts, processes begun, seconds to each end."""
    machine.reset()
    machine.write(STARTED, "", 0o666)
    machine.write(DOCKERD, STANDIN, 0o755)
    line = prepare(machine)[name]
    before = newest(machine)
    with machine.covered("/opt/gpud/bin/gpud", STANDIN):
        took = inside(machine, BURST, json.dumps(line), str(shells))
        until(lambda: not busy(machine), "an end of all starters", within_s=60.0)
    assert isinstance(took, list)
    starts = len(machine.path(STARTED).read_text().splitlines())
    return starts, newest(machine) - before, took


def at_once(machine: World, shells: int) -> None:
    """Print what many shells do that open together."""
    print(f"\n{f'{shells} at once':<14}{'starts':>8}{'processes':>11}{'p50 ms':>9}{'max ms':>9}")
    _, looking, _ = burst(machine, "bash empty", 0)  # what it takes to measure
    for name in ("bash empty", "bash recipe", "bash gpud"):
        starts, begun, took = burst(machine, name, shells)
        times = f"{1e3 * median(took):9.0f}{1e3 * max(took):9.0f}"
        print(f"{name:<14}{starts:8d}{begun - looking:11d}{times}")


STANDIN = f"""#!/bin/bash
echo start >>{STARTED}
mkdir -p /run/gpud
setsid bash -c 'exec -a dockerd sleep 1000' </dev/null >/dev/null 2>&1 &
read -r stat </proc/$!/stat
set -- ${{stat##*) }}
echo "$! ${{20}}" >/run/gpud/root.pid
"""


def newest(machine: World) -> int:
    """Give the pid of a process that begins now: pids of the namespace count up by one."""
    return int(machine.root("echo $$"))


def busy(machine: World) -> list[str]:
    """Whatever still runs, but the stand-ins."""
    return [line for line in machine.processes().values() if "1000" not in line]


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--shells", type=int, default=50)
    given = parser.parse_args()
    with world() as machine:
        alone(machine, given.rounds)
        machine.write("/etc/sudoers.d/recipe", f"{USER} ALL=(root) NOPASSWD: {DOCKERD}\n", 0o440)
        at_once(machine, given.shells)


if __name__ == "__main__":
    main()
