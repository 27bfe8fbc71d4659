"""Checks of gpud's own parts: sudo rule, installation, hook, settings, sinks, port."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud.core.errors import ConfigError
from gpud.core.settings import config_path, secrets_path
from gpud.doctor.checks.gpud import settings
from gpud.doctor.machine import person
from tests.doctor.trees import (
    ADVICE,
    LINUX,
    OK,
    PROBLEM,
    UNKNOWN,
    expect,
    machine,
)

if TYPE_CHECKING:
    from gpud.doctor.finding import Finding

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives rights away")


@needs_root
def test_person_under_sudo_is_the_caller() -> None:
    account = pwd.getpwnam("nobody")
    caller = person({"SUDO_UID": str(account.pw_uid), "HOME": "/root", "SHELL": "/bin/zsh"})
    assert (caller.name, caller.home, caller.login_shell) == account[0:1] + account[5:7]
    assert person({}).name == "root"


# settings

HASH = "$2b$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG"
SECRET = "T0KEN"  # noqa: S105  # searched for in what is shown
SECRETS = (
    f"[http.basic_auth_users]\nada = '{HASH}'",
    f"[alerts]\nwebhook_urls = ['https://chat.example/hooks/{SECRET}']",
    f"[alerts]\napprise_urls = ['tgram://{SECRET}/chat']",
)
OPEN = "[alerts]\nwebhook_urls = ['http://localhost:9093']"


def written(path: str | Path, text: str, mode: int) -> None:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)


def check_settings(home: Path, error: ConfigError | None = None) -> Finding:
    return settings.look(machine(home, LINUX, settings={"home": str(home)}, settings_error=error))


@pytest.mark.parametrize("text", SECRETS)
def test_secrets_in_a_file_for_everybody_are_advised_on_and_not_quoted(
    tmp_path: Path, text: str
) -> None:
    config, hidden = config_path(str(tmp_path)), secrets_path(str(tmp_path))
    written(hidden, "# nothing yet\n", 0o644)
    written(config, text, 0o644)
    finding = check_settings(tmp_path)
    fix = f"to {hidden}, which only you can read"
    expect(finding, ADVICE, f"everybody may read {config}", fix=fix)
    assert SECRET not in finding.evidence
    assert HASH not in finding.evidence
    for harmless, mode in ((text, 0o640), (OPEN, 0o644), ("", 0o644)):
        written(config, harmless, mode)
        assert check_settings(tmp_path).verdict is OK
    written(hidden, text, 0o644)
    expect(check_settings(tmp_path), ADVICE, "is secret in it", fix=f"chmod o= {hidden}")


def test_a_file_that_cannot_be_read_or_understood_is_reported(tmp_path: Path) -> None:
    refused = ConfigError("cannot read gpud.toml: Permission denied")
    refused.__cause__ = PermissionError()
    finding = check_settings(tmp_path, refused)
    assert (finding.verdict, finding.fix) == (UNKNOWN, "sudo gpud doctor")
    wrong = ConfigError("gpud.toml: unknown key x")
    expect(check_settings(tmp_path, wrong), PROBLEM, "unknown key x")


def test_setting_that_no_longer_exists_is_named(tmp_path: Path) -> None:
    path = config_path(str(tmp_path))
    written(path, "[http]\nmax_connections = 3\n", 0o644)
    finding = check_settings(tmp_path)
    expect(finding, ADVICE, "http.max_connections is no longer a setting")
    assert finding.fix == f"remove it from {path}"
