"""``gpud config``: the settings in force, the check of the files, and hashes of passwords."""

from __future__ import annotations

import getpass
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpud import settings_files
from gpud.arguments import OK, PROBLEM
from gpud.core.errors import ConfigError, KeyPairError
from gpud.core.sample import SCHEMA_VERSION
from gpud.core.settings import SECRET_KEYS, entries, secrets_path
from gpud.core.text import pasteable
from gpud.output import say
from gpud.place import as_the_agent

if TYPE_CHECKING:
    import argparse

    from gpud.core.settings import Settings
    from gpud.place import Place

COST: Final = 10
LONGEST: Final = 72
"""Bytes of a password that bcrypt looks at."""


def run(options: argparse.Namespace, place: Place) -> int:
    """Show or check the settings, or hash a password. Errors: ``ConfigError``."""
    if options.action == "hash-password":
        print(_hashed(_password()))
        return OK
    if options.action == "check":
        return _check(place)
    settings = place.settings()
    hidden = settings_files.unreadable_secrets(place.home)
    return _show(settings, place, hidden, as_json=options.json)


def _show(settings: Settings, place: Place, hidden: Path | None, *, as_json: bool) -> int:
    shown = {
        key: settings_files.shown(key, value)
        for key, value in entries(settings)
        if hidden is None or key not in SECRET_KEYS or value
    }
    if as_json:
        print(json.dumps({"schema_version": SCHEMA_VERSION, "settings": shown}), flush=True)
    else:
        say("\n".join(f"{key} = {json.dumps(value)}" for key, value in shown.items()))
    if hidden is not None:
        fix = pasteable("sudo gpud config show", place.program)
        say(f"gpud: you may not read {hidden}\n  fix: {fix}", error=True)
    return OK


def _check(place: Place) -> int:
    """Print what a start of gpud finds in the settings files, and who else can read secrets there.

    Errors: ``ConfigError``.
    """
    from gpud.root import agent

    settings, hidden = place.settings(), settings_files.unreadable_secrets(place.home)
    look = pasteable("sudo gpud config check", place.program)
    if hidden is not None:
        say(f"gpud: you may not read {hidden}; {look} looks at it too", error=True)
    agent.check_user(settings)
    for warning in place.warnings():
        say(f"gpud: {warning}", error=True)
    exposed = settings_files.exposed(place.config, place.home)
    for file in exposed:
        say(f"gpud: {file}\n  fix: {file.fix}", error=True)
    agent.check_files(settings, place.config)
    if settings.http.tls_server_config.enabled and (trouble := _unseen_key_pair(settings, place)):
        say(f"gpud: {trouble}: not by you; {look} looks as the agent does", error=True)
    if exposed:
        return PROBLEM
    both = (place.config, Path(secrets_path(place.home)))
    files = [path for path in both if path != hidden and path.exists()]
    say(
        "\n".join(f"{path} is valid" for path in files)
        or f"{place.config} does not exist; the defaults hold"
    )
    return OK


def _unseen_key_pair(settings: Settings, place: Place) -> KeyPairError | None:
    """Load the listener's certificate as the agent will; return why we may not where it may.

    Errors: ``ConfigError``.
    """
    from gpud import keypair

    if os.geteuid() == 0:
        as_the_agent(settings, place)
    try:
        keypair.load(settings.http.tls_server_config)
    except KeyPairError as error:
        own = Path(settings.run_dir, "agent")
        if not (error.unreadable and own.is_dir() and own.stat().st_uid != os.geteuid()):
            raise ConfigError(str(error), fix=error.fix) from error
        return error
    return None


def _password() -> bytes:
    """Ask on the terminal, twice, or read one line from a pipe. Errors: ``ConfigError``."""
    if sys.stdin.isatty():
        password = getpass.getpass("Password: ")
        if getpass.getpass("Once more: ") != password:
            raise ConfigError("the two passwords differ")
    else:
        password = sys.stdin.readline().removesuffix("\n")
    return password.encode("utf-8", "surrogateescape")


def _hashed(password: bytes) -> str:
    """Return the bcrypt hash. Errors: ``ConfigError`` for a password that is empty or too long."""
    if not password:
        raise ConfigError("there is no password", fix="type one, or give it on standard input")
    if len(password) > LONGEST:
        raise ConfigError(f"bcrypt looks at {LONGEST} bytes, and this password has {len(password)}")
    import bcrypt

    return bcrypt.hashpw(password, bcrypt.gensalt(COST)).decode()
