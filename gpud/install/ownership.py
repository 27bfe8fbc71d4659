"""End the processes of the service's user, and hand its files to root and back.

Who owns a directory can put a link to anybody's file into it (WSL without systemd sets no
fs.protected_hardlinks), so no file changes its owner by name: it is opened, must be a regular file
with one name, and then that open file is handed over. ``keep`` moves everything else aside,
``give`` refuses it. Errors: ``OSError``, and ``SystemExit`` with the reason.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import select
import signal
import stat
import subprocess
import time

STEPS = ((3.0, None), (5.0, signal.SIGTERM), (10.0, signal.SIGKILL))
"""Seconds each step may take: a probe that runs ends by itself, and never by a signal at once."""
GPU, GPU_S = "/dev/dxg", 30.0
"""WSL2's GPU, and for how long a process that has it open is waited for. One that hangs there gets
no signal: that can cost the GPU until `wsl --shutdown` (ADR 32)."""
BUSY = 0o700  # the mode of a directory while `keep` is at work in it
DONE = 0o755
CACHE = "cuda-cache"  # of the driver's, made anew when it is gone


def living(uid: int) -> list[int]:
    """List the processes with a living thread of a user, by any of its four uids.

    A process whose main thread has ended has the state of a zombie while its other threads run.
    """
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and runs(name, uid)]  # noqa: PTH208


def runs(pid: str, uid: int) -> bool:
    """Whether a process has a living thread of a user."""
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with contextlib.suppress(OSError, KeyError):
                with open(f"/proc/{pid}/task/{thread}/status", errors="replace") as file:  # noqa: PTH123
                    fields = dict(line.split(":", 1) for line in file if ":" in line)
                if str(uid) in fields["Uid"].split() and fields["State"].split()[0] not in "ZX":
                    return True
    return False


def on_gpu(pid: int) -> bool:
    """Whether a process has WSL2's GPU open."""
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{name}") == GPU:  # noqa: PTH115
                    return True
    return False


def leave_gpu(uid: int) -> None:
    """Wait for what has WSL2's GPU open. Errors: ``SystemExit`` naming what does not end."""
    until_s = time.monotonic() + GPU_S
    for pid in filter(on_gpu, living(uid)):
        if not ended(pid, until_s - time.monotonic()):
            raise SystemExit(
                f"process {pid} hangs in the GPU driver, and a signal there can cost WSL its GPU. "
                "`wsl --shutdown` in Windows ends it"
            )


def signal_all(uid: int, number: int) -> None:
    """Signal every process of a user at once: none can fork between a look and the signal."""
    child = os.fork()
    if child == 0:
        try:
            os.setresuid(uid, uid, uid)
            os.kill(-1, number)
        finally:
            os._exit(0)
    if not ended(child, 1.0):  # stopped by one of them
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def ended(pid: int, within_s: float) -> bool:
    """Wait for the end of a process."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    try:
        return bool(poll.poll(max(0.0, within_s) * 1000))
    finally:
        os.close(descriptor)


def end(user: str) -> None:
    """End every process of a user. Errors: ``SystemExit`` naming those that do not end."""
    uid, left = pwd.getpwnam(user).pw_uid, []
    if uid == 0:
        raise SystemExit(f"{user} is root")
    for patience_s, number in STEPS:
        until_s = time.monotonic() + patience_s
        if number is not None and living(uid):
            leave_gpu(uid)
            signal_all(uid, number)
        while left := living(uid):
            if time.monotonic() > until_s:
                break
            ended(left[0], min(0.5, until_s - time.monotonic()))
            if number == signal.SIGKILL:
                signal_all(uid, number)
        if not left:
            return
    raise SystemExit(
        f"processes of user {user} do not end, not even when killed: "
        f"{' '.join(map(str, left[:9]))}. `wsl --shutdown` in Windows ends them"
    )


def plain(directory: int, name: str, owners: set[int]) -> int | None:
    """Open a regular file with one name that belongs to one of ``owners``; None for all others."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        if not stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            return None  # some devices do things when they are opened
        file = os.open(name, flags, dir_fd=directory)
    except OSError:
        return None
    facts = os.fstat(file)
    if stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1 and facts.st_uid in owners:
        return file
    os.close(file)
    return None


def others(directory: int, owners: set[int]) -> list[str]:
    """Name what is in a directory besides such files."""
    found = []
    for name in sorted(os.listdir(directory)):
        file = plain(directory, name, owners)
        if file is None:
            found.append(name)
        else:
            os.close(file)
    return found


def hand(directory: int, owners: set[int], uid: int, gid: int) -> None:
    """Give every such file to a user."""
    for name in os.listdir(directory):
        file = plain(directory, name, owners)
        if file is not None:
            os.fchmod(file, stat.S_IMODE(os.fstat(file).st_mode) & 0o644)
            os.fchown(file, uid, gid)
            os.close(file)


def move_aside(path: str, directory: int, names: list[str]) -> None:
    """Move entries, unopened, to a directory beside ``path`` that only root can enter."""
    number = 1
    while os.path.lexists(f"{path}.aside-{number}"):
        number += 1
    place = f"{path}.aside-{number}"
    os.mkdir(place, 0o700)  # noqa: PTH102
    for name in names:
        os.rename(name, f"{place}/{name}", src_dir_fd=directory)
    subprocess.run(["rm", "-rf", "--one-file-system", "--", f"{place}/{CACHE}"], check=True)
    left = [name for name in names if name != CACHE]
    if left:
        print(f"  moved to {place}, as it is no file of gpud's: {shown(left)}")
    else:
        os.rmdir(place)  # noqa: PTH106


def shown(names: list[str]) -> str:
    """Show some names, which may hold anything."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""  # noqa: PLR2004
    return ", ".join(map(ascii, names[:5])) + more


def keep(user: str, path: str) -> None:
    """Make root's what a user leaves in a directory; all else there is moved aside."""
    try:
        uid = pwd.getpwnam(user).pw_uid
    except KeyError:
        uid = 0
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    facts = os.fstat(directory)
    if facts.st_uid == uid != 0:
        if strange := others(directory, {uid}):
            move_aside(path, directory, strange)
        os.fchmod(directory, BUSY)
        os.fchown(directory, 0, 0)
    elif (facts.st_uid, stat.S_IMODE(facts.st_mode)) != (0, BUSY):  # not what was interrupted
        return
    hand(directory, {uid, 0}, 0, 0)
    if strange := others(directory, {0}):
        move_aside(path, directory, strange)
    os.fchmod(directory, DONE)


def give(user: str, path: str) -> None:
    """Make a user's what ``keep`` left in a directory. Errors: ``SystemExit`` naming all else."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    entry, facts = pwd.getpwnam(user), os.fstat(directory)
    if facts.st_uid != 0:
        return
    owners = {0, entry.pw_uid}  # an interrupted run handed some over
    strange = others(directory, owners)
    if strange or facts.st_mode & 0o022:
        what = f"it holds {shown(strange)}" if strange else "others than root may write there"
        raise SystemExit(f"{path} is not as deploy/uninstall leaves it: {what}")
    hand(directory, owners, entry.pw_uid, entry.pw_gid)
    os.fchmod(directory, DONE)
    os.fchown(directory, entry.pw_uid, entry.pw_gid)
