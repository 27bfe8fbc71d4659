"""Checks of gpud's own parts: sudo rule, installation, hook, settings, sinks, port."""

from __future__ import annotations

import os
import pwd
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpud.core.clock import Instant
from gpud.core.errors import ConfigError
from gpud.core.http_settings import HttpSettings
from gpud.core.sections import AlertSettings
from gpud.core.settings import Settings, config_path, secrets_path
from gpud.doctor.checks.alerts import alerts
from gpud.doctor.checks.gpud import port, settings, store
from gpud.doctor.checks.installation import installation
from gpud.doctor.checks.wsl import clock
from gpud.doctor.machine import Machine, person
from tests.doctor.trees import (
    ADVICE,
    LINUX,
    NOW,
    OK,
    PERSON,
    PROBLEM,
    UNKNOWN,
    WSL2,
    expect,
    machine,
    report,
)
from tests.e2e.program import free_port

if TYPE_CHECKING:
    from gpud.doctor.finding import Finding, Verdict

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives rights away")


@needs_root
def test_person_under_sudo_is_the_caller() -> None:
    account = pwd.getpwnam("nobody")
    caller = person({"SUDO_UID": str(account.pw_uid), "HOME": "/root", "SHELL": "/bin/zsh"})
    assert (caller.name, caller.home, caller.login_shell) == account[0:1] + account[5:7]
    assert person({}).name == "root"


@needs_root
def test_file_of_root_that_another_user_can_write_is_named(tmp_path: Path) -> None:
    files = {"/opt/gpud/bin/gpud": "#!", "/opt/gpud/lib/x.py": "", "/etc/gpud/gpud.toml": ""}
    tree = machine(tmp_path, LINUX | files | {"/srv/python": ""}, installed=True)
    (tmp_path / "opt/gpud/bin/python").symlink_to(tmp_path / "srv/python")
    expect(installation.look(tree), OK, "root alone")
    (tmp_path / "opt/gpud/lib/x.py").chmod(0o666)
    expect(installation.look(tree), PROBLEM, "/opt/gpud/lib/x.py (mode 0666)")
    os.chown(tmp_path / "opt/gpud/lib/x.py", 1000, 1000)
    (tmp_path / "opt").chmod(0o777)
    (tmp_path / "srv").chmod(0o777)
    evidence = ("/opt (mode 0777)", "/srv (mode 0777)", "x.py (owner 1000)")
    expect(installation.look(tree), PROBLEM, *evidence)


DATABASE = "home-of-gpud/var/lib/gpud/gpud.db"


def test_the_history_is_checked_from_outside(tmp_path: Path) -> None:
    path = tmp_path / DATABASE
    path.parent.mkdir(parents=True)
    path.touch()
    assert "last write" in store.look(machine(tmp_path, LINUX)).evidence
    for pipe in (False, True):
        path.unlink()
        os.mkfifo(path) if pipe else path.symlink_to("/dev/zero")
        expect(store.look(machine(tmp_path, LINUX)), PROBLEM, "no plain file")


def test_history_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / DATABASE
    path.parent.mkdir(parents=True)
    path.write_bytes(os.urandom(4096))
    finding = store.look(machine(tmp_path, LINUX))
    expect(finding, PROBLEM, "is no SQLite database")
    assert "gpud restart" in (finding.fix or "")
    path.unlink()
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t (n)")
    expect(store.look(machine(tmp_path, LINUX)), OK, "last write")


