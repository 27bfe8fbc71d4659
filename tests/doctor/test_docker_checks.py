"""Checks of dockerd, of access to it and of the container toolkit."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from gpud.core.report import ContainersReport, Owner, ProbeStage, ToolkitReport, ToolkitState
from gpud.doctor.checks.docker import SocketState, docker, docker_access, live_restore, toolkit
from tests.doctor.trees import (
    ADVICE,
    LINUX,
    OK,
    PERSON,
    PROBLEM,
    SYSTEMD,
    UNKNOWN,
    WSL2,
    dockerd_up,
    expect,
    machine,
    program,
    report,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpud.core.report import RootReport
    from gpud.doctor.finding import Verdict

SYSTEMD_DOCKER = {"/etc/systemd/system/sockets.target.wants/docker.socket": ""}


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
    ("changed", "verdict", "words", "fix"),
    [
        ({}, OK, "20.10.24+dfsg1, kept by gpud", None),
        ({"reason": "x", "detail": "slow"}, ADVICE, "slow", "gpud status"),
        (
            {"up": False, "state": "down", "detail": "no space left", "fix": "make room"},
            PROBLEM,
            "no space left",
            "make room",
        ),
        (
            {"up": False, "state": "unresponsive", "detail": "x"},
            PROBLEM,
            "down: x",
            "sudo gpud logs --component dockerd says more",
        ),
        (
            {"up": False, "state": "absent", "owner": Owner.NONE, "detail": "no dockerd"},
            ADVICE,
            "no dockerd",
            "start dockerd",
        ),
        ({"up": False, "state": "starting"}, UNKNOWN, "starting", "ask again in a moment"),
    ],
)
def test_roots_report_of_dockerd_is_passed_on_with_its_fix(
    changed: dict[str, object], verdict: Verdict, words: str, fix: str | None, tmp_path: Path
) -> None:
    finding = docker.look(machine(tmp_path, LINUX, root=report(dockerd_up(**changed))))
    expect(finding, verdict, words)
    assert finding.fix == fix


@pytest.mark.parametrize(
    ("files", "installed", "with_program", "verdict", "words"),
    [
        (LINUX, True, False, ADVICE, "no Docker on this machine"),
        (LINUX, True, True, PROBLEM, "gpud is not running"),
        (LINUX, False, True, ADVICE, "nobody keeps it"),
        (LINUX | SYSTEMD | SYSTEMD_DOCKER, True, True, PROBLEM, "down, systemd's"),
    ],
)
def test_without_root_a_dockerd_that_is_down_is_its_owners(
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
    ("text", "words"),
    [
        ('{"debug": true,}', "daemon.json is not JSON"),
        ("[]", "daemon.json is not what dockerd expects"),
        ('{"live-restore": "yes"}', "`$.live-restore`"),
    ],
)
def test_a_broken_daemon_json_is_a_problem_however_well_dockerd_runs(
    text: str, words: str, tmp_path: Path
) -> None:
    program(tmp_path, "dockerd")
    files = LINUX | {"/etc/docker/daemon.json": text}
    expect(docker.look(machine(tmp_path, files, root=report())), PROBLEM, words)
    files = LINUX | {"/etc/docker/daemon.json": '{"live-restore": null, "runtimes": null}'}
    expect(docker.look(machine(tmp_path, files, root=report())), OK)


def test_docker_desktop_and_an_engine_together_are_advised_on(tmp_path: Path) -> None:
    program(tmp_path, "dockerd")
    files = WSL2 | {"/mnt/wsl/docker-desktop/cli-tools/x": ""}
    desktop = report(dockerd_up(owner=Owner.DOCKER_DESKTOP))
    expect(docker.look(machine(tmp_path, files, root=desktop)), ADVICE, "an engine too")


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


def test_access_to_the_socket_equals_root(tmp_path: Path) -> None:
    with docker_socket(tmp_path, b"{}"):
        expect(docker_access.look(machine(tmp_path, {})), OK, "equals root")
    expect(docker_access.look(machine(tmp_path, {})), UNKNOWN, "dockerd is down")


def test_docker_host_may_name_the_same_socket_by_another_path(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("../run")
    for host in ("unix:///var/run/docker.sock", "unix:///run/docker.sock"):
        finding = docker_access.look(machine(tmp_path, {}, environ={"DOCKER_HOST": host}))
        expect(finding, UNKNOWN, "dockerd is down")
    for host in ("unix:///srv/docker.sock", "tcp://127.0.0.1:2375", "ssh://there"):
        finding = docker_access.look(machine(tmp_path, {}, environ={"DOCKER_HOST": host}))
        expect(finding, OK, "another one")


@pytest.mark.parametrize(
    ("running", "configured", "verdict"),
    [
        (True, False, OK),
        (None, True, OK),
        (False, False, ADVICE),
        (None, False, ADVICE),
        (False, True, ADVICE),
    ],
)
def test_live_restore_is_advised(
    running: bool | None,  # noqa: FBT001
    *,
    configured: bool,
    verdict: Verdict,
    tmp_path: Path,
) -> None:
    content = {"/etc/docker/daemon.json": json.dumps({"live-restore": configured})}
    root = report(dockerd_up(live_restore=running))
    finding = live_restore.look(machine(tmp_path, LINUX | content, root=root))
    assert finding.verdict is verdict
    line = 'add "live-restore": true to /etc/docker/daemon.json'
    assert (line in (finding.fix or "")) == (verdict is ADVICE and not configured)


def test_a_toolkit_is_judged_by_programs_runtimes_and_cdi_files(tmp_path: Path) -> None:
    files = WSL2 | {"/etc/docker/daemon.json": json.dumps({"runtimes": {"nvidia": {}}})}
    missing = "there is no nvidia-container-runtime"
    expect(toolkit.look(machine(tmp_path, files)), PROBLEM, missing)
    program(tmp_path, "nvidia-container-runtime-hook")  # all that `--gpus` needs
    expect(toolkit.look(machine(tmp_path, files)), OK, "`--gpus`")
    cdi = {"/etc/cdi/nvidia.yaml": "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n"}
    expect(toolkit.look(machine(tmp_path / "cdi", WSL2 | cdi)), OK, "by CDI")
    with_gpu = machine(tmp_path / "gpu", WSL2 | {"/dev/dxg": ""})
    expect(toolkit.look(with_gpu), ADVICE, "not installed")
    expect(toolkit.look(machine(tmp_path / "none", WSL2)), OK, "no GPU")


def with_toolkit(made: ToolkitReport) -> RootReport:
    return structs.replace(
        report(), containers=ContainersReport(ProbeStage.WAITING, "i", toolkit=made)
    )


def test_roots_report_of_the_toolkit_is_passed_on(tmp_path: Path) -> None:
    broken = with_toolkit(ToolkitReport(ToolkitState.BROKEN, "r", "not reloaded", "restart it"))
    expect(toolkit.look(machine(tmp_path, WSL2, root=broken)), PROBLEM, "not reloaded")
    both = with_toolkit(ToolkitReport(ToolkitState.BOTH))
    for health, verdict, words in (
        ({"level": 1, "reason": "toolkit_not_installed"}, OK, "`--gpus` and CDI"),
        ({"level": 2, "reason": "hung", "detail": "no end"}, PROBLEM, "in a container: no end"),
        ({"level": 1, "reason": "slower", "detail": "half as fast"}, ADVICE, "half as fast"),
    ):
        agent = {"health": {"containers": health}}
        expect(toolkit.look(machine(tmp_path, WSL2, root=both, agent=agent)), verdict, words)
