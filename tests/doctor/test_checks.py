"""Checks that look for themselves: at sockets, groups, real libraries, settings, known faults."""

from __future__ import annotations

import os
import pwd
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpud.core.errors import ConfigError
from gpud.core.report import DockerdReport
from gpud.core.sample import Device, Inventory
from gpud.core.sections import CudaSettings
from gpud.core.settings import config_path, secrets_path
from gpud.doctor.checks.docker import SocketState, docker, docker_access, live_restore
from gpud.doctor.checks.gpud import settings
from gpud.doctor.checks.known_issues import known_issues
from gpud.doctor.checks.libraries import libcuda
from gpud.doctor.machine import person
from tests.doctor.trees import (
    ADVICE,
    CONTAINER,
    LINUX,
    NOW,
    OK,
    PERSON,
    PROBLEM,
    STRAY_LIBRARIES,
    UNKNOWN,
    WSL2,
    expect,
    machine,
    program,
    report,
    with_libraries,
)
from tests.standins.build import build_libcuda

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.doctor.finding import Finding, Verdict
    from gpud.doctor.machine import Machine


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


def test_dockerd_that_is_down_is_started_by_gpud_or_left_alone(tmp_path: Path) -> None:
    expect(docker.look(machine(tmp_path, LINUX, installed=True)), ADVICE, "no Docker on this machi")
    program(tmp_path, "dockerd")
    expect(docker.look(machine(tmp_path, LINUX, installed=True)), PROBLEM, "gpud is not running")
    expect(docker.look(machine(tmp_path, LINUX)), ADVICE, "gpud is not running")
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


# the driver

WELL = {"health": {"cuda": {"level": 0}}}
DEVICE = Device(0, "GPU-1", "RTX", "0", "8.9", 1, 1, 1)
NVML = "libnvidia-ml.so.1"
STRAY = f"/{STRAY_LIBRARIES}/libcuda.so.1"


def test_a_stray_library_that_other_programs_get_is_a_problem(tmp_path: Path) -> None:
    """The tree is changed step by step; what other programs get is what the linker says."""
    own = asdict(Inventory((DEVICE,), "12.8", "/usr/lib/wsl/lib/libcuda.so.1"))
    made = with_libraries(tmp_path, agent={"cuda": own} | WELL)
    expect(libcuda.look(made), OK, "/usr/lib/wsl/lib/libcuda.so.1; CUDA 12.8, RTX")
    shadowed = replace(made, environ={"LD_LIBRARY_PATH": "/nowhere:/people/ada/old-cuda"})
    build_libcuda(tmp_path / "people/ada/old-cuda")
    evidence = "LD_LIBRARY_PATH makes other programs load /people/ada/old-cuda/libcuda.so"
    expect(libcuda.look(shadowed), PROBLEM, evidence)
    (tmp_path / "etc/ld.so.cache").unlink()
    unknown = "the linker does not know libcuda.so.1"
    expect(libcuda.look(made), ADVICE, unknown, fix="sudo ldconfig")
    made = with_libraries(tmp_path / "first", stray_first=True, agent={"cuda": own} | WELL)
    both = (f"other programs load {STRAY}", "/usr/lib/wsl/lib/libcuda.so.1; CUDA")
    expect(libcuda.look(made), PROBLEM, *both, fix=f"dpkg -S {STRAY}")
    made = with_libraries(tmp_path / "second", stray_first=False, agent={"cuda": own} | WELL)
    expect(libcuda.look(made), ADVICE, f"{STRAY} lies beside WSL's")
    stray = tmp_path / "second" / STRAY.lstrip("/")
    stray.rename(stray.with_name(NVML))
    expect(libcuda.look(made), ADVICE, f"/{STRAY_LIBRARIES}/{NVML} lies beside WSL's")


