"""``gpud config``: the settings in force, the check of the files, and hashes of passwords."""

from __future__ import annotations

import getpass
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpud import discovery, settings_files
from gpud.arguments import OK, PROBLEM
from gpud.core.errors import ConfigError, KeyPairError
from gpud.core.sample import SCHEMA_VERSION
from gpud.core.settings import SECRET_KEYS, entries, secrets_path, suggestion
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
    settings = place.settings()
    hidden = settings_files.unreadable_secrets(place.home)
    if options.action == "check":
        return _check(settings, place, hidden)
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


def _check(settings: Settings, place: Place, hidden: Path | None) -> int:
    """Check the settings as the agent uses them, and who else can read what is secret in them."""
    from gpud.root import agent

    agent.check_user(settings)
    place.warn()
    exposed = settings_files.exposed(place.config, place.home)
    for file in exposed:
        say(f"gpud: {file}\n  fix: {file.fix}", error=True)
    agent.check_files(settings, place.config)
    if settings.http.tls_server_config.enabled:
        _check_key_pair(settings, place)
    unknown = _unknown_names(settings)
    for message, fix in unknown:
        say(f"gpud: {place.config}: {message}\n  fix: {fix}", error=True)
    if exposed or unknown:
        return PROBLEM
    files = [place.config, Path(secrets_path(place.home))]
    files = [path for path in files if path != hidden and path.exists()]
    for path in files:
        say(f"{path} is valid")
    if not files:
        say(f"{place.config} does not exist; the defaults hold")
    if hidden is not None:
        look = pasteable("sudo gpud config check", place.program)
        say(f"you may not read {hidden}; {look} looks at it too")
    return OK


def _unknown_names(settings: Settings) -> list[tuple[str, str]]:
    """Say which probes and sinks are disabled that do not exist, each with the fix."""
    from gpud.agent.alerts import sinks
    from gpud.child import probes

    unknown = []
    for key, what, disabled, folder in (
        ("probes.disabled", "probe", settings.probes.disabled, probes),
        ("alerts.disabled", "sink", settings.alerts.disabled, sinks),
    ):
        there = discovery.names(folder)
        for name in set(disabled) - set(there):
            guess = suggestion(name, list(there))
            fix = f"correct {key}: {', '.join(there)}"
            unknown.append((f"{key}: there is no {what} {name}{guess}", fix))
    return unknown


def _check_key_pair(settings: Settings, place: Place) -> None:
    """Load the listener's certificate as the agent will. Errors: ``ConfigError``."""
    from gpud import keypair

    if os.geteuid() == 0:
        as_the_agent(settings, place)
    try:
        keypair.load(settings.http.tls_server_config)
    except KeyPairError as error:
        own = Path(settings.run_dir, "agent")
        if not (error.unreadable and own.is_dir() and own.stat().st_uid != os.geteuid()):
            raise ConfigError(str(error), fix=error.fix) from error
        say(f"{error}: not by you; sudo gpud config check looks as the agent does")


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
