"""Whether a daemon can start Windows programs, and with which environment.

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
from typing import TYPE_CHECKING

from gpud.agent import plainfile
from gpud.agent.children import ENVIRONMENT
from gpud.core import wsl
from gpud.core.errors import TelemetryError

if TYPE_CHECKING:
    from collections.abc import Iterator

REGISTRATIONS = ("WSLInterop", "WSLInterop-late")
_SOCKET = re.compile(r"(\d{1,10})_interop", re.ASCII)


def environment(sysroot: str) -> dict[str, str]:
    """Give the environment for a Windows program.

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
    for path in sockets(root / "run/WSL"):
        if _lives(path):
            return {**ENVIRONMENT, "WSL_INTEROP": str(path), "WSLENV": ""}
    raise TelemetryError(
        "Windows programs cannot be started: no session of WSL answers at /run/WSL/*_interop",
        reason="no_socket",
        fix="open a terminal of this distribution",
    )


def sockets(folder: Path) -> list[Path]:
    """List the sockets of WSL's sessions, the newest first: root's, or our own user's.

    Whoever else made one would be handed the command line and the output of what we start.
    """
    found: list[tuple[float, int, Path]] = []
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            name = _SOCKET.fullmatch(path.name)
            if name is not None:
                with contextlib.suppress(OSError):  # its session ended this moment
                    facts = path.lstat()
                    if stat.S_ISSOCK(facts.st_mode) and facts.st_uid in {0, os.getuid()}:
                        found.append((facts.st_mtime, int(name[1]), path))
    return [path for *_, path in sorted(found, reverse=True)]


def drives(sysroot: str) -> Iterator[str]:
    """Name the folders below ``sysroot`` at which drives of Windows are mounted, C: first.

    None of them is looked at: they come over 9p.
    """
    root = Path(sysroot)
    mount = wsl.mounts_at(wsl.sections(_text(root / "etc/wsl.conf")))
    for drive in wsl.drives(_text(root / "proc/mounts"), mount):
        yield str(root / drive.lstrip("/"))


def _lives(path: Path) -> bool:
    """Connect, and hang up: a session that ended leaves a socket at which nobody listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(str(path))
        except BlockingIOError:  # it is there, and has its hands full
            return True
        except OSError:
            return False
    return True


def _text(path: Path) -> str:
    return plainfile.text(path) or ""
