"""The machine: clock, pause, shutdown, a crowd of shells, no more processes, a taken port."""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos.faults import fault, kill, notice
from tests.chaos.faults.processes import agents
from tests.waiting import until

if TYPE_CHECKING:
    import random

    from tests.chaos.distribution import Distribution
    from tests.chaos.faults import Damage

DAY_S, HOUR_S = 86400.0, 3600.0
SHELLS = 50


@fault()
def clock_jumps(distro: Distribution, chance: random.Random) -> Damage:
    far = chance.choice((DAY_S, -DAY_S, chance.uniform(-HOUR_S, HOUR_S), chance.uniform(-2.0, 2.0)))
    distro.move_clock(far)
    yield None
    distro.move_clock(-far)


@fault()
def paused(distro: Distribution, chance: random.Random) -> Damage:
    """Frozen for seconds, while the wall clock goes on by up to 12 hours."""
    frozen_s = chance.uniform(0.5, 4.0)
    passed_s = chance.choice((1.0, 60.0, HOUR_S, 12 * HOUR_S))
    distro.freeze(frozen=True)
    time.sleep(frozen_s)
    distro.move_clock(max(0.0, passed_s - frozen_s))
    distro.freeze(frozen=False)
    yield None


@fault("containers")
def wsl_shutdown(distro: Distribution, chance: random.Random) -> Damage:
    distro.shutdown()
    distro.boot()
    yield None


@fault()
def fifty_shells(distro: Distribution, chance: random.Random) -> Damage:
    if chance.random() < 0.5:
        kill(distro.named("gpud"))
    shells = [distro.open_shell() for _ in range(SHELLS)]
    yield None
    for shell in shells:
        with contextlib.suppress(OSError):
            shell.channel.shutdown(socket.SHUT_WR)  # the relay of the one that started gpud stays


@fault("tracebacks")
def no_more_processes(distro: Distribution, chance: random.Random) -> Damage:
    """What is no job of the schedule may log its traceback where it gets no thread."""
    group = Path("/sys/fs/cgroup/pids", distro.machine.groups.name)
    number = int((group / "pids.current").read_text()) - chance.randrange(3)
    (group / "pids.max").write_text(str(number))
    yield notice("probes", "spawn_failed")
    (group / "pids.max").write_text("max")


@fault()
def port_taken(distro: Distribution, chance: random.Random) -> Damage:
    kill(agents(distro))
    until(lambda: distro.ask("take"), "the port")
    yield notice("http")
    distro.ask("release")
