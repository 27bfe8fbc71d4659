"""The people of a machine: what is below a home is only ever touched as its owner."""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.install import rcfile
from gpud.install.places import TREE

if TYPE_CHECKING:
    from gpud.install.console import Console

RCFILE = rcfile.__loader__.get_source(rcfile.__name__)  # type: ignore[union-attr]  # read before it goes


def person(login: str) -> pwd.struct_passwd | None:
    """Return who that is, by name or uid; None for nobody."""
    with suppress(KeyError, ValueError, OverflowError):
        return (
            pwd.getpwuid(int(login)) if login.isascii() and login.isdigit() else pwd.getpwnam(login)
        )
    return None


def caller() -> str:
    """Return who calls: behind sudo the one who called that."""
    with suppress(KeyError):
        return os.environ.get("SUDO_USER") or pwd.getpwuid(os.geteuid()).pw_name
    return ""


def in_group(login: str, group: str) -> bool:
    """Return whether a user is in a group."""
    entry = person(login)
    with suppress(KeyError):
        return entry is not None and grp.getgrnam(group).gr_gid in os.getgrouplist(
            login, entry.pw_gid
        )
    return False


def group_exists(name: str) -> bool:
    """Return whether there is such a group."""
    with suppress(KeyError):
        return bool(grp.getgrnam(name))
    return False


def as_user(
    entry: pwd.struct_passwd, *argv: str | Path, text: str | None = None, shown: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a program as a user, with a clean environment; ``shown``: on our own terminal.

    In a session of its own: what else this user runs could type into root's terminal otherwise.
    """
    root = os.geteuid() == 0
    return subprocess.run(
        [str(word) for word in argv],
        input=text,
        stdin=subprocess.DEVNULL if text is None else None,
        stdout=None if shown else subprocess.PIPE,
        stderr=None if shown else subprocess.STDOUT,
        encoding="utf-8",
        errors="backslashreplace",
        cwd="/",
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LC_ALL": "C.UTF-8",
            "HOME": entry.pw_dir,
            "USER": entry.pw_name,
            "LOGNAME": entry.pw_name,
        },
        user=entry.pw_uid if root else None,
        group=entry.pw_gid if root else None,
        extra_groups=os.getgrouplist(entry.pw_name, entry.pw_gid) if root else None,
        start_new_session=root,
        check=False,
    )


def run_as_user(console: Console, entry: pwd.struct_passwd, *argv: str | Path) -> None:
    """Run a program as a user, its output in the log. Errors: ``CalledProcessError``."""
    ran = as_user(entry, *argv)
    console.write(ran.stdout)
    ran.check_returncode()


def block(
    entry: pwd.struct_passwd, python: Path, verb: str, file: Path, *snippets: Path
) -> subprocess.CompletedProcess[str]:
    """Do one of rcfile's verbs with a file of that user's."""
    return as_user(entry, python, "-I", "-", verb, file, *snippets, text=RCFILE)


def hooks(entry: pwd.struct_passwd) -> dict[Path, Path]:
    """Return the start file of each shell that a user has, and the block that goes there."""
    home, share = Path(entry.pw_dir), TREE / "share"
    found = {home / ".bashrc": share / "bashrc.snippet"}
    if entry.pw_shell.endswith("/zsh") or there(home / ".zshrc"):
        found[home / ".zshrc"] = share / "zshrc.snippet"
    if entry.pw_shell.endswith("/fish") or there(home / ".config/fish"):
        found[home / ".config/fish/conf.d/gpud.fish"] = share / "config.fish.snippet"
    return found


def there(path: Path) -> bool:
    """Return whether something is there that we may look at."""
    with suppress(OSError):
        return path.exists()
    return False