def test_agent_of_a_wsl_that_has_just_started_asks_no_driver_before_a_moment(
    tmp_path: Path,
) -> None:
    young = running(tmp_path, {"gpu_from_s": NOW.wall_s + 42.0})
    at = time.strftime("%H:%M:%S", time.localtime(NOW.wall_s + 42.0))
    expect(libcuda.look(young), UNKNOWN, f"not asked before {at}: WSL has just started")
    older = running(tmp_path, {"gpu_from_s": NOW.wall_s - 1.0})
    expect(libcuda.look(older), UNKNOWN, "the agent has not looked yet")


def running(tree: Path, document: dict[str, Any]) -> Machine:
    return machine(tree, WSL2, root=report(), agent=document)


def test_running_agent_comes_before_the_driver(tmp_path: Path) -> None:
    inventory = Inventory((DEVICE,), "12.8", f"{tmp_path}/usr/lib/wsl/lib/libcuda.so.1")
    made = running(tmp_path, {"cuda": asdict(inventory)} | WELL)
    expect(libcuda.look(made), OK, "CUDA 12.8, RTX")  # though the tree holds no library at all
    failed = {"level": 2, "reason": "no_device", "detail": "no GPU offered", "fix": "do x"}
    finding = libcuda.look(running(tmp_path, {"health": {"cuda": failed}}))
    expect(finding, PROBLEM, "no GPU offered", fix="do x")
    stray = build_libcuda(tmp_path / STRAY_LIBRARIES)
    document = {"cuda": asdict(Inventory((DEVICE,), "12.8", str(stray)))} | WELL
    expect(libcuda.look(running(tmp_path, document)), PROBLEM, "which is not WSL's")
    configured = {"cuda": CudaSettings(library=str(stray))}
    made = machine(tmp_path, WSL2, root=report(), agent=document, settings=configured)
    expect(libcuda.look(made), OK, "as configured")


# settings

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives rights away")


@needs_root
def test_person_under_sudo_is_the_caller() -> None:
    account = pwd.getpwnam("nobody")
    caller = person({"SUDO_UID": str(account.pw_uid), "HOME": "/root", "SHELL": "/bin/zsh"})
    assert (caller.name, caller.home, caller.login_shell) == account[0:1] + account[5:7]
    assert person({}).name == "root"


HASH = "$2b$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG"
SECRET = "T0KEN"  # noqa: S105  # searched for in what is shown
SECRETS = (
    f"[http.basic_auth_users]\nada = '{HASH}'",
    f"[alerts]\nwebhook_urls = ['https://chat.example/hooks/{SECRET}']",
    f"[alerts]\napprise_urls = ['tgram://{SECRET}/chat']",
)
OPEN = "[alerts]\nwebhook_urls = ['http://localhost:9093']"


def written(path: str | Path, text: str, mode: int) -> None:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)


def check_settings(home: Path, error: ConfigError | None = None) -> Finding:
    return settings.look(machine(home, LINUX, settings={"home": str(home)}, settings_error=error))


@pytest.mark.parametrize("text", SECRETS)
def test_secrets_in_a_file_for_everybody_are_advised_on_and_not_quoted(
    tmp_path: Path, text: str
) -> None:
    config, hidden = config_path(str(tmp_path)), secrets_path(str(tmp_path))
    written(hidden, "# nothing yet\n", 0o644)
    written(config, text, 0o644)
    finding = check_settings(tmp_path)
    fix = f"to {hidden}, which only you can read"
    expect(finding, ADVICE, f"everybody may read {config}", fix=fix)
    assert SECRET not in finding.evidence
    assert HASH not in finding.evidence
    for harmless, mode in ((text, 0o640), (OPEN, 0o644), ("", 0o644)):
        written(config, harmless, mode)
        assert check_settings(tmp_path).verdict is OK
    written(hidden, text, 0o644)
    expect(check_settings(tmp_path), ADVICE, "is secret in it", fix=f"chmod o= {hidden}")


def test_a_file_that_cannot_be_read_or_understood_is_reported(tmp_path: Path) -> None:
    refused = ConfigError("cannot read gpud.toml: Permission denied")
    refused.__cause__ = PermissionError()
    finding = check_settings(tmp_path, refused)
    assert (finding.verdict, finding.fix) == (UNKNOWN, "sudo gpud doctor")
    wrong = ConfigError("gpud.toml: unknown key x")
    expect(check_settings(tmp_path, wrong), PROBLEM, "unknown key x")


