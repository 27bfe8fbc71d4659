"""WSL itself: which one, systemd, interop, idle time-outs, cgroups, the GPU's device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpud.core import wsl as traces
from gpud.doctor.checks import cgroups, dxg, idle, interop, systemd, wsl
from gpud.doctor.finding import Verdict
from gpud.doctor.machine import Kind
from tests.doctor.trees import CONTAINER, LINUX, SYSTEMD, WSL1, WSL2, machine

if TYPE_CHECKING:
    from pathlib import Path

OK, UNKNOWN, ADVICE, PROBLEM = Verdict.OK, Verdict.UNKNOWN, Verdict.ADVICE, Verdict.PROBLEM


@pytest.mark.parametrize(
    ("files", "verdict", "word"),
    [
        (WSL2, OK, "WSL 2, kernel 5.15.167.4"),
        (WSL1, PROBLEM, "WSL 1"),
        (LINUX, OK, "not WSL"),
        (CONTAINER, ADVICE, "a container"),
        ({}, UNKNOWN, "release"),
    ],
)
def test_the_kind_of_machine_is_told_apart(
    files: dict[str, str], verdict: Verdict, word: str, tmp_path: Path
) -> None:
    found = wsl.look(machine(tmp_path, files))
    assert found.verdict is verdict
    assert word in found.evidence


@pytest.mark.parametrize(
    ("conf", "begins"),
    [("", "/mnt"), ("root=/", ""), ("root = /win/ # ours", "/win"), ("root=win", "/mnt")],
)
def test_windows_drives_are_looked_for_where_wsl_mounts_them(conf: str, begins: str) -> None:
    assert traces.mounts_at(traces.sections(f"[automount]\n{conf}\n")) == begins


def test_wsl_1_is_told_the_command_with_its_own_name(tmp_path: Path) -> None:
    found = wsl.look(machine(tmp_path, WSL1, environ={"WSL_DISTRO_NAME": "Debian"}))
    assert found.fix == "from Windows: wsl --set-version Debian 2"


def conf(text: str) -> dict[str, str]:
    return {"/etc/wsl.conf": text}


@pytest.mark.parametrize(
    ("more", "verdict", "word"),
    [
        ({}, OK, "off"),
        (SYSTEMD, OK, "on"),
        (SYSTEMD | conf("[boot]\nsystemd=true\n"), OK, "on"),
        (conf("[boot]\nsystemd = TRUE # soon\n"), ADVICE, "off, and on from the next start"),
        (SYSTEMD | conf("[boot]\nsystemd=false\n"), ADVICE, "on, and off from the next start"),
        (conf("[boot]\ncommand=service docker start\n"), ADVICE, "only watches"),
        (
            SYSTEMD | conf('[boot]\nsystemd=true\ncommand="service docker start"\n'),
            PROBLEM,
            "the two break",
        ),
    ],
)
def test_systemd_is_what_runs_and_what_the_next_start_will_bring(
    more: dict[str, str], verdict: Verdict, word: str, tmp_path: Path
) -> None:
    found = systemd.look(machine(tmp_path, WSL2 | more))
    assert (found.verdict, word in found.evidence) == (verdict, True), found


def test_interop_off_is_said_to_end_the_distribution(tmp_path: Path) -> None:
    found = interop.look(machine(tmp_path, WSL2 | conf("[interop]\nenabled=false\n")))
    assert found.verdict is ADVICE
    assert "stops about 15 s after its last terminal" in found.evidence


def test_interop_is_on_while_windows_programs_are_registered(tmp_path: Path) -> None:
    assert interop.look(machine(tmp_path / "on", WSL2)).verdict is OK
    bare = {name: text for name, text in WSL2.items() if "binfmt" not in name}
    assert "not registered" in interop.look(machine(tmp_path / "off", bare)).evidence


INTEROP_OFF = "[interop]\nenabled=false\n"
NEVER = "[general]\ninstanceIdleTimeout=-1\n"


@pytest.mark.parametrize(
    ("wslconfig", "wsl_conf", "more", "verdict", "word"),
    [
        ("", "", {}, OK, "distribution stops after 15 s idle, virtual machine stops after 60 s"),
        ("", "", {}, OK, "gpud keeps it up"),
        ("", INTEROP_OFF, {}, ADVICE, "nothing keeps it up"),
        ("", "", SYSTEMD, ADVICE, "nothing keeps it up"),
        (NEVER, INTEROP_OFF, {}, OK, "distribution never stops"),
        ("[wsl2]\nvmIdleTimeout=-1\n", INTEROP_OFF, {}, ADVICE, "vmIdleTimeout alone does not"),
        ("[general]\ninstanceIdleTimeout=soon\n", "", {}, ADVICE, "instanceIdleTimeout is no numb"),
        ("", "[automount]\nenabled=false\n", {}, UNKNOWN, "automount is off"),
    ],
)
def test_idle_time_outs_are_judged_by_what_else_keeps_the_distribution(
    wslconfig: str,
    wsl_conf: str,
    *,
    more: dict[str, str],
    verdict: Verdict,
    word: str,
    tmp_path: Path,
) -> None:
    files = WSL2 | more | conf(wsl_conf) | {"/mnt/c/Users/Ada/.wslconfig": wslconfig}
    found = idle.look(machine(tmp_path, files))
    assert (found.verdict, word in found.evidence) == (verdict, True), found


def test_the_windows_user_is_the_one_of_the_path_and_the_drives_may_be_elsewhere(
    tmp_path: Path,
) -> None:
    files = WSL2 | conf("[automount]\nroot = /windows/\n[interop]\nenabled=false\n")
    files |= {
        "/windows/c/Users/Ada/.wslconfig": NEVER,
        "/windows/c/Users/Bob/.wslconfig": "[general]\ninstanceIdleTimeout=1000\n",
    }
    path = "/usr/bin:/windows/c/Users/Ada/AppData/Local/Microsoft/WindowsApps"
    found = idle.look(machine(tmp_path, files, environ={"PATH": path}))
    assert "Ada's" in found.evidence
    assert "Bob" not in found.evidence
    assert "Bob" in idle.look(machine(tmp_path, files)).evidence  # nobody says which: both


@pytest.mark.parametrize(
    ("mounts", "wanted", "line", "verdict"),
    [
        ({("/sys/fs/cgroup", "cgroup2")}, "", "", OK),
        ({("/sys/fs/cgroup/memory", "cgroup")}, "", "", ADVICE),
        ({("/sys/fs/cgroup/memory", "cgroup")}, "v1", "", ADVICE),
        ({("/sys/fs/cgroup/unified", "cgroup2")}, "", "", PROBLEM),
        (set(), "", "", PROBLEM),
        (set(), "v1", "quiet cgroup_no_v1=all", PROBLEM),
    ],
)
def test_cgroups_are_judged_by_what_is_mounted_and_what_is_asked_for(
    mounts: set[tuple[str, str]], wanted: str, line: str, verdict: Verdict
) -> None:
    assert cgroups.judged(mounts, wanted=wanted, command_line=line).verdict is verdict


@pytest.mark.parametrize(
    ("kind", "usable", "enabled", "verdict"),
    [
        (Kind.CHARACTER, True, True, OK),
        (Kind.CHARACTER, False, True, PROBLEM),
        (Kind.ABSENT, False, True, PROBLEM),
        (Kind.ABSENT, False, False, ADVICE),
        (Kind.FILE, True, True, PROBLEM),
    ],
)
def test_a_gpu_switched_off_on_purpose_is_no_problem(
    kind: Kind, *, usable: bool, enabled: bool, verdict: Verdict
) -> None:
    assert dxg.judged(kind, usable=usable, enabled=enabled).verdict is verdict


def test_where_there_is_no_wsl_nobody_misses_its_parts(tmp_path: Path) -> None:
    plain = machine(tmp_path, LINUX)
    for check in (interop, idle, dxg):
        assert check.look(plain).verdict is OK


def test_a_settings_file_of_wsl_is_read_as_wsl_reads_it() -> None:
    said = traces.sections('\ufeff[Boot]\r\nSystemd=TRUE\r\njunk\n[boot]\ncommand="a # b"\n=\n[')
    assert traces.switch(said, "boot", "systemd") is True
    assert said["boot"]["command"] == "a # b"
    assert traces.switch(said, "boot", "nothing") is None
