"""CPU time and thread states of a process and its descendants, read from /proc."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.root import process
from gpud.root.dockerd_facts import Activity

if TYPE_CHECKING:
    from collections.abc import Iterable

IDLE = frozenset("STIXZ")
"""Thread states without work: asleep, stopped, ended. In all others a thread runs or waits for a
processor (R), waits for a disk (D), or is held by a debugger (t)."""
READS = 3
READ_EVERY_S = 0.02
"""An idle Go program runs for a moment now and then; one that is starved of CPU stays in R."""
RELAY = "docker-proxy"
"""dockerd's child for a published port: the traffic of a container is no work of dockerd's."""


def read(main: int, others: Iterable[int] = ()) -> Activity | None:
    """Read what ``main``, ``others`` and their descendants do; None once ``main`` has ended."""
    reading = _read(main, others)
    for _ in range(READS - 1):
        if reading is None or reading[0] - IDLE != {"R"}:
            break
        time.sleep(READ_EVERY_S)
        reading = _read(main, others)
    if reading is None:
        return None
    states, ticks = reading
    return Activity(not states <= IDLE, ticks / process.TICKS, stopped=states == {"T"})


def _read(main: int, others: Iterable[int]) -> tuple[set[str], int] | None:
    """Give the states of all threads and the clock ticks used; a stopped ``main`` counts alone."""
    states = _states(main)
    if not states:
        return None
    pids = [main] if states == {"T"} else _family({main, *others})
    ticks = 0
    for pid in pids:
        states |= _states(pid)
        ticks += sum(map(int, process.stat(pid)[11:15]))  # user, system, and of ended children
    return states, ticks


def _states(pid: int) -> set[str]:
    try:
        threads = [thread.name for thread in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return set()
    return {fields[0] for thread in threads if (fields := process.stat(f"{pid}/task/{thread}"))}


def _family(roots: set[int]) -> list[int]:
    """Give ``roots`` and every process below them, without the relays of ports."""
    children: dict[int, list[int]] = {}
    for pid in process.pids():
        parent = process.parent(pid)
        if parent is not None:
            children.setdefault(parent, []).append(pid)
    family, left = set[int](), list(roots)
    while left:
        pid = left.pop()
        if pid not in family and process.name(pid) != RELAY:
            family.add(pid)
            left += children.get(pid, [])
    return sorted(family)
