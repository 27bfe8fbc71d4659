"""Steps of an installation on the terminal, with their duration, and a log with the details."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

CLEAN = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
"""Environment of what root runs, with nothing of the caller's shell."""


class InstallError(Exception):
    """An end of the installation, with what to do about it."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


def visible(text: str) -> str:
    """Write what steers a terminal as an escape; a name may hold anything."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


class Console:
    """Terminal and log of one installation; the log keeps what is in it."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._file: IO[bytes] = log.open("ab", buffering=0)
        self._began_at = 0  # where in the log the last attempt begins

    def say(self, text: str) -> None:
        """Print a line."""
        print(visible(text), flush=True)

    def warn(self, text: str) -> None:
        """Print a warning."""
        print(f"warning: {visible(text)}", file=sys.stderr, flush=True)

    def attempt(self, title: str, action: Callable[[], object]) -> int:
        """Do something under one line with its duration; its output goes to the log. 0: done."""
        print(f"  {visible(title):<58} ", end="", flush=True)
        self._file.write(f"\n=== {title}\n".encode(errors="backslashreplace"))
        self._began_at, began_s, status = self._file.tell(), time.monotonic(), 0
        try:
            action()
        except subprocess.CalledProcessError as error:
            status = error.returncode
        except (OSError, InstallError, SystemExit) as error:
            self._file.write(f"{error}\n".encode(errors="backslashreplace"))
            status = 1
        took = f"{time.monotonic() - began_s:5.1f} s"
        print(f"FAILED after{took}" if status else took, flush=True)
        return status

    def step(self, title: str, fix: str, action: Callable[[], object]) -> None:
        """Do as ``attempt``; a failure is the end. Errors: ``InstallError``."""
        if status := self.attempt(title, action):
            self.show_log(15)
            raise InstallError(f"{title}: exit status {status}; all of it is in {self.log}", fix)

    def show_log(self, lines: int) -> None:
        """Print the last lines that the last attempt wrote."""
        with self.log.open("rb") as file:
            file.seek(self._began_at)
            text = file.read().decode(errors="backslashreplace")
        for line in text.splitlines()[-lines:]:
            print(f"    | {visible(line)}", file=sys.stderr, flush=True)

    def write(self, text: str) -> None:
        """Write to the log alone, with nothing that steers a terminal."""
        self._file.write(visible(text).encode(errors="backslashreplace"))

    def run(
        self, *argv: str | Path, env: Mapping[str, str] | None = None, cwd: str | Path = "/"
    ) -> None:
        """Run a program with its output in the log. Errors: ``CalledProcessError``."""
        self.write(f"$ {' '.join(map(str, argv))}\n")
        subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=cwd,
            check=True,
        )


def output(*argv: str | Path, env: Mapping[str, str] | None = None) -> str | None:
    """Return what a program prints; None where it fails or is not there."""
    try:
        ran = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, env=env, check=False
        )
    except OSError:
        return None
    return None if ran.returncode else ran.stdout.decode(errors="replace")
