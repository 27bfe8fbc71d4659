"""``python -I -m gpud.root.drop [--user NAME] [--group NAME] [--parent PID] ... -- COMMAND...``.

Becomes an ordinary user with no way back and runs the command. A needed directory that the user
cannot reach (a checkout below ``/root``, mode 0700) is shown to it alone: in a mount namespace of
its own the blocking directory is covered by an empty one and only what is needed is mounted inside,
as systemd does with ``ProtectHome=tmpfs`` and ``BindPaths=``.

Standard library only, and as little of it as it takes: each start of the agent waits for it. Exit
code 126 when it cannot drop; it never runs the command as root then.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import grp
import os
import pwd
import signal
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpud.core.settings import Settings

CANNOT = 126
PR_SET_PDEATHSIG = 1
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
CAPABILITY_VERSION_3 = 0x20080522
CLONE_NEWNS = 0x00020000
MS_BIND, MS_REC, MS_SLAVE = 0x1000, 0x4000, 0x80000
MS_NOSUID, MS_NODEV = 0x2, 0x4
O_PATH: int = os.O_PATH


def prctl(option: int, value: int) -> None:
    """Set one attribute of the calling process.

    Errors: ``OSError`` with the kernel's errno.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}): {os.strerror(code)}")


def drop_capabilities() -> None:
    """Empty the permitted, effective and inheritable set, and with them the ambient one.

    Errors: ``OSError``.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capset(struct.pack("=Ii", CAPABILITY_VERSION_3, 0), bytes(24)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def main(argv: Sequence[str]) -> int:
    """Drop, verify, execute. Returns only when that failed."""
    parser = argparse.ArgumentParser(prog="gpud.root.drop")
    parser.add_argument("--user")
    parser.add_argument("--group")
    parser.add_argument("--parent", type=int, default=0)
    parser.add_argument("--need", action="append", default=[], type=Path)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(argv)
    try:
        if os.getsid(0) != os.getpid():
            os.setsid()
        if options.user is not None:
            groups = [grp.getgrnam(options.group).gr_gid] if options.group else []
            become(pwd.getpwnam(options.user), options.need, groups)
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # a change of uid clears it, so after that
        if options.parent and os.getppid() != options.parent:
            return CANNOT  # the supervisor died before the line above took hold
        os.chdir("/")
        os.umask(0o027)
        os.execv(options.command[0], options.command)
    except (OSError, KeyError) as error:
        words = f"gpud: cannot run as {options.user or 'ourselves'}: {error}"
        print(escaped(words), file=sys.stderr)
    return CANNOT


def needed(settings: Settings, config_path: Path | None) -> set[Path]:
    """Return the places that a gpud reads and writes which runs as another user."""
    places = {Path(__file__).parents[2], Path(sys.prefix), Path(sys.base_prefix)}
    places |= {Path(sys.executable).parent, Path(settings.home), Path(settings.sysroot)}
    places |= {Path(settings.state_dir), Path(settings.run_dir), Path(settings.log_dir)}
    return places if config_path is None else places | {config_path.parent}


def become(user: pwd.struct_passwd, needed: Iterable[Path], groups: Sequence[int] = ()) -> None:
    """Make the needed directories reachable, then become ``user`` with ``groups`` for good.

    Errors: ``OSError`` when the kernel refuses, or when the way back to root is still open.
    """
    blocked = blockers(needed, user)
    if blocked:
        show_only(blocked)
    _empty_bounding_set()
    os.setgroups(list(groups))
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    drop_capabilities()  # a change of uid leaves the inheritable ones
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if user.pw_uid == 0:
        raise PermissionError(f"{user.pw_name} is root")
    try:
        os.setuid(0)
    except PermissionError:
        return
    raise PermissionError("setuid(0) still succeeds")


def _empty_bounding_set() -> None:
    """Give up every capability for all descendants; a container's root may not be allowed to."""
    capability = 0
    with contextlib.suppress(OSError):  # the kernel has no more of them
        while True:
            prctl(PR_CAPBSET_DROP, capability)
            capability += 1


def blockers(needed: Iterable[Path], user: pwd.struct_passwd) -> dict[Path, list[Path]]:
    """Find directories the user cannot pass through, each with what is needed below it."""
    blocked: dict[Path, list[Path]] = {}
    for path in sorted({Path(os.path.realpath(path)) for path in needed}):
        for parent in reversed(path.parents):
            if not parent.exists():
                break  # nothing there to be kept from: a settings file nobody has written, say
            if not _passable(parent, user):
                below = blocked.setdefault(parent, [])
                if not any(path.is_relative_to(other) for other in below):
                    below.append(path)
                break
    return blocked


def show_only(blocked: dict[Path, list[Path]]) -> None:
    """Cover each blocking directory, in a namespace of our own, and mount what is needed inside."""
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int, what: str) -> None:
        if result != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"{what}: {os.strerror(code)}")

    def mount(source: str, target: Path, kind: str | None, flags: int, options: str | None) -> None:
        encoded = [None if text is None else text.encode() for text in (source, str(target), kind)]
        data = None if options is None else options.encode()
        result = libc.mount(*encoded, ctypes.c_ulong(flags), data)
        check(result, f"mount on {target}")

    os.umask(0o022)
    check(libc.unshare(CLONE_NEWNS), "unshare")
    try:
        mount("none", Path("/"), None, MS_REC | MS_SLAVE, None)  # theirs arrive, ours do not leave
    except OSError as error:
        places = ", ".join(map(str, blocked))
        raise OSError(
            error.errno,
            f"it cannot pass through {places}, and this root directory (a plain chroot?) cannot "
            "be given a mount namespace; move gpud to a place everybody can reach",
        ) from error
    for cover, paths in blocked.items():
        sources = [(path, os.open(path, O_PATH | os.O_CLOEXEC)) for path in paths if path.is_dir()]
        mount("gpud", cover, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=64k")
        for path, descriptor in sources:
            path.mkdir(parents=True, exist_ok=True)
            mount(f"/proc/self/fd/{descriptor}", path, None, MS_BIND | MS_REC, None)
            os.close(descriptor)


def _passable(directory: Path, user: pwd.struct_passwd) -> bool:
    facts = directory.stat()
    if facts.st_uid == user.pw_uid:
        return bool(facts.st_mode & 0o100)
    if facts.st_gid == user.pw_gid:
        return bool(facts.st_mode & 0o010)
    return bool(facts.st_mode & 0o001)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
