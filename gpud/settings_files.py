"""The settings files on disk: gpud.toml, secrets.toml, and who can read the secrets in them."""

from __future__ import annotations

import grp
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpud import regular_file
from gpud.core import masking
from gpud.core.errors import ConfigError
from gpud.core.settings import (
    LARGEST,
    Secrets,
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


def warnings(config: Path, environ: Mapping[str, str]) -> list[str]:
    """Warn of each setting that no longer exists. Errors: ``ConfigError``."""
    return removed_settings(_content(config), environ, str(config))


def unreadable_secrets(home: str) -> Path | None:
    """Name secrets.toml if it exists and this process may not read it."""
    path = Path(secrets_path(home))
    return path if os.access(path, os.F_OK) and not os.access(path, os.R_OK) else None


@dataclass(frozen=True, slots=True)
class Exposed:
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
    secrets = Path(secrets_path(home))
    files = []
    if _for_everybody(config):
        alone = read(config, {}, home=home, with_secrets=False)
        if keys := masking.secrets(alone):
            owner = "only root and gpud's agent" if home == "/" else "only you"
            fix = f"move {'it' if len(keys) == 1 else 'them'} to {secrets}, which {owner} can read"
            files.append(Exposed(config, keys, fix))
    if _for_everybody(secrets) and (keys := secret_keys(_content(secrets) or b"", str(secrets))):
        sudo = "sudo " if home == "/" else ""
        files.append(Exposed(secrets, keys, f"{sudo}chmod o= {secrets}"))
    return files


def _own_group() -> str:
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
        fix = f"sudo chown root:{_own_group()} {path} && sudo chmod 640 {path}"
        fixable = isinstance(error, PermissionError) and path.name == "secrets.toml"
        raise ConfigError(
            f"cannot read {path}: {error.strerror}", fix=fix if fixable else None
        ) from error
    except ValueError as error:  # a NUL in the name
        raise ConfigError(f"cannot read {path!s:a}: {error}") from error
