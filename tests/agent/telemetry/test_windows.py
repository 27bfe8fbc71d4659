"""Windows programs out of a daemon: which session can start them, or why none can."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.telemetry import windows
from gpud.agent.telemetry.sources import nvidia_smi_exe
from gpud.core.errors import TelemetryError
from tests.agent.measure.ticking import HELD_UP_S, ticking
from tests.agent.telemetry.smi_world import EXE, WSL2, World, line, values

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.kernel(WSL2)
    return made


def reason(world: World) -> str:
    with pytest.raises(TelemetryError) as caught:
        windows.environment(str(world.root))
    assert caught.value.fix
    return caught.value.reason


@pytest.mark.parametrize("registration", windows.REGISTRATIONS)
def test_the_newest_session_that_lives_is_taken(world: World, registration: str) -> None:
    with ExitStack() as stack:
        stack.enter_context(world.interop())
        folder = world.root / "proc/sys/fs/binfmt_misc"
        (folder / "WSLInterop").rename(folder / registration)
        chosen = stack.enter_context(world.session(300))
        world.session(400).close()  # it ended, and its socket lies about
        for age_s, pid in enumerate((400, 300, 8)):
            path = world.root / f"run/WSL/{pid}_interop"
            os.utime(path, (time.time() - age_s, time.time() - age_s))
        environment = windows.environment(str(world.root))
        assert environment["WSL_INTEROP"] == chosen.getsockname()
        assert environment["WSLENV"] == ""
        assert set(environment) == {"PATH", "LANG", "WSL_INTEROP", "WSLENV"}


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a socket to somebody else")
def test_a_socket_that_another_user_made_starts_no_windows_program(world: World) -> None:
    with world.interop() as own, world.session(300) as other:
        os.chown(other.getsockname(), 4321, 4321)
        path = world.root / "run/WSL/8_interop"
        os.utime(path, (1, 1))
        assert windows.environment(str(world.root))["WSL_INTEROP"] == own.getsockname()
        os.chown(path, 4321, 4321)
        assert reason(world) == "no_socket"


@pytest.mark.parametrize("registered", [None, "disabled\n", ""])
def test_without_a_registration_nothing_can_be_started(
    world: World, registered: str | None
) -> None:
    with world.interop():
        path = world.root / "proc/sys/fs/binfmt_misc/WSLInterop"
        if registered is None:
            path.unlink()
        else:
            path.write_text(registered)
        assert reason(world) == "interop_off"


def test_without_a_living_session_nothing_can_be_started(world: World) -> None:
    world.interop().close()
    world.file("run/WSL/12_interop", "no socket at all")
    world.file("run/WSL/notes", "")
    assert reason(world) == "no_socket"
    for path in (world.root / "run/WSL").iterdir():
        path.unlink()
    (world.root / "run/WSL").rmdir()
    assert reason(world) == "no_socket"


async def test_windows_own_nvidia_smi_is_asked_through_that_session(world: World) -> None:
    started = world.root / "seen"
    output = world.file("said", f"{line()}\r\n")
    world.program(EXE, f"pwd >{started}; env >>{started}; cat {output}")
    with world.interop() as session:
        name = session.getsockname()
        answer = await world.collect(nvidia_smi_exe.create(world.context()))
    assert values(answer)["temperature_celsius"] == 48
    assert answer is not None
    assert (answer.source, answer.level) == ("nvidia_smi_exe", 4)
    folder, *environment = started.read_text().splitlines()
    assert folder == str((world.root / EXE).parent)
    assert f"WSL_INTEROP={name}" in environment
    assert "WSLENV=" in environment
    assert world.counted == 1


async def test_drives_of_windows_may_be_mounted_elsewhere(world: World) -> None:
    world.file("etc/wsl.conf", "[automount]\nroot = /win/\n")
    world.says("win/c/Windows/System32/nvidia-smi.exe", line() + "\n")
    with world.interop():
        answer = await world.collect(nvidia_smi_exe.create(world.context()))
    assert values(answer)["pstate"] == 8


async def test_interop_that_is_off_is_reported_and_noticed_when_it_is_on(world: World) -> None:
    world.says(EXE, line() + "\n")
    source = nvidia_smi_exe.create(world.context())
    answer = await world.answer(source)
    assert (answer.reason, world.counted) == ("interop_off", 0)
    assert await world.collect(source) is None
    with world.interop():
        world.later(300)
        assert values(await world.collect(source))["pstate"] == 8


VER = "\r\nMicrosoft Windows [版本 10.0.26100.3476]\r\n".encode("gbk")
VERSION = "WSL-Version: 2.4.13.0\r\nKernelversion: 5.15.167.4-1\r\n".encode("utf-16-le")
SYSTEM = "mnt/c/Windows/System32"


async def facts(world: World) -> dict[str, str]:
    return await windows.versions(str(world.root), lambda: None, deadline_s=20.0)


@pytest.mark.parametrize("interop", [True, False])
@pytest.mark.parametrize("wslinfo", [True, False])
async def test_the_versions_of_wsl_and_windows_come_from_what_can_be_started(
    world: World, *, wslinfo: bool, interop: bool
) -> None:
    if wslinfo:
        world.says("usr/bin/wslinfo", "2.4.13\n")
    world.says(f"{SYSTEM}/wsl.exe", VERSION)
    world.says(f"{SYSTEM}/cmd.exe", VER)
    expected = {"wsl_version": "2.4.13"} if wslinfo or interop else {}
    if interop:
        with world.interop():
            assert await facts(world) == expected | {"windows_build": "10.0.26100.3476"}
    else:
        assert await facts(world) == expected
    first = ["--wsl-version"] if wslinfo else ["--version"] if interop else []
    assert world.starts == first + (["/d /c ver"] if interop else [])


@pytest.mark.parametrize(
    "script",
    [
        "exec sleep 100",
        "exec yes '[1.2.3]'",
        "echo 2.4.13 '[10.0.26100.1]'; exit 1",
        "kill -9 $$",
    ],
)
async def test_what_misbehaves_tells_nothing_and_holds_nobody_up(world: World, script: str) -> None:
    for name in ("usr/bin/wslinfo", f"{SYSTEM}/wsl.exe", f"{SYSTEM}/cmd.exe"):
        world.program(name, script)

    with world.interop():
        async with ticking() as gap:
            result = await windows.versions(str(world.root), lambda: None, deadline_s=0.5)
    assert gap.largest_s < HELD_UP_S
    assert result == {}


ENGLISH = (
    "WSL version: 2.4.13.0\r\nKernel version: 5.15.167.4-1\r\nWindows version: 10.0.26100.3476\r\n"
)
CHINESE = "WSL 版本: 2.4.13.0\r\n内核版本: 5.15.167.4-1\r\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("output", [ENGLISH, CHINESE])
def test_wsls_version_is_found_in_every_encoding_and_language(output: str, encoding: str) -> None:
    decoded = windows.text(output.encode(encoding))
    assert decoded == output, "without its byte order mark"
    assert windows.wsl_version(decoded) == "2.4.13"
    assert windows.wsl_version("2.4.13.7\n") == "2.4.13.7"


@pytest.mark.parametrize(
    ("word", "encoding"),
    [
        ("Version", "cp437"),
        ("Versión", "cp850"),
        ("版本", "gbk"),
        ("バージョン", "cp932"),  # one of its bytes is a bracket
        ("版本", "utf-8"),
        ("版本", "utf-16"),
        ("版本", "utf-16-le"),
    ],
)
@given(parts=st.lists(st.integers(0, 99999), min_size=3, max_size=4))
def test_every_build_survives_every_code_page(word: str, encoding: str, parts: list[int]) -> None:
    build = ".".join(map(str, parts))
    output = f"\r\nMicrosoft Windows [{word} {build}]\r\n".encode(encoding)
    assert windows.windows_build(windows.text(output)) == build
