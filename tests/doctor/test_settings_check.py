"""gpud.toml: read, understood, and not open to everybody when something in it is secret."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpud.core.errors import ConfigError
from gpud.core.settings import Settings, config_path, secrets_path
from gpud.doctor.checks import settings
from gpud.doctor.finding import Finding, Verdict
from tests.doctor.trees import LINUX, machine

HASH = "$2b$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG"
SECRET = (
    f"[http.basic_auth_users]\nada = '{HASH}'",
    "[alerts]\nwebhook_urls = ['https://chat.example/hooks/T0KEN']",
    "[alerts]\napprise_urls = ['tgram://T0KEN/chat']",
)
OPEN = "[alerts]\nwebhook_urls = ['http://localhost:9093']"


def written(path: str, text: str, mode: int) -> Path:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    return file


def look(home: Path) -> Finding:
    return settings.look(machine(home, LINUX, settings=Settings(home=str(home))))


@pytest.mark.parametrize("text", SECRET)
def test_secrets_in_a_file_for_everybody_are_advised_on_and_not_quoted(
    tmp_path: Path, text: str
) -> None:
    path = written(config_path(str(tmp_path)), text, 0o644)
    found = look(tmp_path)
    assert found.verdict is Verdict.ADVICE
    assert f"everybody may read {path}" in found.evidence
    assert f"to {secrets_path(str(tmp_path))}, which only you can read" in (found.fix or "")
    assert "T0KEN" not in found.evidence
    assert HASH not in found.evidence


def test_a_secrets_file_that_everybody_can_read_is_advised_on(tmp_path: Path) -> None:
    path = written(secrets_path(str(tmp_path)), SECRET[1], 0o644)
    found = look(tmp_path)
    assert (found.verdict, found.fix) == (Verdict.ADVICE, f"chmod o= {path}")
    assert "alerts.webhook_urls is secret in it" in found.evidence


@pytest.mark.parametrize(
    ("text", "mode"), [(SECRET[0], 0o640), (SECRET[0], 0o600), (OPEN, 0o644), ("", 0o644)]
)
def test_a_file_for_few_and_one_without_secrets_are_well(
    tmp_path: Path, text: str, mode: int
) -> None:
    written(config_path(str(tmp_path)), text, mode)
    written(secrets_path(str(tmp_path)), "# nothing yet\n", 0o644)
    assert look(tmp_path).verdict is Verdict.OK


def test_a_file_kept_from_this_person_is_no_problem_and_says_who_may_ask(tmp_path: Path) -> None:
    refused = ConfigError("cannot read gpud.toml: Permission denied")
    refused.__cause__ = PermissionError(13, os.strerror(13))
    found = settings.look(machine(tmp_path, LINUX, trouble=refused))
    assert (found.verdict, found.fix) == (Verdict.UNKNOWN, "sudo gpud doctor")


def test_a_file_that_cannot_be_understood_is_a_problem(tmp_path: Path) -> None:
    found = settings.look(machine(tmp_path, LINUX, trouble=ConfigError("gpud.toml: unknown key x")))
    assert found.verdict is Verdict.PROBLEM
    assert "unknown key x" in found.evidence