@pytest.mark.parametrize(
    ("agent", "verdict", "words"),
    [
        (
            {"health": {"store": {"level": 0}}, "store": {"n_bytes": 3 << 20, "runs": 41_000}},
            OK,
            "the agent writes to it: 3.0 MiB, 41,000 runs",
        ),
        ({"health": {"store": {"level": 0}}}, OK, "the agent writes to it"),
        ({}, UNKNOWN, "not for you to read"),
    ],
)
def test_of_a_history_that_is_not_for_you_the_agents_word_is_taken(
    agent: dict[str, Any],
    verdict: Verdict,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / DATABASE
    path.parent.mkdir(parents=True, mode=0o750)
    path.touch()

    def refuse(*_: object) -> os.stat_result:
        raise PermissionError  # as to an ordinary user

    monkeypatch.setattr(os, "lstat", refuse)
    finding = store.look(machine(tmp_path, {}, agent=agent))
    expect(finding, verdict, words)
    assert ("sudo gpud doctor" in (finding.fix or "")) == (verdict is UNKNOWN)


@pytest.mark.parametrize(("free_mib", "verdict"), [(50, PROBLEM), (500, ADVICE), (5000, OK)])
def test_little_free_space_is_advised_on_and_none_is_a_problem(
    free_mib: int, verdict: Verdict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = (4096, 4096, 0, 0, free_mib * 256, 0, 0, 0, 0, 255)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(facts))
    assert store.look(machine(tmp_path, LINUX)).verdict is verdict


# port and clock


def test_the_process_that_holds_the_port_is_named() -> None:
    http = HttpSettings(listen=f"127.0.0.1:{free_port()}")  # nobody else's in between
    made = Machine(Settings(home="/nowhere", http=http), PERSON, {}, NOW)
    with socket.create_server(("127.0.0.1", http.port)):
        expect(port.look(made), PROBLEM, f"(process {os.getpid()})")
    expect(port.look(made), OK, "is free")


def test_a_port_that_no_process_here_holds_is_another_distributions(tmp_path: Path) -> None:
    row = "   0: 0100007F:26D9 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4242 1\n"
    files = WSL2 | {"/proc/net/tcp": WSL2["/proc/net/tcp"] + row}
    expect(port.look(machine(tmp_path, files)), PROBLEM, "another distribution")
    served = {"health": {"http": {"level": 0}}}
    running = machine(tmp_path, files, root=report(), agent=served)
    expect(port.look(running), OK, "served by gpud's agent")
    young = machine(tmp_path, files, root=report())
    expect(port.look(young), UNKNOWN, "the agent has not said yet")


def test_clock_was_set_and_has_one_daemon(tmp_path: Path) -> None:
    expect(clock.look(machine(tmp_path, WSL2)), OK, "source tsc")
    unset = machine(tmp_path, WSL2, now=Instant(1000.0, 5.0))
    expect(clock.look(unset), PROBLEM, "1000 s since 1970")
    second = WSL2 | {"/proc/55/comm": "chronyd\n"}
    expect(clock.look(machine(tmp_path, second)), ADVICE, "chronyd runs beside WSL's own")


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


# alert sinks


def check_sinks(tree: Path, files: dict[str, str] = WSL2, **keys: Any) -> Finding:
    finding = alerts.look(machine(tree, files, settings={"alerts": AlertSettings(**keys)}))
    assert SECRET not in f"{finding.evidence} {finding.fix}"
    return finding


@pytest.mark.parametrize(
    ("mode", "verdict", "words"),
    [(None, PROBLEM, "not there"), (0o644, ADVICE, "open to everybody"), (0o640, OK, "token is")],
)
def test_the_token_of_each_webhook_is_there_and_not_for_everybody(
    mode: int | None, verdict: Verdict, words: str, tmp_path: Path
) -> None:
    written(tmp_path / "first", SECRET, 0o600)
    if mode is not None:
        written(tmp_path / "token", SECRET, mode)
    urls = (f"https://a.example/{SECRET}", "https://b.example/")
    files = (f"{tmp_path}/first", f"{tmp_path}/token")
    below = tmp_path / "machine"  # the agent takes neither from below sysroot
    finding = check_sinks(below, webhook_urls=urls, webhook_credentials_file=files)
    expect(finding, verdict, words, f"the webhook's token is in {tmp_path}/first")


@pytest.mark.parametrize(
    ("mode", "folder_mode", "verdict", "words"),
    [
        (None, 0o755, PROBLEM, "not there"),
        (0o644, 0o755, PROBLEM, "not executable"),
        (0o777, 0o755, PROBLEM, "replaced by others"),
        (0o755, 0o777, PROBLEM, "/share has mode 0777"),
        (0o755, 0o755, OK, "/share/hook"),
    ],
)
def test_the_command_is_executable_and_only_its_owner_can_replace_it(
    mode: int | None, folder_mode: int, verdict: Verdict, words: str, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    if mode is not None:
        written(tmp_path / "share/hook", "#!/bin/sh\n", mode)
        (tmp_path / "share").chmod(folder_mode)
    command = (f"{tmp_path}/share/hook", SECRET)
    expect(check_sinks(tmp_path / "machine", command=command), verdict, words)


def test_the_other_sinks_have_what_they_need(tmp_path: Path) -> None:
    assert check_sinks(tmp_path / "none").verdict is OK
    expect(check_sinks(tmp_path / "a", toast=True), OK, "interop")
    off = {name: text for name, text in WSL2.items() if "binfmt" not in name}
    expect(check_sinks(tmp_path / "b", off, toast=True), PROBLEM, "cannot be started")
    expect(check_sinks(tmp_path / "c", LINUX, toast=True), PROBLEM, "no Windows")
    expect(check_sinks(tmp_path, apprise_urls=(f"ntfy://{SECRET}",)), OK, "Apprise to 1 address")
    expect(check_sinks(tmp_path, apprise_urls=(SECRET,)), UNKNOWN, "names no service")
    health = {"alerts": {"level": 1, "detail": "webhook: host: nobody listens", "fix": "start it"}}
    reported = alerts.look(machine(tmp_path, WSL2, agent={"health": health}))
    expect(reported, ADVICE, "nobody listens", fix="start it")
