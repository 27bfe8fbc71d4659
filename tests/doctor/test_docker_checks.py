"""Checks of dockerd, of access to it and of the container toolkit."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpud.core.report import DockerdReport
from gpud.doctor.checks.docker import SocketState, docker, docker_access, live_restore
from tests.doctor.trees import (
    ADVICE,
    LINUX,
    OK,
    PERSON,
    PROBLEM,
    UNKNOWN,
    expect,
    machine,
    program,
    report,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpud.doctor.finding import Verdict


@contextmanager
def docker_socket(tree: Path, answer: bytes | None) -> Iterator[None]:
    """Listen at the machine's Docker socket; None answers nothing."""
    path = tree / "run/docker.sock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        if answer is None:
            yield
            return

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        thread.join(timeout=10)


@pytest.mark.parametrize(
    ("files", "installed", "with_program", "verdict", "words"),
    [
        (LINUX, True, False, ADVICE, "no Docker on this machine"),
        (LINUX, True, True, PROBLEM, "gpud is not running"),
        (LINUX, False, True, ADVICE, "gpud is not running"),
    ],
)
def test_dockerd_that_is_down_without_gpud_is_started_by_gpud(
    files: dict[str, str],
    *,
    installed: bool,
    with_program: bool,
    verdict: Verdict,
    words: str,
    tmp_path: Path,
) -> None:
    if with_program:
        program(tmp_path, "dockerd")
    expect(docker.look(machine(tmp_path, files, installed=installed)), verdict, words)


def test_dockerd_that_gpud_leaves_alone_may_be_down(tmp_path: Path) -> None:
    program(tmp_path, "dockerd")
    off = report(DockerdReport(state="off", policy="off", up=None))
    expect(docker.look(machine(tmp_path, LINUX, root=off)), OK, "gpud leaves it alone")
    expect(live_restore.look(machine(tmp_path, LINUX, root=off)), OK, "not looked at")


@pytest.mark.parametrize(
    ("answer", "verdict", "words"),
    [
        (b'{"Version": "24.0.7"}', OK, "24.0.7"),
        (b"no JSON", OK, "up"),
        (b'{"Version": 3}', OK, "up"),
        (None, PROBLEM, "it listens and does not answer"),
    ],
)
def test_socket_answers_where_root_reports_nothing(
    answer: bytes | None, verdict: Verdict, words: str, tmp_path: Path
) -> None:
    with docker_socket(tmp_path, answer):
        expect(docker.look(machine(tmp_path, LINUX)), verdict, words)
    refused = docker.look(machine(tmp_path, LINUX))  # the file is there, and nothing listens
    expect(refused, ADVICE, "no Docker")


@pytest.mark.parametrize(
    ("members", "groups", "words"),
    [
        ("bob,ada", (1000,), "you are in group docker, and this session began before"),
        ("bob,ada", (1000, 990), "not for group docker"),
        ("bob", (1000,), "not in group docker"),
    ],
)
def test_a_refusal_is_explained_by_the_groups_of_the_session(
    members: str,
    groups: tuple[int, ...],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    denied = (SocketState.DENIED, None)  # root is never refused
    monkeypatch.setattr("gpud.doctor.checks.docker.ask_version", lambda _: denied)
    files = {"/etc/group": f"root:x:0:\nbroken\ndocker:x:990:{members}\ndockerx:x:1:eve\n"}
    made = machine(tmp_path, files, person=replace(PERSON, groups=groups))
    expect(docker_access.look(made), ADVICE, words)


def test_docker_host_may_name_the_same_socket_by_another_path(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("../run")
    for host in ("unix:///var/run/docker.sock", "unix:///run/docker.sock"):
        finding = docker_access.look(machine(tmp_path, {}, environ={"DOCKER_HOST": host}))
        expect(finding, UNKNOWN, "dockerd is down")
    with docker_socket(tmp_path, b"{}"):
        expect(docker_access.look(machine(tmp_path, {})), OK, "equals root")
    for host in ("unix:///srv/docker.sock", "tcp://127.0.0.1:2375", "ssh://there"):
        finding = docker_access.look(machine(tmp_path, {}, environ={"DOCKER_HOST": host}))
        expect(finding, OK, "another one")
