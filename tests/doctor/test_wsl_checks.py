"""Checks of WSL itself: version, systemd, interop, idle time-outs, cgroups, the GPU's device."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from gpud.doctor.checks.driver import dxg
from gpud.doctor.checks.wsl import cgroups, idle, interop, systemd, wsl
from tests.doctor.trees import (
    ADVICE,
    CONTAINER,
    LINUX,
    OK,
    PROBLEM,
    SYSTEMD,
    UNKNOWN,
    WSL1,
    WSL2,
    expect,
    machine,
)

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.doctor.finding import Check, Verdict


def conf(text: str) -> dict[str, str]:
    return {"/etc/wsl.conf": text}


def mounts(*lines: str) -> dict[str, str]:
    return {"/proc/self/mounts": "".join(f"none {line} rw 0 0\n" for line in lines)}


V1 = mounts("/sys/fs/cgroup/memory cgroup")
CONFIGURED = conf("[automount]\ncgroups=v1\n")
NO_V1 = {"/proc/cmdline": "quiet cgroup_no_v1=all\n"}
INTEROP_OFF = "[interop]\nenabled=false\n"
FIGHT = SYSTEMD | conf('[boot]\nsystemd=true\ncommand="service docker start"\n')
BARE = {"/proc/sys/fs/binfmt_misc/WSLInterop": "disabled\n"}

CASES = [
    (wsl, WSL2, OK, "WSL 2, kernel 5.15.167.4"),
    (wsl, WSL1, PROBLEM, "WSL 1"),
    (wsl, LINUX, OK, "not WSL"),
    (wsl, CONTAINER, ADVICE, "a container"),
    (wsl, {}, UNKNOWN, "release"),
    (systemd, WSL2, OK, "off"),
    (systemd, WSL2 | SYSTEMD, OK, "on"),
    (systemd, WSL2 | SYSTEMD | conf("[boot]\nsystemd=true\n"), OK, "on"),
    (systemd, WSL2 | conf("[boot]\nsystemd = TRUE # soon\n"), ADVICE, "off, and on from the next"),
    (systemd, WSL2 | SYSTEMD | conf("[boot]\nsystemd=false\n"), ADVICE, "on, and off from the"),
    (systemd, WSL2 | conf("[boot]\ncommand=service docker start\n"), ADVICE, "only watches"),
    (systemd, WSL2 | FIGHT, PROBLEM, "the two break"),
    (interop, WSL2, OK, "on"),
    (interop, WSL2 | conf(INTEROP_OFF), ADVICE, "stops about 15 s after its last terminal"),
    (interop, WSL2 | BARE, ADVICE, "not registered"),
    (interop, LINUX, OK, "not WSL"),
    (cgroups, WSL2, OK, "version 2"),
    (cgroups, WSL2 | V1, ADVICE, "version 1: new versions"),
    (cgroups, WSL2 | V1 | CONFIGURED, ADVICE, "version 1 because wsl.conf"),
    (cgroups, WSL2 | mounts("/sys/fs/cgroup/unified cgroup2"), PROBLEM, "none is mounted"),
    (cgroups, WSL2 | mounts(), PROBLEM, "none is mounted"),
    (cgroups, WSL2 | CONFIGURED | NO_V1, PROBLEM, "asks for version 1"),
    (dxg, WSL2, PROBLEM, "none: Windows offers no GPU"),
    (dxg, WSL2 | {"/dev/dxg": ""}, PROBLEM, "not a device"),
    (dxg, WSL2 | conf("[gpu]\nenabled=false\n"), ADVICE, "none: [gpu] enabled=false"),
    (dxg, LINUX | {"/dev/nvidia0": ""}, OK, "NVIDIA's own devices: nvidia0"),
    (idle, LINUX, OK, "not WSL 2"),
]


@pytest.mark.parametrize(("check", "files", "verdict", "words"), CASES)
def test_a_machine_gets_its_verdict(
    check: Check, files: dict[str, str], verdict: Verdict, words: str, tmp_path: Path
) -> None:
    finding = check.look(machine(tmp_path, files, environ={"WSL_DISTRO_NAME": "Debian"}))
    expect(finding, verdict, words)
    if (check, files) == (wsl, WSL1):
        assert finding.fix == "from Windows: wsl --set-version Debian 2"


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a device")
def test_a_device_that_is_switched_off_is_not_missing(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    os.mknod(tmp_path / "dev/dxg", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    expect(dxg.look(machine(tmp_path, WSL2)), OK, "there")
    off = machine(tmp_path, WSL2 | conf("[gpu]\nenabled=false\n"))
    expect(dxg.look(off), ADVICE, "there: [gpu] enabled=false in wsl.conf switches the GPU off")


NEVER = "[general]\ninstanceIdleTimeout=-1\n"


@pytest.mark.parametrize(
    ("wslconfig", "wsl_conf", "more", "verdict", "words"),
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
def test_idle_time_outs_matter_unless_something_else_keeps_the_distribution(
    wslconfig: str,
    wsl_conf: str,
    *,
    more: dict[str, str],
    verdict: Verdict,
    words: str,
    tmp_path: Path,
) -> None:
    files = WSL2 | more | conf(wsl_conf) | {"/mnt/c/Users/Ada/.wslconfig": wslconfig}
    expect(idle.look(machine(tmp_path, files)), verdict, words)


def test_windows_user_is_that_of_the_path_and_drives_may_be_elsewhere(
    tmp_path: Path,
) -> None:
    files = WSL2 | conf(f"[automount]\nroot = /windows/\n{INTEROP_OFF}")
    files |= {
        "/windows/c/Users/Ada/.wslconfig": NEVER,
        "/windows/c/Users/Bob/.wslconfig": "[general]\ninstanceIdleTimeout=1000\n",
    }
    path = "/usr/bin:/windows/c/Users/Ada/AppData/Local/Microsoft/WindowsApps"
    finding = idle.look(machine(tmp_path, files, environ={"PATH": path}))
    expect(finding, OK, "Ada's")
    assert "Bob" not in finding.evidence
    expect(idle.look(machine(tmp_path, files)), ADVICE, "Ada's", "Bob's")  # either may be it
