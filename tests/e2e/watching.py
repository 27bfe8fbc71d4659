"""Scrape a program without pause and keep what it cost: latency, memory, processes.

This runs as a process of its own: what a test does meanwhile would count as latency.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAUSE_S = 0.1
STALL_S = 20.0
KEPT = re.compile(
    r"^(gpud_(?:telemetry_|probe_runs|probe_failures|health_reason|breaker_state|"
    r"gpu_temperature_celsius)\S*) (\S+)$",
    re.MULTILINE,
)
PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Scrape:
    """One answer and what the agent was like. Units: seconds, by the monotonic clock, and bytes.

    ``took_s`` is the time until the answer was there, less that for which agent or scraper could
    have run and the machine let others: what is left is the agent's own.
    """

    at_s: float
    took_s: float
    resident: int
    processes: list[str]  # below the agent, by their arguments
    series: dict[str, float]  # of the families below, as they are written
    error: str | None = None

    @property
    def level(self) -> int:
        return int(self.series.get("gpud_telemetry_level", 0))

    def has(self, family: str, *labels: str) -> bool:
        """Say whether there is a series with these labels: ``source="nvml"``."""
        return any(
            name.startswith(family) and all(label in name for label in labels)
            for name in self.series
        )


@dataclass
class Scraping:
    """All scrapes of one program so far."""

    pid: int
    file: IO[bytes]
    scrapes: list[Scrape] = field(default_factory=list)

    def since(self, at_s: float) -> list[Scrape]:
        self.heard()
        return [one for one in self.scrapes if one.at_s >= at_s]

    def level_from(self, level: int, at_s: float) -> float | None:
        """Give when after ``at_s`` the level was ``level`` for the first time."""
        return next((one.at_s for one in self.since(at_s) if one.level == level), None)

    def when(self, good: Callable[[Scrape], object], what: str, within_s: float = 60.0) -> Scrape:
        """Wait for a scrape from now on that is good."""
        self.heard()
        begun = len(self.scrapes)

        def look() -> Scrape | None:
            self.heard()
            return next((one for one in self.scrapes[begun:] if good(one)), None)

        from tests.waiting import until  # the process that scrapes has no tests

        try:
            return until(look, what, within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\nlast: {self.scrapes[-1:]}") from None

    def heard(self) -> None:
        """Take in what the scraper has said so far."""
        while line := self.file.readline():
            if not line.endswith(b"\n"):  # it is being written
                self.file.seek(-len(line), 1)
                return
            self.scrapes.append(Scrape(**json.loads(line)))


@contextlib.contextmanager
def scraping(port: int, pid: int) -> Iterator[Scraping]:
    """Scrape while the block runs; all that was seen is there after it."""
    command = [sys.executable, "-I", __file__, str(port), str(pid)]
    with (
        tempfile.NamedTemporaryFile() as written,
        Path(written.name).open("rb") as file,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=written) as process,
    ):
        found = Scraping(pid, file)
        try:
            yield found
        finally:
            process.communicate()
            found.heard()


def _scrape(port: int, pid: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=STALL_S)
    mine, theirs = "/proc/thread-self/schedstat", f"/proc/{pid}/task/{pid}/schedstat"
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        waited_s, begun_s = _waited_s(mine) + _waited_s(theirs), time.monotonic()
        body, error = b"", None
        try:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != http.client.OK:
                error = f"{answer.status}: {body!r:.200}"
        except (OSError, http.client.HTTPException) as trouble:
            error = f"{type(trouble).__name__}: {trouble}"
            connection.close()
        took_s = time.monotonic() - begun_s
        queued_s = _waited_s(mine) + _waited_s(theirs) - waited_s
        seen = Scrape(
            begun_s,
            max(took_s - queued_s, 0.0),
            _resident(pid),
            _below(pid),
            {name: float(value) for name, value in KEPT.findall(body.decode())},
            error,
        )
        print(json.dumps(asdict(seen)), flush=True)
    connection.close()


def _waited_s(path: str) -> float:
    """How long a thread could have run and was not let."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(path).read_text().split()[1]) / 1e9
    return 0.0


def _below(pid: int, above: str = "") -> list[str]:
    """List the living processes below one, each by its arguments.

    One with its parent's was forked a moment ago, and has not become itself.
    """
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                said = Path(f"/proc/{child}/cmdline").read_bytes()  # empty for one that has ended
                text = said.replace(b"\0", b" ").decode(errors="replace")
                found += [text] if text and text != above else []
                found += _below(child, text)
    return found


def _resident(pid: int) -> int:
    """Give the memory that a process holds."""
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
    return 0


if __name__ == "__main__":
    _scrape(*map(int, sys.argv[1:]))
