"""Windows programs started from WSL: their environment, place and output, and two versions.

WSL starts them through a socket that each of its sessions serves, named in ``WSL_INTEROP``. The
agent belongs to no session and has a clean environment, so it takes the newest one that lives.
Source: WSL's init, binfmt.cpp and util.cpp; any user may connect.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from gpud import regular_file
from gpud.agent import children
from gpud.agent.children import ENVIRONMENT
from gpud.core import wsl
from gpud.core.errors import TelemetryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

SYSTEM: Final = "Windows/System32"
DEADLINE_S = 10.0
REGISTRATIONS = ("WSLInterop", "WSLInterop-late")
_SOCKET = re.compile(r"(\d{1,10})_interop", re.ASCII)
_VERSION = re.compile(r"(?<![\d.])\d{1,6}(?:\.\d{1,6}){2,3}(?![\d.])", re.ASCII)
_BRACKETS = re.compile(r"\[([^\[\]]{0,80})\]")

log = structlog.get_logger()


def environment(sysroot: str) -> dict[str, str]:
    """Return the environment for a Windows program.

    Errors: ``TelemetryError``: ``interop_off`` where the kernel does not know Windows programs,
    ``no_socket`` where no session of WSL lives that could start one.
    """
    root = Path(sysroot)
    binfmt = root / "proc/sys/fs/binfmt_misc"
    if not any(_text(binfmt / name).startswith("enabled") for name in REGISTRATIONS):
        raise TelemetryError(
            "Windows programs cannot be started: they are not registered with the kernel",
            reason="interop_off",
            fix="[interop] enabled=true in /etc/wsl.conf, then from Windows: wsl --shutdown",
        )
    for _, path in sorted(_sockets(root / "run/WSL"), reverse=True):
        if _accepts(path):
            return {**ENVIRONMENT, "WSL_INTEROP": str(path), "WSLENV": ""}
    raise TelemetryError(
        "Windows programs cannot be started: no session of WSL answers at /run/WSL/*_interop",
        reason="no_socket",
        fix="open a terminal of this distribution",
    )


def _sockets(folder: Path) -> Iterator[tuple[float, Path]]:
    """List the sockets of WSL's sessions, each with its age: root's, or our own user's.

    Any other owner would receive the command line and the output of what we start.
    """
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            with contextlib.suppress(OSError):  # its session ended this moment
                status = path.lstat()
                ours = stat.S_ISSOCK(status.st_mode) and status.st_uid in {0, os.getuid()}
                if ours and _SOCKET.fullmatch(path.name):
                    yield status.st_mtime, path


def _accepts(path: Path) -> bool:
    """Connect, and hang up: a session that ended leaves a socket without a listener."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        try:
            client.connect(str(path))
        except BlockingIOError:  # its queue is full: it lives
            return True
        except OSError:
            return False
    return True


def place(sysroot: str, program: str) -> str:
    """Return where ``program``, a path on Windows' drive C:, lies. No drive is looked at."""
    root = Path(sysroot)
    mount = wsl.mounts_at(wsl.sections(_text(root / "etc/wsl.conf")))
    return f"{root / mount.lstrip('/')}/c/{program}"


def text(data: bytes) -> str:
    """Decode UTF-16, UTF-8 or a code page; what is not ASCII may be lost, digits never are.

    Of these only UTF-16 has many zero bytes in a text.
    """
    wide = data.count(0) * 8 > len(data) or data.startswith(b"\xff\xfe")
    decoded = data.decode("utf-16-le" if wide else "utf-8", errors="replace")
    return decoded.removeprefix("\ufeff")


def wsl_version(output: str) -> str | None:
    """Find WSL's version in the output of ``wslinfo --wsl-version`` or ``wsl.exe --version``.

    It is the first number of that shape, in every language. The two programs spell it as "2.4.13"
    and "2.4.13.0": one spelling comes out.
    """
    match = _VERSION.search(output)
    if match is None:
        return None
    parts = match[0].split(".")
    return ".".join(parts[:3] if parts[3:] == ["0"] else parts)


def windows_build(output: str) -> str | None:
    """Find the version that ``ver`` writes in brackets: "Windows [Version 10.0.26100.3476]"."""
    matches = (_VERSION.search(inside) for inside in _BRACKETS.findall(output))
    return next((match[0] for match in matches if match is not None), None)


async def versions(
    sysroot: str, spawned: Callable[[], None], *, deadline_s: float = DEADLINE_S
) -> dict[str, str]:
    """Return ``wsl_version``, "2.4.13", and ``windows_build``, "10.0.26100.3476".

    What cannot be read is missing. Starts up to three programs, one after the other: call it in
    WSL only, once, when nothing waits for it.
    """

    async def output(path: str, *arguments: str, env: Mapping[str, str] = ENVIRONMENT) -> str:
        spawned()
        try:
            ended = await children.run_program(
                path, arguments, deadline_s=deadline_s, environment=env
            )
        except OSError as error:
            log.info("windows_silent", program=path, detail=str(error))
            return ""
        if ended.code:
            log.info("windows_silent", program=path, code=ended.code, killed=ended.killed)
        return text(ended.stdout) if ended.code == 0 else ""

    wslinfo = str(Path(sysroot, "usr/bin/wslinfo"))
    versions = {"wsl_version": wsl_version(await output(wslinfo, "--wsl-version"))}
    try:
        env = environment(sysroot)
    except TelemetryError as error:
        log.info("windows_silent", reason=error.reason, detail=str(error))
    else:
        if versions["wsl_version"] is None:
            path = place(sysroot, f"{SYSTEM}/wsl.exe")
            versions["wsl_version"] = wsl_version(await output(path, "--version", env=env))
        path = place(sysroot, f"{SYSTEM}/cmd.exe")
        versions["windows_build"] = windows_build(await output(path, "/d", "/c", "ver", env=env))
    return {name: value for name, value in versions.items() if value is not None}


def _text(path: Path) -> str:
    return regular_file.text(path) or ""
