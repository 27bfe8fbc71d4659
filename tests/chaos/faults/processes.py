"""gpud's own processes: killed, stopped, out of memory and descriptors; pid files of strangers."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos.faults import fault, kill, notice

if TYPE_CHECKING:
    import random

    from tests.chaos.distribution import Distribution
    from tests.chaos.faults import Damage
    from tests.wsl.machine import Process

HELPER = "gpud.agent.telemetry.nvml"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def agents(distro: Distribution) -> list[Process]:
    return [p for p in distro.processes() if "-m gpud.agent --home" in p.command]


def children(distro: Distribution) -> list[Process]:
    return [p for p in distro.processes() if "gpud.child" in p.command]


@fault(of="agent")
def agent_killed(distro: Distribution, chance: random.Random) -> Damage:
    kill(agents(distro))
    yield None


@fault(of="agent")
def agent_stopped(distro: Distribution, chance: random.Random) -> Damage:
    victims = agents(distro)
    kill(victims, signal.SIGSTOP)
    yield None
    kill(victims, signal.SIGCONT)


@fault(of="child")
def child_killed(distro: Distribution, chance: random.Random) -> Damage:
    kill(children(distro))
    yield None


@fault(of="child")
def nvml_helper_killed(distro: Distribution, chance: random.Random) -> Damage:
    kill(p for p in distro.processes() if HELPER in p.command)
    yield None


@fault(of="root")
def root_killed(distro: Distribution, chance: random.Random) -> Damage:
    kill(distro.named("gpud"))
    yield None
    distro.open_shell()


@fault(of="root")
def everything_killed(distro: Distribution, chance: random.Random) -> Damage:
    kill(p for p in distro.processes() if p.name in {"gpud", "dockerd"} or "gpud." in p.command)
    yield None
    distro.open_shell()


@fault()
def pid_files_of_a_stranger(distro: Distribution, chance: random.Random) -> Damage:
    kill(p for p in distro.processes() if p.name in {"gpud", "dockerd"})
    distro.root(
        "setsid sleep 1000 >/dev/null 2>&1 & echo $! >/run/docker.pid;"
        'echo "$! 12345" >/run/gpud/root.pid'
    )
    yield None
    distro.open_shell()


@fault()
def agent_out_of_descriptors(distro: Distribution, chance: random.Random) -> Damage:
    victims = agents(distro)
    for agent in victims:
        used = len(list(Path(f"/proc/{agent.pid}/fd").iterdir()))
        _limit(distro, agent, f"--nofile={used + chance.randrange(3)}:")
    yield notice("probes", "spawn_failed")
    for agent in victims:
        _limit(distro, agent, "--nofile=1024:")


@fault("tracebacks")
def agent_out_of_memory(distro: Distribution, chance: random.Random) -> Damage:
    """Whatever of it cannot be mapped any more ends it, or costs what it did at that moment."""
    victims = agents(distro)
    for agent in victims:
        size = int(Path(f"/proc/{agent.pid}/statm").read_text().split()[0]) * PAGE_BYTES
        _limit(distro, agent, f"--as={size + chance.randrange(4 << 20)}:")
    yield None
    for agent in victims:
        _limit(distro, agent, "--as=unlimited:")


def _limit(distro: Distribution, agent: Process, limit: str) -> None:
    """Set a soft limit, as the agent's user; nothing happens to one that has ended."""
    user = "setpriv --reuid=gpud --regid=gpud --init-groups"
    distro.root(f"{user} prlimit --pid {agent.inner} {limit}")
