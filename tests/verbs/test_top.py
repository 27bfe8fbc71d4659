"""``gpud top`` on a real pty, beside an agent that sends what the test says."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from gpud.agent.regression.commands import ALERT_ACKNOWLEDGED
from gpud.requests import GpuProcess, TopLine
from tests import serving
from tests.terminals import Window, window
from tests.verbs import decisions, homes
from tests.verbs.homes import gpud, started
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator
    from pathlib import Path

COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?[34][0-8](?:;[0-9;]*)?m")
KEYS = "q leave g GPU s sort z zoom a ack p probe"


def document(**changes: Any) -> dict[str, Any]:
    """All is well with two GPUs, whose telemetry was read now."""
    made = homes.well() | {"alerts": [], **changes}
    made["telemetry"]["taken_s"] = time.time()
    readings = made["telemetry"]["readings"]
    made["gpus"]["GPU-2"] = {"number": 1, "name": "Second", "pci_bus_id": "", "cuda": False}
    second = tuple(each | {"gpu": 1} for each in readings if each["gpu"] == 0)
    made["telemetry"]["readings"] = readings + second
    return made


def sent(*processes: GpuProcess, pause: str | None = None, **changes: Any) -> TopLine:
    raw = msgspec.Raw(json.dumps(document(**changes)).encode())
    known = {} if pause else {0: processes, 1: ()}
    return TopLine(status=raw, pause=pause, processes=known)


@dataclass
class Feed:
    """Sends ``latest`` to all who are connected, whenever it is another."""

    latest: TopLine = field(default_factory=sent)
    connected: int = 0

    async def lines(self) -> AsyncGenerator[TopLine, None]:
        self.connected += 1
        before = None
        try:
            while True:
                if before is not self.latest:
                    before = self.latest
                    yield before
                await asyncio.sleep(0.02)
        finally:
            self.connected -= 1


@contextmanager
def shown(
    home: Path, feed: Feed, columns: int = 100, rows: int = 50, **environ: str
) -> Iterator[tuple[Window, serving.Decisions]]:
    snapshot = decisions.snapshot()
    with (
        serving.agent(home, snapshot, watching=feed) as made,  # type: ignore[arg-type]
        window(gpud(home, "top"), columns=columns, rows=rows, environ=environ) as terminal,
    ):
        yield terminal, made


def see(terminal: Window, words: str) -> None:
    """Wait for words in one row, whatever their colours."""
    terminal.expect(r"(?:\x1b\[[0-9;]*m)*".join(map(re.escape, words.split("|"))))


def test_gpu_its_processes_figures_and_keys_are_on_one_screen(tmp_path: Path) -> None:
    ours = GpuProcess(os.getpid(), "C", 1 << 30)
    feed = Feed(sent(GpuProcess(1, "C+G"), ours))
    with shown(tmp_path, feed) as (terminal, _):
        see(terminal, "telemetry every second")
        see(terminal, "GPU 0: ")
        see(terminal, "  use               7 %")
        see(terminal, "Processes| 2, by memory")
        name = re.escape(sys.executable.rpartition("/")[2])
        terminal.expect(rf"{os.getpid()} C +1\.0 GiB \S+ +\S*{name}")
        see(terminal, "launch submit")
        see(terminal, "Docker: ")
        see(terminal, KEYS)
        feed.latest = sent(GpuProcess(1, "C+G"), ours)
        see(terminal, "▁▁")
        terminal.send("q")
        assert terminal.ended() == 0
    assert feed.connected == 0


def test_each_key_does_what_the_last_row_says(tmp_path: Path) -> None:
    feed = Feed(sent(GpuProcess(7_000_001, "C", 5 << 20), GpuProcess(7_000_002, "G", 9 << 20)))
    with shown(tmp_path, feed) as (terminal, _):
        terminal.expect(r"7000002 G[^\n]*\n.*7000001 C")
        see(terminal, KEYS)
        terminal.send("s")
        terminal.expect(r"2, by pid(?s:.*?)7000001 C(?s:.*?)7000002 G")
        terminal.send("z")
        see(terminal, "5 in a column")
        terminal.send("g")
        see(terminal, "GPU 1: ")
        see(terminal, "Processes: |none")
        terminal.send("a")
        see(terminal, "no alert waits for you")
        terminal.send("\x03")
        assert terminal.ended() == 130
        assert "Traceback" not in terminal.everything


def test_first_alert_is_acknowledged_and_a_probe_is_chosen_run_and_told_of(tmp_path: Path) -> None:
    alert = decisions.alert()
    with shown(tmp_path, Feed(sent(alerts=[alert]))) as (terminal, made):
        see(terminal, KEYS)
        made.answers.clear()
        terminal.send("a")
        see(terminal, "asked for it ...")
        terminal.send("a")
        see(terminal, "wait for the end of what you asked for before")
        made.answers.set()
        see(terminal, f"acknowledged {alert['fingerprint'][:8]}")
        assert made.made == [(ALERT_ACKNOWLEDGED, alert["fingerprint"])]
        terminal.send("p")
        see(terminal, "all probes")
        terminal.send("\x1b[F\x1b[A\x1b[A\r")  # two above the last
        see(terminal, "cpu_call")
        terminal.expect(r"cpu_call: call [\d.]+ .s")


def test_at_60_columns_nothing_is_lost_and_another_size_is_drawn_at_once(tmp_path: Path) -> None:
    with shown(tmp_path, Feed(), columns=60, rows=20) as (terminal, _):
        see(terminal, "GPU 0: ")
        terminal.expect(r"\x1b\[(?:19|20);1H(?:\x1b\[[\d;]+m)*" + re.escape(KEYS))
        terminal.expect(r"\d+ below")
        terminal.resize(60, 160)
        terminal.expect(r"\x1b\[60;1H(?:\x1b\[[\d;]+m)*" + re.escape(KEYS))


def test_no_colour_and_no_letter_beyond_ascii_where_they_are_not_wanted(tmp_path: Path) -> None:
    feed = Feed()
    with shown(tmp_path, feed, NO_COLOR="1", LANG="C", LC_ALL="C") as (terminal, _):
        see(terminal, KEYS)
        feed.latest = sent()
        see(terminal, "__")
        terminal.send("p")
        see(terminal, "all probes")
        terminal.send("q")
        see(terminal, KEYS)
        terminal.send("q")
        assert terminal.ended() == 0
        assert terminal.everything.isascii()
        assert COLOUR.findall(terminal.everything) == []


def test_restarted_agent_is_followed_again(tmp_path: Path) -> None:
    feed: Any = Feed()
    with ExitStack() as stack:
        agent = stack.enter_context(ExitStack())
        agent.enter_context(serving.agent(tmp_path, decisions.snapshot(), watching=feed))
        terminal = stack.enter_context(window(gpud(tmp_path, "top"), columns=160))
        see(terminal, KEYS)
        agent.close()
        see(terminal, "ended before it had answered")
        see(terminal, "its agent is starting")
        feed.latest = sent(pause="from the new one")
        agent.enter_context(serving.agent(tmp_path, decisions.snapshot(), watching=feed))
        see(terminal, "telemetry from the new one")
        see(terminal, "Processes: |not known: telemetry from the new one")
        terminal.send("q")
        assert terminal.ended() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_process_of_a_user_whom_only_a_container_knows_has_the_users_number(tmp_path: Path) -> None:
    words = ["setpriv", "--reuid=54321", "--clear-groups", "sleep", "600"]
    with subprocess.Popen(words) as process, ExitStack() as stack:
        stack.callback(process.kill)
        feed = Feed(sent(GpuProcess(process.pid, "C", 1 << 30)))
        terminal, _ = stack.enter_context(shown(tmp_path, feed))
        terminal.expect(rf"{process.pid} C +1\.0 GiB 54321 +sleep")


def test_client_that_is_killed_is_gone_for_the_agent_too(tmp_path: Path) -> None:
    feed = Feed()
    with shown(tmp_path, feed) as (terminal, _):
        see(terminal, KEYS)
        assert feed.connected == 1
        os.kill(terminal.pid, signal.SIGKILL)
        until(lambda: feed.connected == 0, "the end of the fast telemetry")


def test_without_an_agent_it_is_3_and_without_a_terminal_2(tmp_path: Path) -> None:
    with window(gpud(tmp_path, "top")) as terminal:
        assert terminal.ended() == 3
        assert "gpud is not running" in terminal.everything
        assert "fix: " in terminal.everything
    ran = started(tmp_path, "top")
    assert (ran.code, ran.out) == (2, "")
    assert "needs a terminal" in ran.err
