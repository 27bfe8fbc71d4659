"""What dockerd answers, and what is learned of it."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import TYPE_CHECKING

import pytest

from gpud.root.ask import Ask
from gpud.root.dockerd_facts import Api
from gpud.root.report import Facts, learned

if TYPE_CHECKING:
    from pathlib import Path


def test_listener_with_a_full_backlog_is_silent_and_not_gone(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(path)
        listener.listen(0)
        stack.enter_context(socket.socket(socket.AF_UNIX)).connect(path)
        assert Ask(path, "/_ping").api is Api.SILENT


@pytest.mark.parametrize(
    ("answer", "api"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\nOK", Api.ANSWERS),
        (
            b'HTTP/1.0 403 Forbidden\r\n\r\n{"message":"authorization denied by plugin opa: no"}',
            Api.DENIED,
        ),
        (b"HTTP/1.0 403 Forbidden\r\n\r\nthis is no dockerd", Api.SILENT),
    ],
    ids=["well", "plugin that refuses the ping", "another program"],
)
def test_answer_within_the_same_beat_tells_who_answers_and_took_longer_than_nothing(
    tmp_path: Path, answer: bytes, api: Api
) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        ask = Ask(path, "/_ping")
        with listener.accept()[0] as dockerd:
            dockerd.recv(1024)
            dockerd.sendall(answer)
        ask.read()
    assert ask.api is api
    assert ask.took_s != 0.0
    assert (ask.took_s is None) == (api is not Api.ANSWERS)


FACTS = Facts(server_version="20.10.24", live_restore_enabled=True, containers_running=2)


def test_facts_of_dockerd_are_stored() -> None:
    assert learned(Facts(), b'{"ServerVersion": "29.0", "Os": 7}').server_version == "29.0"
    assert learned(FACTS, b'{"LiveRestoreEnabled": false}').live_restore_enabled is False
    assert learned(FACTS, b'{"ContainersRunning": 0}').containers_running == 0


NAMES = ("ServerVersion", "LiveRestoreEnabled", "ContainersRunning")
OF_ANOTHER_KIND = (None, "", 7.5, ["x"], {"a": 1}, -1, 10**30, "x" * 1_000_000)
JUNK = [json.dumps({name: junk}).encode() for name in NAMES for junk in OF_ANOTHER_KIND]


@pytest.mark.parametrize("answer", [*JUNK, b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_an_answer_of_another_kind_changes_nothing(answer: bytes) -> None:
    assert learned(FACTS, answer) == FACTS
