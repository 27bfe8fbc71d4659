"""The settings files on disk: gpud.toml, secrets.toml, and who can read the secrets in them."""

from __future__ import annotations

import os
import re
import stat
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpud import regular_file
from gpud.core.errors import ConfigError
from gpud.core.settings import (
    LARGEST,
    SECRET_KEYS,
    Secrets,
    entries,
    parse,
    removed_settings,
    secret_keys,
    secrets_path,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.core.settings import Settings


def read(
    config: Path, environ: Mapping[str, str], *, home: str, with_secrets: bool = True
) -> Settings:
    """Read the settings in force.

    Without secrets the keys of secrets.toml have their defaults unless gpud.toml sets them, and
    what needs both files is not checked. Errors: ``ConfigError`` naming the file and the key.
    """
    text = _content(config)
    path = Path(secrets_path(home))
    secrets = Secrets(_content(path), str(path)) if with_secrets else None
    return parse(text, environ, home=home, origin=str(config), secrets=secrets)


def read_by_agent(config: Path, environ: Mapping[str, str], *, home: str) -> Settings:
    """Read all settings as the agent's user; the error of a closed file says how to open it."""
    try:
        return read(config, environ, home=home)
    except ConfigError as error:
        if isinstance(cause := error.__cause__, PermissionError):
            path = cause.filename
            error.fix = f"sudo chown root:{_own_group()} {path} && sudo chmod 640 {path}"
        raise


def warnings(config: Path, environ: Mapping[str, str]) -> list[str]:
    """Warn of each setting that no longer exists. Errors: ``ConfigError``."""
    return removed_settings(_content(config), environ, str(config))


def start_command(home: str) -> str:
    """Return the command that starts the gpud of a home."""
    return "deploy/run" if Path(home).name == ".gpud" else "gpud up"


def unreadable_secrets(home: str) -> Path | None:
    """Name secrets.toml if it exists and this process may not read it."""
    path = Path(secrets_path(home))
    return path if os.access(path, os.F_OK) and not os.access(path, os.R_OK) else None


class Exposed(msgspec.Struct, frozen=True):
    """A file that everybody on the machine can read, and the keys that are secret in it."""

    path: Path
    keys: tuple[str, ...]
    fix: str

    def __str__(self) -> str:
        verb = "is" if len(self.keys) == 1 else "are"
        return f"everybody may read {self.path}, and {' and '.join(self.keys)} {verb} secret in it"


def exposed(config: Path, home: str) -> list[Exposed]:
    """List the settings files with secrets in them that everybody can read.

    Errors: ``ConfigError`` for a file that cannot be used.
    """
    file = Path(secrets_path(home))
    files = []
    if _for_everybody(config) and (keys := _secrets_beside(_content(config), home, str(config))):
        owner = "only root and gpud's agent" if home == "/" else "only you"
        fix = f"move {'it' if len(keys) == 1 else 'them'} to {file}, which {owner} can read"
        files.append(Exposed(config, keys, fix))
    if _for_everybody(file) and (keys := secret_keys(_content(file) or b"", str(file))):
        sudo = "sudo " if home == "/" else ""
        files.append(Exposed(file, keys, f"{sudo}chmod o= {file}"))
    return files


@lru_cache(maxsize=1)
def _secrets_beside(text: bytes | None, home: str, origin: str) -> tuple[str, ...]:
    """Name the secrets in gpud.toml alone, which is looked at more often than it is written."""
    return secrets(parse(text, {}, home=home, origin=origin, secrets=None))


def _own_group() -> str:
    import grp

    try:
        return grp.getgrgid(os.getegid()).gr_name
    except KeyError:
        return str(os.getegid())


def _for_everybody(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def _content(path: Path) -> bytes | None:
    """Read a file; None if it does not exist. Errors: ``ConfigError``."""
    try:
        return regular_file.read(path, LARGEST + 1)
    except FileNotFoundError:
        return None
    except regular_file.NotRegularError as error:
        message = f"{path} is not a regular file"
        raise ConfigError(message, fix="put a text file there") from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


HIDDEN: Final = "<hidden>"
BARE: Final = re.compile(r"https?://[^/@?#]+/?")
"""A webhook's address without a part that may be a token."""


def secrets(settings: Settings) -> tuple[str, ...]:
    """Name the keys that hold a hash, a token or a password, in the order of declaration."""
    return tuple(
        key
        for key, value in entries(settings)
        if key in SECRET_KEYS and HIDDEN in str(shown(key, value))
    )


def shown(key: str, value: Any) -> Any:  # noqa: ANN401  # whatever TOML can hold
    """Give ``value`` of the setting ``key`` without hashes, tokens and passwords."""
    if key == "http.basic_auth_users":
        return dict.fromkeys(value, HIDDEN)
    if key == "alerts.webhook_urls":
        return [url if BARE.fullmatch(url) else HIDDEN for url in value]
    if key == "alerts.apprise_urls":
        return [HIDDEN for _ in value]
    if key == "alerts.command":  # its arguments may be tokens; the program is none
        return [*value[:1], *(HIDDEN for _ in value[1:])]
    return list(value) if isinstance(value, tuple) else value
