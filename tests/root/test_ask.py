from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from gpud.root.ask import Ask
from gpud.root.dockerd_facts import Api

if TYPE_CHECKING:
    from pathlib import Path


def test_listener_with_a_full_backlog_is_silent_and_not_gone(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(path)
        listener.listen(0)
        stack.enter_context(socket.socket(socket.AF_UNIX)).connect(path)
        assert Ask(path, "/_ping", now_s=0.0).api is Api.SILENT


def answered(folder: Path, answer: bytes) -> Ask:
    """Ask a listener that answers within the same beat."""
    path = str(folder / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        ask = Ask(path, "/_ping", now_s=0.0)
        with listener.accept()[0] as dockerd:
            dockerd.recv(1024)
            dockerd.sendall(answer)
        ask.read()
    return ask


def test_an_answer_within_the_same_beat_took_longer_than_nothing(tmp_path: Path) -> None:
    ask = answered(tmp_path, b"HTTP/1.0 200 OK\r\n\r\nOK")
    assert ask.api is Api.ANSWERS
    assert ask.took_s is not None
    assert ask.took_s > 0


@pytest.mark.parametrize(
    ("message", "api"),
    [
        (b'{"message":"authorization denied by plugin opa: no"}', Api.DENIED),
        (b"this is no dockerd", Api.SILENT),
    ],
)
def test_dockerd_with_a_plugin_that_refuses_the_ping_is_up(
    tmp_path: Path, message: bytes, api: Api
) -> None:
    ask = answered(tmp_path, b"HTTP/1.0 403 Forbidden\r\n\r\n" + message)
    assert ask.api is api
    assert ask.took_s is None
