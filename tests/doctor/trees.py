"""Machines to look at: small trees of files as WSL2, WSL1, Linux and a container show them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpud.core.clock import Instant
from gpud.core.report import AgentReport, DockerdReport, Owner, ProcessRef, RootReport
from gpud.core.sections import Dockerd
from gpud.core.settings import Settings
from gpud.doctor.machine import Machine, Person

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gpud.doctor.finding import Finding, Verdict

NOW = Instant(1_790_000_000.0, 5_000.0)
PERSON = Person(1000, "ada", "/people/ada", "/bin/bash", groups=(1000,))

COMMON = {
    "/etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
    "/proc/1/comm": "init\n",
    "/proc/uptime": "7200.00 1.00\n",
    "/proc/self/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n",
    "/proc/cmdline": "initrd=\\initrd.img\n",
    "/proc/net/tcp": "  sl  local_address rem_address   st\n",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
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

RULE = """Matching Defaults entries for ada on here:
    env_reset

User ada may run the following commands on here:
    (ALL : ALL) ALL
    (root) NOPASSWD: /opt/gpud/bin/gpud up, /opt/gpud/bin/gpud down,
        /opt/gpud/bin/gpud restart
"""


def machine(
    tree: Path,
    files: Mapping[str, str],
    *,
    installed: bool = False,
    environ: Mapping[str, str] | None = None,
    **changed: object,
) -> Machine:
    """Lay out ``files`` below ``tree`` and give the machine that they are."""
    for name, text in files.items():
        path = tree / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    home = "/" if installed else str(tree / "home-of-gpud")
    settings = Settings(home=home, sysroot=str(tree), dockerd=Dockerd())
    made = Machine(settings, PERSON, environ or {}, NOW, root_silence="gpud is not running")
    return replace(made, **changed)  # type: ignore[arg-type]


def program(tree: Path, name: str, says: str = "", code: int = 0) -> None:
    """Put a program onto the machine's PATH that prints something."""
    path = tree / "usr/bin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(f"{name}.says").write_text(says)
    path.write_text(f'#!/bin/sh\ncat "$0.says"\nexit {code}\n')
    path.chmod(0o755)


def report(dockerd: DockerdReport | None = None, agent: AgentReport | None = None) -> RootReport:
    """What root says on a machine where all is well, a second ago."""
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
    return replace(up, **changed)  # type: ignore[arg-type]


def said(found: Finding, verdict: Verdict, word: str) -> None:
    assert (found.verdict, word in found.evidence) == (verdict, True), found
