"""gpud.toml: read, understood, and not open to everybody when something in it is secret."""

from __future__ import annotations

import grp
import os
from dataclasses import replace
from pathlib import Path

import pytest

from gpud.core.errors import ConfigError
from gpud.core.http_settings import Http
from gpud.core.sections import Alerts, Paths
from gpud.core.settings import Settings, config_path
from gpud.doctor.checks import settings
from gpud.doctor.finding import Verdict
from tests.doctor.trees import LINUX, machine

HASH = "$2b$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG"
SECRET = (
    Settings(http=Http(basic_auth_users={"ada": HASH})),
    Settings(alerts=Alerts(webhook_urls=("https://chat.example/hooks/T0KEN",))),
    Settings(alerts=Alerts(apprise_urls=("tgram://T0KEN/chat",))),
)
OPEN = Settings(alerts=Alerts(webhook_urls=("http://localhost:9093",)))


def written(home: Path, mode: int) -> Path:
    path = Path(config_path(str(home)))
    path.parent.mkdir(parents=True)
    path.touch()
    path.chmod(mode)
    return path


@pytest.mark.parametrize("given", SECRET)
def test_what_is_secret_in_a_file_for_everybody_is_advised_on_and_not_quoted(
    tmp_path: Path, given: Settings
) -> None:
    path = written(tmp_path, 0o644)
    found = settings.look(machine(tmp_path, LINUX, settings=replace(given, home=str(tmp_path))))
    assert (found.verdict, found.fix) == (Verdict.ADVICE, f"chmod 600 {path}")
    assert "everybody may read" in found.evidence
    assert "T0KEN" not in found.evidence
    assert HASH not in found.evidence


@pytest.mark.parametrize(
    ("given", "mode"), [(SECRET[0], 0o640), (SECRET[0], 0o600), (OPEN, 0o644), (Settings(), 0o644)]
)
def test_a_file_for_few_and_one_without_secrets_are_well(
    tmp_path: Path, given: Settings, mode: int
) -> None:
    written(tmp_path, mode)
    found = settings.look(machine(tmp_path, LINUX, settings=replace(given, home=str(tmp_path))))
    assert found.verdict is Verdict.OK


def test_the_group_of_the_fix_is_the_one_the_agent_really_has(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    there = replace(SECRET[0], paths=Paths(run=str(tmp_path)))
    before = replace(SECRET[0], paths=Paths(run=str(tmp_path / "none")))
    mine = grp.getgrgid((tmp_path / "agent").stat().st_gid).gr_name
    assert settings.group(machine(tmp_path, LINUX, settings=there)) == mine
    assert settings.group(machine(tmp_path, LINUX, settings=before)) == "gpud"


def test_a_file_kept_from_this_person_is_no_problem_and_says_who_may_ask(tmp_path: Path) -> None:
    refused = ConfigError("cannot read gpud.toml: Permission denied")
    refused.__cause__ = PermissionError(13, os.strerror(13))
    found = settings.look(machine(tmp_path, LINUX, trouble=refused))
    assert (found.verdict, found.fix) == (Verdict.UNKNOWN, "sudo gpud doctor")


def test_a_file_that_cannot_be_understood_is_a_problem(tmp_path: Path) -> None:
    found = settings.look(machine(tmp_path, LINUX, trouble=ConfigError("gpud.toml: unknown key x")))
    assert found.verdict is Verdict.PROBLEM
    assert "unknown key x" in found.evidence
