"""The file behind the shell's notice; that a shell shows it is tests/shell's."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud.agent.alerts.message import Message
from gpud.agent.alerts.sinks.notice import LONGEST, line
from gpud.core.alerts import TEST, Severity
from gpud.core.errors import DeliveryError
from tests.agent.alerts.telling import LOST, SLOW, context, ended, firing, hostile, only

if TYPE_CHECKING:
    from gpud.agent.alerts.sink import Sink

OVER = ended(SLOW, SLOW.starts_s + 60)
SAID = SLOW.summary.replace("µ", "u")
"""The notice is shown by whatever terminal there is."""


@pytest.fixture
def notice(tmp_path: Path) -> Sink:
    return only("notice", context(tmp_path))


def tell(sink: Sink, message: Message) -> str:
    asyncio.run(sink.send(message))
    return Path(sink.place).read_text(encoding="ascii")


def test_it_says_the_worst_and_how_much_more_there_is(notice: Sink) -> None:
    assert tell(notice, firing(SLOW)) == f"{SAID}\n"
    many = Message((), (), (LOST, SLOW, replace(SLOW, labels={})))
    assert tell(notice, many) == f"{LOST.summary} (and 2 more: gpud alerts)\n"


def test_what_ended_is_said_while_nothing_fires_and_then_nothing(notice: Sink) -> None:
    assert tell(notice, Message((), (OVER,), (), (OVER,))) == f"resolved: {SAID}\n"
    assert tell(notice, Message((), (), (LOST,), (OVER,))) == f"{LOST.summary}\n"
    later = replace(ended(LOST, OVER.updated_s + 1))
    assert line(Message((), (), (), (OVER, later))) == f"resolved: {LOST.summary}"
    assert tell(notice, Message()) == ""


@pytest.mark.parametrize("long", [False, True])
def test_whatever_it_is_told_it_is_a_line_of_ascii_that_a_shell_shows_whole(
    *, long: bool, tmp_path: Path, notice: Sink
) -> None:
    told = hostile(tmp_path / "mark", long=long)
    said = tell(notice, Message((), (), (told, SLOW)))
    assert len(said) <= LONGEST + 1 <= 300
    assert said.endswith(" (and 1 more: gpud alerts)\n")
    assert all(" " <= letter <= "~" for letter in said[:-1])


def test_it_is_written_in_place_and_not_when_nothing_changes(notice: Sink) -> None:
    """A file that root made stays the file that root made."""
    tell(notice, firing(LOST))
    before = Path(notice.place).stat()
    tell(notice, firing(LOST))
    assert Path(notice.place).stat().st_mtime_ns == before.st_mtime_ns
    tell(notice, firing(SLOW))
    assert Path(notice.place).stat().st_ino == before.st_ino


def test_a_test_does_not_take_the_place_of_what_fires(notice: Sink) -> None:
    test = replace(SLOW, name=TEST, severity=Severity.INFO, summary="a test")
    assert tell(notice, firing(test)) == "a test\n"
    tell(notice, firing(SLOW))
    assert tell(notice, firing(test)) == f"{SAID}\n"


@pytest.mark.parametrize("there", ["link", "fifo", "directory", "nothing"])
def test_what_is_no_plain_file_is_neither_followed_nor_waited_for(
    there: str, tmp_path: Path, notice: Sink
) -> None:
    path, elsewhere = tmp_path / "run/gpud/notice", tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    if there == "link":
        path.symlink_to(elsewhere)
    elif there == "fifo":
        os.mkfifo(path)
    elif there == "directory":
        path.mkdir()
    else:
        path.parent.rmdir()
    for attempt in (notice.ready(), notice.send(firing(SLOW))):
        with pytest.raises(DeliveryError) as caught:
            asyncio.run(attempt)
        assert caught.value.fix
    assert elsewhere.read_text() == "mine"
