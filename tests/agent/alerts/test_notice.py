"""The file behind the shell's notice; that a shell shows it is tests/shell's."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from gpud.agent.alerts.message import Message
from gpud.agent.alerts.sinks.notice import LONGEST
from tests.agent.alerts.telling import LOST, SLOW, context, ended, firing, hostile, only, refusal

if TYPE_CHECKING:
    from gpud.agent.alerts.sink import Sink

OVER = ended(SLOW, SLOW.starts_s + 60)
LINE = SLOW.summary.replace("µ", "u")
"""The notice is shown by whatever terminal there is."""


@pytest.fixture
def notice(tmp_path: Path) -> Sink:
    return only("notice", context(tmp_path))


def shown(sink: Sink, message: Message) -> str:
    asyncio.run(sink.send(message))
    return Path(sink.place).read_text(encoding="ascii")


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (firing(SLOW), f"{LINE}\n"),
        (
            Message((), (), (LOST, SLOW, structs.replace(SLOW, labels={}))),
            f"{LOST.summary} (and 2 more: gpud alerts)\n",
        ),
        (Message((), (OVER,)), f"resolved: {LINE}\n"),
        (Message((), (OVER,), (LOST,)), f"{LOST.summary}\n"),
        (Message((), (OVER, ended(LOST, OVER.updated_s + 1))), f"resolved: {LOST.summary}\n"),
        (Message(), ""),
    ],
)
def test_notice_has_the_worst_of_what_fires_or_what_ended_last(
    message: Message, text: str, notice: Sink
) -> None:
    shown(notice, firing(LOST))
    assert shown(notice, message) == text


def test_notice_is_a_line_of_ascii_that_a_shell_shows_whole(tmp_path: Path, notice: Sink) -> None:
    alert = hostile(tmp_path / "mark", long=True)
    text = shown(notice, Message((), (), (alert, SLOW)))
    assert len(text) <= LONGEST + 1 <= 300
    assert text.endswith(" (and 1 more: gpud alerts)\n")
    assert all(" " <= letter <= "~" for letter in text[:-1])


def test_it_is_written_in_place_and_not_when_nothing_changes(notice: Sink) -> None:
    """A file that root made stays the file that root made."""
    shown(notice, firing(LOST))
    before = Path(notice.place).stat()
    shown(notice, firing(LOST))
    assert Path(notice.place).stat().st_mtime_ns == before.st_mtime_ns
    shown(notice, firing(SLOW))
    assert Path(notice.place).stat().st_ino == before.st_ino


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
    assert refusal(notice, firing(SLOW)).fix
    assert elsewhere.read_text() == "mine"
