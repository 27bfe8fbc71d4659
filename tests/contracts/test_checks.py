"""Every check in the folder: total over whatever a machine shows, bounded, documented."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud.doctor.finding import Verdict
from gpud.doctor.run import LONGEST, CheckResult, collect, run_checks
from tests.doctor.trees import CONTAINER, LINUX, SYSTEMD, WSL1, WSL2, machine, report
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

CHECKS, REFUSED = collect()
NAMES = [check.name for check in CHECKS]
DOCUMENT = Path(__file__).resolve().parents[2] / "docs/doctor.md"
MARK = "<!-- checks -->"

LOOKED_AT = sorted(
    {
        *WSL2,
        *SYSTEMD,
        "/.dockerenv",
        "/dev/dxg",
        "/etc/docker/daemon.json",
        "/etc/group",
        "/etc/ld.so.cache",
        "/etc/wsl.conf",
        "/people/ada/.bash_profile",
        "/proc/1234/comm",
        "/run/docker.sock",
        "/usr/bin/dockerd",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        "/usr/lib/wsl/lib/libcuda.so.1",
        "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    }
)


def put(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def forbidden(path: Path) -> None:
    path.write_text("secret")
    path.chmod(0)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


ODD: dict[str, Callable[[Path], object]] = {
    "empty": put(b""),
    "garbage": put(b"[[[=\n=[x\n[boot\nsystemd==\n{}()\nroot:x\n" * 20),
    "binary": put(bytes(range(256)) * 300),
    "huge": put(b"a=b\n" * 300_000),
    "one-long-line": put(b"[boot]\ncommand=docker" + b"x" * 3_000_000),
    "json-of-another-kind": put(b"[1, 2, {}]"),
    "deep": put(b"[" * 200_000),
    "fifo": os.mkfifo,
    "directory": Path.mkdir,
    "loop": loop,
    "dangling": lambda path: path.symlink_to("/nonexistent/place"),
    "forbidden": forbidden,
}


def test_no_check_is_refused_and_all_that_was_asked_for_are_there() -> None:
    assert REFUSED == {}
    assert set(NAMES) == {
        *("wsl", "systemd", "interop", "idle", "dxg", "libcuda", "driver"),
        *("docker", "docker_access", "live_restore", "toolkit", "sudo_rule"),
        *("shell_hook", "gpud", "telemetry"),
        *("settings", "users", "known_issues"),
    }


def assert_complete(result: CheckResult) -> None:
    assert 0 < len(result.evidence) <= LONGEST, result
    assert "this is a bug" not in (result.fix or ""), result
    if result.verdict in {Verdict.PROBLEM, Verdict.ADVICE}:
        assert result.fix, result
    if result.verdict is Verdict.OK:
        assert result.fix is None, result


@pytest.mark.parametrize("how", ODD)
def test_whatever_lies_where_a_check_looks_it_gives_a_finding(how: str, tmp_path: Path) -> None:
    odd = machine(tmp_path, {}, installed=True, command_limit_s=5.0)
    for name in LOOKED_AT:
        path = tmp_path / name.lstrip("/")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            ODD[how](path)
        except OSError:
            continue  # below something odd already
    kernel, mark = tmp_path / "proc/sys/kernel/osrelease", tmp_path / ".dockerenv"
    for path in (kernel, mark):
        path.rmdir() if how == "directory" else path.unlink()
    kernel.write_text("5.15.167.4-microsoft-standard-WSL2\n")  # else most checks have little to do
    results = run_checks(odd, deadline_s=30.0)
    assert [result.name for result in results] == NAMES
    for result in results:
        assert_complete(result)
        assert not re.fullmatch(r"no answer within [\d.]+ s", result.evidence), result
    until(lambda: nobody_waits(tmp_path), "the end of what is left alone at a pipe")


def nobody_waits(folder: Path) -> bool:
    """Let whoever waits at a pipe go on, and say whether all of them have ended."""
    for path in filter(Path.is_fifo, folder.rglob("*")):
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
    left = False
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            left |= os.fsencode(folder) in command.read_bytes()
    return not left


KINDS = {
    "nothing": {},
    "wsl2": WSL2,
    "wsl1": WSL1,
    "linux": LINUX,
    "container": CONTAINER,
    "wsl2-systemd": WSL2 | SYSTEMD,
    "linux-systemd": LINUX | SYSTEMD,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("complete", [False, True])
def test_every_check_has_a_word_for_every_kind_of_machine(
    kind: str, *, complete: bool, tmp_path: Path
) -> None:
    root = report() if complete else None
    looked = machine(tmp_path, KINDS[kind], installed=complete, root=root)
    for result in run_checks(looked, deadline_s=30.0):
        assert_complete(result)
        if kind.startswith("linux"):
            assert "windows" not in (result.fix or "").lower(), result
            assert "wsl" not in (result.fix or "").lower(), result
        elif kind.startswith("wsl2"):
            assert "modprobe" not in (result.fix or ""), result


def test_the_table_in_the_document_is_what_the_folder_holds() -> None:
    summaries = [(check.look.__doc__ or "").splitlines()[0] for check in CHECKS]
    items = [f"- **{c.title}**: {text}" for c, text in zip(CHECKS, summaries, strict=True)]
    assert DOCUMENT.read_text().split(MARK)[1].strip() == "\n".join(items)
