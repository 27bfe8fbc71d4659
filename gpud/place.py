"""Location of this gpud: its home, its settings file, users of its verbs, and whether it runs."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gpud
from gpud import settings_files
from gpud.core.errors import ConfigError, GpudError
from gpud.core.proc import start_ticks
from gpud.core.settings import Settings, parse
from gpud.core.text import escaped, pasteable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LARGEST = 32 << 20
"""Of the agent's document, many times over."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where this gpud keeps its files and reads its settings."""

    home: str
    config: Path

    def settings(self, *, with_secrets: bool = True) -> Settings:
        """Read the settings in force, without those of secrets.toml where we may not read it.

        Errors: ``ConfigError`` naming file and key. Under sudo the environment is not looked at:
        it is the invoking user's, and root takes nothing from there.
        """
        readable = with_secrets and not settings_files.unreadable_secrets(self.home)
        return settings_files.read(self.config, _environ(), home=self.home, with_secrets=readable)

    def warnings(self) -> list[str]:
        """Warn of each setting that no longer exists. Errors: ``ConfigError``."""
        return settings_files.warnings(self.config, _environ())

    def settings_or_defaults(self) -> tuple[Settings, ConfigError | None]:
        """Read them; for what must answer all the same, what holds without the file, and why."""
        try:
            return self.settings(), None
        except ConfigError as error:
            with contextlib.suppress(ConfigError):
                return parse(None, _environ(), home=self.home), error
            return Settings(home=self.home), error


def _environ() -> dict[str, str]:
    return {} if "SUDO_UID" in os.environ else dict(os.environ)


def default_home() -> str:
    """Give ``$GPUD_HOME``, else ``.gpud`` of the checkout this code runs from, else ``/``."""
    if "SUDO_UID" not in os.environ and os.environ.get("GPUD_HOME"):
        return str(Path(os.environ["GPUD_HOME"]).absolute())
    checkout = Path(gpud.__file__).resolve().parent.parent
    return str(checkout / ".gpud") if (checkout / "pyproject.toml").is_file() else "/"


def program(home: str) -> list[str]:
    """Return the words that start this gpud: ``gpud``, or those of a development run."""
    checkout = Path(gpud.__file__).resolve().parent.parent
    words, default = ["gpud"], "/"
    if (checkout / "pyproject.toml").is_file():
        words, default = [str(Path(sys.executable).parent / "gpud")], str(checkout / ".gpud")
    return words if home == default else [*words, "--home", home]


def with_fixes(value: Any, start: Sequence[str]) -> Any:  # noqa: ANN401  # JSON
    """Write the commands in all fixes of a document with the words that start this gpud."""
    if isinstance(value, list):
        return [with_fixes(item, start) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: pasteable(item, start)
        if name == "fix" and isinstance(item, str)
        else with_fixes(item, start)
        for name, item in value.items()
    }


def root_only(place: Place) -> Settings:
    """Read settings for a verb that is root's on an installed gpud."""
    if place.home == "/" and os.geteuid() != 0:
        raise PermissionError("this needs root on an installed gpud")
    return place.settings()


def as_the_agent(settings: Settings, place: Place) -> None:
    """Become whom the agent runs as where we are root: no file of ours may be in its way.

    Errors: ``GpudError`` when that user cannot be become, ``PermissionError`` for anybody else.
    """
    own = Path(settings.run_dir, "agent")
    if own.is_dir() and os.geteuid() not in {0, own.stat().st_uid}:
        raise PermissionError("this is for root, or for the user that gpud's agent runs as")
    if os.geteuid() != 0:
        return
    if not own.is_dir():  # no gpud since the boot; who has the history has the say over it still
        own = Path(settings.state_dir)
    if not own.is_dir() or own.stat().st_uid == 0:
        return
    import pwd

    from gpud.root import drop

    try:
        drop.become(pwd.getpwuid(own.stat().st_uid), _needed(settings, place))
        os.chdir("/")
    except (OSError, KeyError) as error:
        raise GpudError(f"cannot run as the owner of {own}: {error}") from error


def as_the_caller(settings: Settings, place: Place) -> bool:
    """Become the user who called sudo; False where we are root and nobody did.

    Errors: ``GpudError`` when that user cannot be become.
    """
    if os.geteuid() != 0:
        return True
    caller = os.environ.get("SUDO_UID", "")
    if not (caller.isascii() and caller.isdigit() and int(caller)):
        return False
    import pwd

    from gpud.root import drop

    try:
        user = pwd.getpwuid(int(caller))
        groups = os.getgrouplist(user.pw_name, user.pw_gid)
        drop.become(user, _needed(settings, place), groups)
    except (OSError, KeyError, OverflowError) as error:
        raise GpudError(f"cannot run as the user {caller} who called sudo: {error}") from error
    return True


def _needed(settings: Settings, place: Place) -> set[Path]:
    """List the directories that gpud has to reach as whomever it runs."""
    needed = {Path(gpud.__file__).resolve().parent.parent, Path(sys.prefix), Path(sys.base_prefix)}
    needed |= {Path(sys.executable).parent, Path(settings.state_dir), Path(settings.run_dir)}
    needed |= {place.config.parent, Path(settings.home), Path(settings.sysroot)}
    return needed - {Path("/")}


def document(run_dir: Path) -> dict[str, Any] | None:
    """Give what the agent wrote last; None where gpud does not run.

    Errors: ``GpudError`` when it is none of the agent's documents.
    """
    path = run_dir / "agent.json"
    try:
        document: Any = json.loads(_plain(path))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise GpudError(f"{path} is not readable as JSON: {error}") from error
    if not isinstance(document, dict) or (document and "schema_version" not in document):
        raise GpudError(f"{path} is no status of gpud's", fix="gpud restart writes it anew")
    return document if document and running(run_dir) else None


@contextlib.contextmanager
def legible() -> Iterator[None]:
    """Tell what of the agent's document cannot be shown: another version may have written it.

    Errors: ``GpudError``.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        message = f"the agent's status is none that this gpud can show: {type(error).__name__}"
        raise GpudError(f"{message}: {escaped(str(error))}", fix="sudo gpud restart") from error


def _plain(path: Path) -> bytes:
    """Read a regular file: a pipe in its place would keep whoever asks, and root, for ever."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123  # of a descriptor
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise GpudError(f"{path} is no plain file", fix="gpud restart makes it anew")
        return file.read(LARGEST)


def running(run_dir: Path) -> bool:
    """Compare pid and start time, so that a recycled pid is never taken for gpud."""
    try:
        pid, ticks = (run_dir / "root.pid").read_text().split()
        return start_ticks(Path("/proc", pid, "stat").read_text()) == int(ticks)
    except (OSError, ValueError):
        return False


def not_running(place: Place, run_dir: Path) -> str:
    """Say so, and what starts it: that depends on who asks, and of what."""
    stopped = " (stopped with gpud down)" if (run_dir / "stopped").exists() else ""
    start = pasteable(start_command(place), program(place.home))
    return f"gpud is not running{stopped}; start it with: {start}"


def start_command(place: Place) -> str:
    """Return the command that starts gpud for who asks."""
    if place.home == "/":
        return "gpud up" if os.geteuid() == 0 else "sudo gpud up"
    return "deploy/run" if Path(place.home).name == ".gpud" else "gpud up"
