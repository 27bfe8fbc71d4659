"""Scrape a program without pause and keep what it cost: latency, memory, processes."""

from __future__ import annotations

import contextlib
import http.client
import re
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.program import children_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PAUSE_S = 0.05
STALL_S = 20.0
LEVEL = re.compile(rb"^gpud_telemetry_level (\S+)", re.MULTILINE)
SOURCE = re.compile(rb'^gpud_telemetry_source_info\{.*source="(\w+)"', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Scrape:
    """One answer and what the agent was like. Units: seconds, by the monotonic clock, and bytes.

    ``took_s`` is the time until the answer was there, less that for which agent or scraper could
    have run and the machine let others: what is left is the agent's own.
    """

    at_s: float
    took_s: float
    resident: int
    processes: tuple[str, ...]  # below the agent, by their arguments
    level: int
    sources: frozenset[str]  # of the readings that are shown
    warm: bool  # there is a temperature


@dataclass
class Scraping:
    """All scrapes of one program so far."""

    port: int
    pid: int
    scrapes: list[Scrape] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    def since(self, at_s: float) -> list[Scrape]:
        return [one for one in self.scrapes if one.at_s >= at_s]

    def level_from(self, level: int, at_s: float) -> float | None:
        """Give when after ``at_s`` the level was ``level`` for the first time."""
        return next((one.at_s for one in self.since(at_s) if one.level == level), None)


@contextlib.contextmanager
def scraping(port: int, pid: int) -> Iterator[Scraping]:
    """Scrape from a thread while the block runs."""
    found, over = Scraping(port, pid), threading.Event()
    thread = threading.Thread(target=_scrape, args=(found, over))
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def helpers_of(pid: int) -> list[str]:
    """The living processes below the agent, by what was started: one line of arguments each."""
    found = []
    for child in children_of(pid):
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{child}/cmdline").read_bytes()
            found.append(text.replace(b"\0", b" ").decode(errors="replace").strip())
            found += helpers_of(child)
    return found


def resident(pid: int) -> int:
    """Give the memory that a process holds."""
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    return 0


def _scrape(found: Scraping, over: threading.Event) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", found.port, timeout=STALL_S)
    mine = f"/proc/self/task/{threading.get_native_id()}/schedstat"
    theirs = f"/proc/{found.pid}/task/{found.pid}/schedstat"
    while not over.wait(PAUSE_S):
        waited_s, begun_s = _waited_s(mine) + _waited_s(theirs), time.monotonic()
        try:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            found.errors.append(error)
            connection.close()
            continue
        took_s = time.monotonic() - begun_s
        queued_s = _waited_s(mine) + _waited_s(theirs) - waited_s
        if answer.status != 200:
            found.errors.append(AssertionError(f"{answer.status}: {body!r:.200}"))
            continue
        level = LEVEL.search(body)
        found.scrapes.append(
            Scrape(
                begun_s,
                max(took_s - queued_s, 0.0),
                resident(found.pid),
                tuple(helpers_of(found.pid)),
                int(float(level[1])) if level else 0,
                frozenset(source.decode() for source in SOURCE.findall(body)),
                b"\ngpud_gpu_temperature_celsius{" in body,
            )
        )
    connection.close()


def _waited_s(path: str) -> float:
    """How long a thread could have run and was not let."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(path).read_text().split()[1]) / 1e9
    return 0.0
