"""Location of this gpud: its home, its settings file, the words that start it, whether it runs."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

import gpud
from gpud import regular_file, settings_files
from gpud.arguments import NOT_RUNNING
from gpud.core.errors import ConfigError, GpudError, NotRunningError
from gpud.core.settings import Settings, config_path, parse
from gpud.core.text import pasteable
from gpud.core.wire import UNREADABLE
from gpud.output import say
from gpud.processes import lived_s
from gpud.reports import latest_root_report, published_by, supervisor

if TYPE_CHECKING:
    from collections.abc import Sequence

LARGEST: Final = 32 << 20
"""Bytes of the agent's document, many times over."""
STARTS_S: Final = 30.0
"""An agent that lives for so long has started, as root's back-off has it."""
CHECKOUT: Final = Path(gpud.__file__).resolve().parent.parent


class Place(msgspec.Struct, frozen=True):
    """Where this gpud keeps its files and reads its settings; ``words`` were typed after gpud."""

    home: str
    config: Path
    words: tuple[str, ...] = ()

    @property
    def installed(self) -> bool:
        """Whether this is the gpud of the machine, which belongs to root."""
        return self.home == "/"

    @property
    def program(self) -> list[str]:
        """The words that start this gpud: ``gpud``, or those of a development run."""
        start = [str(Path(sys.executable).parent / "gpud")] if _in_checkout() else ["gpud"]
        default = str(CHECKOUT / ".gpud") if _in_checkout() else "/"
        return start if self.home == default else [*start, "--home", self.home]

    @property
    def with_sudo(self) -> str:
        """The same command for root, whose environment has no GPUD_HOME."""
        named = any(word.startswith("--ho") for word in self.words)
        return shlex.join(["sudo", *(self.program[:1] if named else self.program), *self.words])

    @property
    def start_command(self) -> str:
        """The command that starts gpud."""
        return settings_files.start_command(self.home)

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
        """Read them; where they cannot be used, what holds without the file, and why."""
        try:
            return self.settings(), None
        except ConfigError as error:
            with contextlib.suppress(ConfigError):
                return parse(None, _environ(), home=self.home), error
            return Settings(home=self.home), error

    def usable_settings(self) -> Settings:
        """Read them; where they cannot be used, print why and return what holds without them."""
        settings, error = self.settings_or_defaults()
        if error is not None:
            say(f"gpud: {error}", error=True)
        return settings

    def root_only(self) -> None:
        """Refuse everybody but root on an installed gpud. Errors: ``PermissionError``."""
        if self.installed and os.geteuid() != 0:
            raise PermissionError("this needs root on an installed gpud")

    def absence(self, run_dir: Path, lack: str = "has written no status") -> NotRunningError:
        """Return why no agent of this gpud answers, with what to do; ``lack``: what is missing."""
        if supervisor(run_dir) is None:
            stopped = " (stopped with gpud down)" if (run_dir / "stopped").exists() else ""
            return NotRunningError(f"gpud is not running{stopped}", fix=self.start_command)
        report = latest_root_report(run_dir)
        agent = report and report.agent
        age_s = lived_s(agent.process) if agent and agent.process else 0.0
        if agent and agent.detail and age_s < STARTS_S:
            message = f"gpud runs, but its agent has ended: {agent.detail}"
            return NotRunningError(message, fix=agent.fix or "gpud logs")
        if age_s < STARTS_S:
            message = "gpud runs, and its agent is starting"
            return NotRunningError(message, fix="ask again in a moment; gpud logs says more")
        message = f"gpud runs, but its agent {lack}"
        return NotRunningError(message, fix="gpud logs says why; gpud restart starts it anew")

    def not_running(self, run_dir: Path) -> str:
        """Return why there is no status, and what to do, in a line."""
        error = self.absence(run_dir)
        fix = pasteable(str(error.fix), self.program)
        return f"{error}; {'start it with' if error.fix == self.start_command else 'fix'}: {fix}"

    def report_absent(self, run_dir: Path, *, as_json: bool) -> int:
        """Print why there is no status, as a document if that was asked for; the exit code."""
        import json

        error = self.absence(run_dir)
        absent = {"schema_version": 1, "state": "not_running", "detail": str(error)}
        absent["fix"] = pasteable(str(error.fix), self.program)
        say(json.dumps(absent) if as_json else self.not_running(run_dir))
        return NOT_RUNNING


def place_of(home: str | None, config: str | None, words: Sequence[str]) -> Place:
    """Return the place that is named, else ``$GPUD_HOME``, ``.gpud`` of a checkout, or ``/``.

    Errors: ``ConfigError`` for a settings file that is named and cannot be there.
    """
    if home is None and "SUDO_UID" not in os.environ:
        home = os.environ.get("GPUD_HOME")
    if not home:
        home = str(CHECKOUT / ".gpud") if _in_checkout() else "/"
    home = str(Path(home).absolute())
    usual = Path(config_path(home)).absolute()
    path = Path(config).absolute() if config else usual
    if path != usual and not path.exists():
        raise ConfigError(f"{path} does not exist", fix="name the settings file with --config FILE")
    return Place(home, path, tuple(words))


def as_the_agent(settings: Settings, place: Place) -> None:
    """Become the agent's user where we are root, so that no file of ours is in its way.

    Errors: ``GpudError`` when that fails, ``PermissionError`` for anybody else.
    """
    own = Path(settings.run_dir, "agent")
    if own.is_dir() and os.geteuid() not in {0, own.stat().st_uid}:
        raise PermissionError("this is for root, or for the user that gpud's agent runs as")
    if not own.is_dir():  # no gpud since the boot: the history belongs to the agent's user
        own = Path(settings.state_dir)
    if os.geteuid() == 0 and own.is_dir() and (uid := own.stat().st_uid):
        become(uid, settings, place)
        os.chdir("/")


def become(uid: int, settings: Settings, place: Place) -> None:
    """Become another user for good, without any group but the first. Errors: ``GpudError``."""
    import pwd

    from gpud.root import drop

    try:
        drop.become(pwd.getpwuid(uid), drop.needed(settings, place.config))
    except (OSError, KeyError, OverflowError) as error:
        raise GpudError(f"cannot run as user {uid}: {error}") from error


def document(run_dir: Path) -> dict[str, Any] | None:
    """Return what the agent that runs published last; None where there is no such document.

    Errors: ``GpudError`` when it is none of the agent's documents.
    """
    path = run_dir / "agent.json"
    try:
        published: Any = msgspec.json.decode(regular_file.read(path, LARGEST))
    except FileNotFoundError:
        return None
    except regular_file.NotRegularError as error:
        raise GpudError(f"{path} is no plain file", fix="gpud restart makes it anew") from error
    except UNREADABLE as error:
        raise GpudError(f"{path} is not readable as JSON: {error}") from error
    if not isinstance(published, dict) or (published and "schema_version" not in published):
        raise GpudError(f"{path} is no status of gpud's", fix="gpud restart writes it anew")
    written_s = path.stat().st_mtime
    current = supervisor(run_dir) and published_by(written_s, latest_root_report(run_dir))
    return published if published and current else None


def _environ() -> dict[str, str]:
    return {} if "SUDO_UID" in os.environ else dict(os.environ)


def _in_checkout() -> bool:
    return (CHECKOUT / "pyproject.toml").is_file()
