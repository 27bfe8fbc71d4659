"""Removal of what an installation made, line by line of its manifest.

Without a manifest what lies in the places of an installation is removed, with a warning.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpud.install import manifest, ownership, people, places, pythons, unit
from gpud.install.console import CLEAN, InstallError
from gpud.install.places import TREE
from gpud.install.setup import removed
from gpud.install.wheels import digest

if TYPE_CHECKING:
    import argparse
    import pwd
    from collections.abc import Callable

    from gpud.install.console import Console

SETTINGS: Final = (places.CONFIG_DIR / "gpud.toml", places.CONFIG_DIR / "secrets.toml")
FILES: Final = (TREE, places.RULE, places.MANPAGE, *places.COMPLETION.values())
REMOVE_DIR: Final = ("sh", "-c", '[ ! -d "$1" ] || rmdir --ignore-fail-on-non-empty "$1"', "sh")
AGAIN: Final = "see the line above, then run this again"


class Removal:
    """One removal; what cannot be removed is named, and the rest goes on."""

    def __init__(self, options: argparse.Namespace, console: Console) -> None:
        self.dry: bool = options.dry_run
        self.purge: bool = options.purge
        self.docker: bool = options.docker
        self.console = console
        self.python = pythons.own()
        self.left: list[str] = []
        self.undo: dict[str, Callable[[str], None]] = {
            "tree": self._path,
            "file": self._path,
            "link": self._link,
            "dir": self._dir,
            "settings": partial(self._unchanged, SETTINGS[0]),
            "secrets": partial(self._unchanged, SETTINGS[1]),
            "hook": self._hook,
            "userdir": partial(self._as_user, REMOVE_DIR),
            "userstate": partial(self._as_user, ("rm", "-rf", "--")),
            "member": partial(self._member, "docker"),  # noted before, so perhaps never made
            "person": partial(self._member, places.PEOPLE),
            "group": self._group,
            "user": self._user,
            **dict.fromkeys(("rule", "with", "owner"), lambda _: None),  # nothing of its own
        }

    def run(self) -> bool:
        """Remove everything; False where something is left. Errors: ``InstallError``."""
        if self.purge:
            unit.check_state("run this without --purge, or move that out of the way")
        self.console.say("Removing gpud.")
        self.remove(f"the processes of gpud{' and its dockerd' if self.docker else ''}", self._stop)
        self._keep()
        if places.MANIFEST.exists():
            for line in reversed(manifest.lines()):
                self._undo_line(line)
        else:
            self.console.warn(
                f"there is no {places.MANIFEST}: what lies in the known places is removed"
            )
            for path in FILES:
                if path != TREE or (TREE / "deploy/uninstall").exists():  # else it is not ours
                    self._path(str(path))
        for path in (
            *(places.fresh(each) for each in (*FILES, *SETTINGS, places.MANIFEST)),
            places.BUILD,
        ):  # of an interrupted run
            self._path(str(path))
        if places.RUN_DIR.exists():
            self.remove(str(places.RUN_DIR), partial(removed, places.RUN_DIR))
        self._remains()
        if self.left:
            return False
        if not self.dry:
            unit.reload(self.console)
            places.MANIFEST.unlink(missing_ok=True)
            with suppress(OSError):
                places.CONFIG_DIR.rmdir()
            self.console.say(
                "gpud is gone. Docker is still installed (sudo apt-get remove docker.io), and what"
                " runs of it runs on;\nnobody starts it or brings it back from now on."
            )
        return True

    def remove(self, title: str, action: Callable[[], object]) -> None:
        """Do one removal."""
        if self.dry:
            self.console.say(f"  would remove: {title}")
        elif self.console.attempt(title, action):
            self.console.show_log(20)
            self.left.append(title)

    def _undo_line(self, line: str) -> None:
        kind, _, value = line.partition(" ")
        undo = self.undo.get(kind)
        if undo is None:
            self.console.warn(f"{places.MANIFEST}: a line this version does not know: {line}")
        else:
            undo(value)

    def _stop(self) -> None:
        try:
            words = (places.RUN_DIR / "root.pid").read_text().split()
            pid, start = int(words[0]), words[1]
        except (OSError, ValueError, IndexError):
            return
        options = ["--docker"] if self.docker else []
        unit.stop(self.console)
        with suppress(OSError, subprocess.CalledProcessError):
            self.console.run(TREE / "bin/gpud", "down", *options, env=CLEAN)
            return
        # A broken tree does not keep the supervisor: it ends at SIGTERM. Pid and start time are it.
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            if fields[19] == start:
                os.kill(pid, signal.SIGTERM)
                ownership.ended(pid, 15.0)

    def _keep(self) -> None:
        """Make history and logs root's before their user goes; nothing is removed until then."""
        if self.dry or "user gpud" not in manifest.lines():
            return
        why = "nothing was removed"
        try:
            if people.person("gpud"):
                ownership.end("gpud")
            if not self.purge:
                why = "history and logs cannot be kept, so nothing was removed"
                for path in filter(os.path.lexists, places.AGENTS):
                    ownership.keep("gpud", str(path))
        except (SystemExit, OSError) as error:
            raise InstallError(f"{error}\n{why}", AGAIN) from error
        if places.LOG_DIR.is_dir():  # the next group of that number reads no log
            # Nothing below: what gpud left there and was moved aside may be a link to any file.
            for path in (places.LOG_DIR, *places.LOG_DIR.iterdir()):
                os.chown(path, -1, 0, follow_symlinks=False)
            places.LOG_DIR.chmod(0o755)

    def _remains(self) -> None:
        """Remove history, logs and settings, or name what is kept of them."""
        for path in (
            places.STATE_DIR,
            *sorted(places.STATE_DIR.parent.glob("gpud.aside-*")),
            places.LOG_DIR,
        ):
            if self.purge and path.exists():
                self.remove(str(path), partial(removed, path))
            elif path.exists():
                self.console.say(f"  kept: {path} (--purge removes it)")
        for path in SETTINGS:
            if self.purge:
                self._path(str(path))  # also one that was there before
            if self.dry or not path.exists():
                continue
            if not path.is_symlink() and path.stat().st_uid == 0:
                os.chown(path, -1, 0)  # the next group of that number is no reader of secrets
            self.console.say(f"  kept: {path}, which you changed (--purge removes it)")

    def _path(self, value: str) -> None:
        if os.path.lexists(value):
            self.remove(value, partial(removed, Path(value)))

    def _link(self, value: str) -> None:
        if Path(value).is_symlink():
            self.remove(value, Path(value).unlink)

    def _dir(self, value: str) -> None:
        path = Path(value)
        if path.is_dir() and path != places.CONFIG_DIR:
            self.remove(value, partial(_remove_if_empty, path))

    def _unchanged(self, path: Path, value: str) -> None:
        """Remove a settings file that nobody changed."""
        if path.exists() and (self.purge or digest(path) == value):
            self.remove(str(path), path.unlink)

    def _hook(self, value: str) -> None:
        login, made, file = value.split(" ", 2)
        entry = people.person(login)
        title = f"the block of gpud in {file}"
        if entry is None:
            return
        verb = "remove" if made == "old" else "drop"
        left = len(self.left)
        self.remove(title, lambda: self._take_block(entry, verb, Path(file)))
        if len(self.left) > left:
            self.left[-1] = f"the block in {file}"

    def _take_block(self, entry: pwd.struct_passwd, verb: str, file: Path) -> None:
        ran = people.block(entry, self.python, verb, file)
        self.console.write(ran.stdout)
        ran.check_returncode()

    def _as_user(self, argv: tuple[str, ...], value: str) -> None:
        login, _, path = value.partition(" ")
        if entry := people.person(login):
            self.remove(path, lambda: people.run_as_user(self.console, entry, *argv, path))

    def _member(self, group: str, login: str) -> None:
        if people.person(login) and people.in_group(login, group):
            leave = partial(self.console.run, "gpasswd", "-d", login, group)
            self.remove(f"{login} from the group {group}", leave)

    def _group(self, name: str) -> None:
        if people.group_exists(name):
            self.remove(f"group {name}", partial(self.console.run, "groupdel", name))

    def _user(self, name: str) -> None:
        if people.person(name):
            self.remove(f"system user {name}", partial(self.console.run, "userdel", name))


def _remove_if_empty(path: Path) -> None:
    if not any(path.iterdir()):
        path.rmdir()