def test_setting_that_no_longer_exists_is_named(tmp_path: Path) -> None:
    path = config_path(str(tmp_path))
    written(path, "[http]\nmax_connections = 3\n", 0o644)
    finding = check_settings(tmp_path)
    expect(finding, ADVICE, "http.max_connections is no longer a setting")
    assert finding.fix == f"remove it from {path}"


# known faults

NEW_KERNEL = WSL2 | {"/proc/sys/kernel/osrelease": "6.6.114.1-microsoft-standard-WSL2\n"}
SOURCE = "https://example.org/wsl-1"
FAULT = {
    "id": "wsl-1",
    "state": "applies",
    "title": "GPU work hangs",
    "fix": "wsl --update",
    "source": SOURCE,
    "confidence": "several_reports",
}


def knowing(*faults: dict[str, Any]) -> dict[str, Any]:
    return {"started_s": 1.0, "known_faults": [FAULT | fault for fault in faults]}


def test_an_entry_is_named_with_how_sure_it_is_its_source_and_what_to_do(tmp_path: Path) -> None:
    finding = known_issues.look(machine(tmp_path, WSL2))  # kernel 5.15.167.4
    source = "https://github.com/microsoft/WSL/issues/12476"
    expect(finding, ADVICE, "wsl-12476-hmgrtable-panic", "confirmed by its maintainers", source)
    assert finding.fix == "Run `wsl --update`: the kernel has it mended from 6.6.84.1 on"


@pytest.mark.parametrize(
    ("fault", "verdict", "words"),
    [
        ({}, ADVICE, ("wsl-1: GPU work hangs", "reported by several people", SOURCE)),
        ({"state": "reported"}, ADVICE, ("reported on these versions", "is not said")),
        ({"state": "seen", "evidence": "dxgk: -75"}, ADVICE, ("wsl-1", "seen here: dxgk: -75")),
        (
            {"state": "seen", "evidence": "dxgk: -75", "alarm": True},
            PROBLEM,
            ("wsl-1", "seen here with a failed or stalled GPU call: dxgk: -75", SOURCE),
        ),
    ],
)
def test_what_the_running_agent_knows_is_said_with_its_evidence(
    tmp_path: Path, fault: dict[str, Any], verdict: Verdict, words: tuple[str, ...]
) -> None:
    finding = known_issues.look(machine(tmp_path, WSL2, agent=knowing(fault)))
    expect(finding, verdict, *words)
    assert finding.fix == "wsl --update"
    assert "wsl-12476" not in finding.evidence  # the agent knows better than the kernel alone


def test_a_fault_that_was_seen_comes_before_one_of_the_versions(tmp_path: Path) -> None:
    seen = {"id": "wsl-2", "state": "seen", "alarm": True, "fix": None}
    finding = known_issues.look(machine(tmp_path, WSL2, agent=knowing({}, seen)))
    expect(finding, PROBLEM, "wsl-1")
    assert finding.evidence.startswith("wsl-2: ")
    assert finding.fix == "none is known; wsl --update"


@pytest.mark.parametrize(
    ("files", "document", "verdict", "words"),
    [
        (
            NEW_KERNEL,
            None,
            UNKNOWN,
            ("none of ", "WSL's version, Windows' build, the driver and the GPU"),
        ),
        (LINUX, None, UNKNOWN, ("alone; the driver and the GPU are not known",)),
        (LINUX, knowing(), OK, ("versions alone, and none was seen here",)),
        (CONTAINER, None, OK, ("is about WSL 2 and plain Linux",)),
    ],
)
def test_what_matches_nothing_is_well_and_what_was_not_known_is_said(
    tmp_path: Path,
    files: dict[str, str],
    document: dict[str, Any] | None,
    verdict: Verdict,
    words: tuple[str, ...],
) -> None:
    expect(known_issues.look(machine(tmp_path, files, agent=document)), verdict, *words)
