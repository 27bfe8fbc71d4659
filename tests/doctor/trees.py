"""Machines to check: small trees of files as WSL2, WSL1, Linux and a container show them."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from gpud.core.clock import Instant
from gpud.core.report import AgentReport, DockerdReport, Owner, ProcessRef, RootReport
from gpud.core.settings import Settings
from gpud.doctor.finding import Verdict
from gpud.doctor.machine import Machine, Person
from gpud.document.status import Status
from tests.standins.build import build_libcuda, build_libnvml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gpud.doctor.finding import Finding

OK, UNKNOWN, ADVICE, PROBLEM = Verdict
NOW = Instant(1_790_000_000.0, 5_000.0)
PERSON = Person(1000, "ada", "/people/ada", "/bin/bash", groups=(1000,))

COMMON = {
    "/etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
    "/proc/1/comm": "init\n",
    "/proc/uptime": "7200.00 1.00\n",
    "/proc/self/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n",
    "/proc/cmdline": "initrd=\\initrd.img\n",
    "/proc/net/tcp": "  sl  local_address rem_address   st\n",
    "/people/ada/.bashrc": "# nothing\n",
}
WSL2 = COMMON | {
    "/proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2\n",
    "/proc/sys/fs/binfmt_misc/WSLInterop": "enabled\ninterpreter /init\n",
    "/mnt/c/Users/Ada/.wslconfig": "[wsl2]\nmemory=8GB\n",
}
WSL1 = COMMON | {"/proc/sys/kernel/osrelease": "4.4.0-19041-Microsoft\n"}
LINUX = COMMON | {"/proc/sys/kernel/osrelease": "6.1.0-28-amd64\n"}
CONTAINER = WSL2 | {"/.dockerenv": ""}
SYSTEMD = {"/proc/1/comm": "systemd\n", "/run/systemd/system/.keep": ""}


def machine(
    tree: Path,
    files: Mapping[str, str],
    *,
    installed: bool = False,
    environ: Mapping[str, str] | None = None,
    agent: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    **changed: object,
) -> Machine:
    """Lay out ``files`` below ``tree`` and return the machine that they are."""
    for name, text in files.items():
        path = tree / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    home = "/" if installed else str(tree / "home-of-gpud")
    made = Machine(
        Settings(**{"home": home, "sysroot": str(tree), **(settings or {})}),
        PERSON,
        environ or {},
        NOW,
        root_silence="gpud is not running",
        agent=msgspec.convert(agent or {}, Status),
        command_limit_s=30.0,
    )
    return replace(made, **changed)  # type: ignore[arg-type]


def make_dxg(tree: Path) -> None:
    """Make the device node of WSL's GPU."""
    (tree / "dev").mkdir(parents=True, exist_ok=True)
    os.mknod(tree / "dev/dxg", stat.S_IFCHR | 0o666, os.makedev(1, 3))


def program(tree: Path, name: str, says: str = "", code: int = 0) -> None:
    """Put a program onto the machine's PATH that prints something."""
    path = tree / "usr/bin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(f"{name}.says").write_text(says)
    path.write_text(f'#!/bin/sh\ncat "$0.says"\nexit {code}\n')
    path.chmod(0o755)


def report(dockerd: DockerdReport | None = None, agent: AgentReport | None = None) -> RootReport:
    """Root's report of a machine where all is well, a second old."""
    return RootReport(
        gpud_version="0.1.0",
        process=ProcessRef(77, 1),
        privileged=True,
        boot_id="b",
        started_s=NOW.wall_s - 100,
        written_s=NOW.wall_s - 1,
        beat_s=NOW.mono_s - 1,
        dockerd=dockerd or dockerd_up(),
        agent=agent or AgentReport("running", ProcessRef(78, 1)),
    )


def dockerd_up(**changed: object) -> DockerdReport:
    up = DockerdReport(
        "up", "auto", True, owner=Owner.GPUD, version="20.10.24+dfsg1", live_restore=True
    )
    return structs.replace(up, **changed)


def expect(finding: Finding, verdict: Verdict, *words: str, fix: str | None = None) -> None:
    assert finding.verdict is verdict, finding
    for word in words:
        assert word in finding.evidence, finding
    assert fix is None or fix in (finding.fix or "nothing"), finding


def agent(*readings: dict[str, Any], level: str = "nvml", **nvml: str) -> dict[str, Any]:
    """Write the running agent's document about telemetry, with what it says of NVML."""
    sources: dict[str, Any] = {"nvml": nvml or {"reason": None}}
    return {"telemetry": {"level": level, "sources": sources, "readings": list(readings)}}


def reading(field: str, value: float | str | None, absent: str | None = None) -> dict[str, Any]:
    gpu = None if isinstance(value, str) else 0
    return {"gpu": gpu, "field": field, "source": "nvml", "value": value, "absent": absent}


WSL_LIBRARIES, STRAY_LIBRARIES = "usr/lib/wsl/lib", "usr/lib/x86_64-linux-gnu"


def with_libraries(
    tree: Path, *, stray_first: bool | None = None, agent: Mapping[str, Any]
) -> Machine:
    """A WSL2 with both libraries; a stray libcuda is first or second in the linker's cache."""
    order = [WSL_LIBRARIES, STRAY_LIBRARIES]
    conf = "".join(f"/{folder}\n" for folder in (reversed(order) if stray_first else order))
    made = machine(tree, WSL2 | {"/etc/ld.so.conf": conf}, agent=agent, root=report())
    build_libcuda(tree / WSL_LIBRARIES)
    build_libnvml(tree / WSL_LIBRARIES)
    if stray_first is not None:
        build_libcuda(tree / STRAY_LIBRARIES)
    for name in (*order, "lib", "usr/lib"):
        (tree / name).mkdir(parents=True, exist_ok=True)
    program = shutil.which("ldconfig", path="/usr/sbin:/sbin")
    assert program is not None
    subprocess.run([program, "-r", str(tree)], check=True, capture_output=True)
    return made
