"""What WSL's ``/init`` does in a distribution: process 1, and a relay for every terminal.

Runs inside, with the distribution's own python3 and nothing of gpud. ``/init`` reaps for ever.
``/init relay CONTROL USER ARGV...`` writes a NUL, waits for a line ``ROWS COLUMNS`` on descriptor
CONTROL, starts ARGV for USER on a pty of that size and passes bytes between it and the socket on
descriptors 0 and 1. When that ends, the terminal's window was closed: the pty hangs up. Like WSL's,
the relay is a child subreaper and lives as long as anything its shell has started.
"""

import contextlib
import ctypes
import fcntl
import os
import pty
import pwd
import select
import signal
import socket
import struct
import sys
import termios

PR_SET_CHILD_SUBREAPER = 36
ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "TERM": "xterm-256color",
    "WSL_DISTRO_NAME": "Debian",
    "WSL_INTEROP": "/run/WSL/1_interop",
    "WSLENV": "",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/wsl/lib"
    ":/mnt/c/Windows/system32:/mnt/c/Program Files/Windows Defender",
}


def init() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    os.write(1, b"up\n")
    os.close(1)
    while True:
        signal.sigwait([signal.SIGCHLD])
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def relay(control: int, user: str, argv: list[str]) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.write(1, b"\0")  # ready: what follows is the shell's time and not this program's
    if not (line := os.read(control, 100)):
        return
    rows, columns = map(int, line.split())
    shell, master = pty.fork()
    if shell == 0:
        os.close(control)
        _become(user, argv)
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    _pass_on(master)
    os.close(master)
    with socket.socket(fileno=1) as window:
        window.shutdown(socket.SHUT_WR)  # whoever else holds the descriptor
    with contextlib.suppress(ChildProcessError):
        while os.wait():
            pass


def _become(user: str, argv: list[str]) -> None:
    entry = pwd.getpwnam(user)
    os.initgroups(user, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
    os.chdir(entry.pw_dir)
    named = {"USER": user, "LOGNAME": user, "NAME": "laptop"}
    home = {"HOME": entry.pw_dir, "SHELL": entry.pw_shell}
    os.execve(argv[0].lstrip("-"), argv, {**ENVIRONMENT, **named, **home})


def _pass_on(master: int) -> None:
    """Relay until the window is closed or nobody holds the pty any more."""
    while True:
        ready = select.select([0, master], [], [])[0]
        if master in ready:
            try:
                said = os.read(master, 65536)
            except OSError:  # EIO: the last process with this terminal has closed it
                return
            os.write(1, said)
        if 0 in ready:
            typed = os.read(0, 65536)
            if not typed:
                return
            os.write(master, typed)


if sys.argv[1:2] == ["relay"]:
    relay(int(sys.argv[2]), sys.argv[3], sys.argv[4:])
else:
    init()
