"""Alert sinks as a machine shows them: what they need is there, or the fix is named."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpud.core.sections import Alerts
from gpud.doctor.checks import alerts
from gpud.doctor.finding import Verdict
from tests.doctor.trees import LINUX, WSL2, machine

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.doctor.finding import Finding

SECRET = "T0KEN"  # noqa: S105  # that is what is looked for
OK, ADVICE, PROBLEM = Verdict.OK, Verdict.ADVICE, Verdict.PROBLEM


def look(tree: Path, settings: Alerts, *, files: dict[str, str] | None = None) -> Finding:
    made = machine(tree, WSL2 if files is None else files)
    found = alerts.look(replace(made, settings=replace(made.settings, alerts=settings)))
    assert SECRET not in json.dumps([found.evidence, found.fix])
    return found


def test_without_any_setting_the_log_and_the_notice_are_told(tmp_path: Path) -> None:
    assert look(tmp_path, Alerts()).verdict is OK


@pytest.mark.parametrize(
    ("mode", "verdict", "words"),
    [(None, PROBLEM, "not there"), (0o644, ADVICE, "open to everybody"), (0o640, OK, "token is")],
)
def test_the_token_is_there_and_not_everybodys(
    mode: int | None, verdict: Verdict, words: str, tmp_path: Path
) -> None:
    if mode is not None:
        (tmp_path / "token").write_text(SECRET)
        (tmp_path / "token").chmod(mode)
    settings = Alerts(
        webhook_urls=(f"https://hooks.example/{SECRET}",), webhook_credentials_file="/token"
    )
    found = look(tmp_path, settings)
    assert (found.verdict, words in found.evidence) == (verdict, True), found


def test_the_token_file_of_each_webhook_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(SECRET)
    (tmp_path / "token").chmod(0o600)
    urls = ("https://a.example/", "https://b.example/")
    settings = Alerts(webhook_urls=urls, webhook_credentials_file=("/token", "/none"))
    found = look(tmp_path, settings)
    assert (found.verdict, "/none, the webhook's token, is not there" in found.evidence) == (
        PROBLEM,
        True,
    )


@pytest.mark.parametrize(
    ("mode", "verdict", "words"),
    [
        (None, PROBLEM, "not there"),
        (0o644, PROBLEM, "not executable"),
        (0o777, PROBLEM, "replaced by others"),
        (0o755, OK, "/hook"),
    ],
)
def test_the_command_is_executable_and_nobody_elses_to_write(
    mode: int | None, verdict: Verdict, words: str, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    if mode is not None:
        (tmp_path / "hook").write_text("#!/bin/sh\n")
        (tmp_path / "hook").chmod(mode)
    found = look(tmp_path, Alerts(command=("/hook", SECRET)))
    assert (found.verdict, words in found.evidence) == (verdict, True), found


def test_a_command_in_a_folder_that_all_may_write_is_theirs_to_replace(tmp_path: Path) -> None:
    folder = tmp_path / "share"
    folder.mkdir()
    (folder / "hook").write_text("#!/bin/sh\n")
    (folder / "hook").chmod(0o755)
    folder.chmod(0o777)
    found = look(tmp_path, Alerts(command=("/share/hook",)))
    assert (found.verdict, "/share has mode 0777" in found.evidence) == (PROBLEM, True), found


def test_a_toast_needs_windows_and_a_way_to_start_its_programs(tmp_path: Path) -> None:
    assert look(tmp_path / "a", Alerts(toast=True)).verdict is OK
    off = {name: text for name, text in WSL2.items() if "binfmt" not in name}
    assert look(tmp_path / "b", Alerts(toast=True), files=off).verdict is PROBLEM
    assert "no Windows" in look(tmp_path / "c", Alerts(toast=True), files=LINUX).evidence


def test_apprise_is_found_without_being_loaded(tmp_path: Path) -> None:
    found = look(tmp_path, Alerts(apprise_urls=(f"ntfy://{SECRET}",)))
    assert (found.verdict, found.evidence) == (OK, "Apprise to 1 address")
    assert look(tmp_path, Alerts(apprise_urls=(SECRET,))).verdict is Verdict.UNKNOWN


def test_what_the_agent_says_of_its_sinks_is_passed_on(tmp_path: Path) -> None:
    health = {"alerts": {"level": 1, "detail": "webhook: host: nobody listens", "fix": "start it"}}
    found = alerts.look(machine(tmp_path, WSL2, agent={"health": health}))
    assert (found.verdict, found.fix) == (ADVICE, "start it")
    assert "nobody listens" in found.evidence
