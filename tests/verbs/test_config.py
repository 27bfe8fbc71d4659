"""``gpud config``: the settings in force, the check of the files, hashes; secrets stay secret."""

from __future__ import annotations

import grp
import json
import os
import pwd
import urllib.error
from typing import TYPE_CHECKING, Any

import pytest

from gpud import settings_files
from gpud.agent.state import files
from gpud.agent.state.board import Board
from gpud.core.errors import ConfigError
from gpud.core.health import Level
from gpud.core.http_settings import HttpSettings
from tests import snapshots
from tests.agent.serve.http.armed import HASHED
from tests.e2e.program import only, program
from tests.verbs.homes import called, configured, started
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.program import Program

HIDDEN = "[alerts]\nwebhook_urls = ['https://chat.example/hooks/T0KEN']\n"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")


def secrets(home: Path, text: str, mode: int = 0o640) -> Path:
    return configured(home, text, "secrets.toml", mode)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    configured(tmp_path, "[log]\nlevel = 'debug'\n", mode=0o644)
    return tmp_path


def test_show_prints_every_setting_in_force_and_no_secret(home: Path) -> None:
    text = (
        f"[http]\nbasic_auth_users = {{ alice = '{HASHED}' }}\n"
        "[alerts]\nwebhook_urls = ['https://ada:lovelace@hooks.example/T00/B00']\n"
        "apprise_urls = ['ntfy://engine']\ncommand = ['/bin/true', '-k', 'T0KEN']\n"
        "[schedule]\nsmall_interval_s = 30\n"
    )
    configured(home, text)
    ran = called(home, "config", "show")
    assert ran.code == 0
    for line in (
        'http.basic_auth_users = {"alice": "<hidden>"}',
        'alerts.webhook_urls = ["<hidden>"]',
        'alerts.command = ["/bin/true", "<hidden>", "<hidden>"]',
        "schedule.small_interval_s = 30.0",
        'http.listen = "127.0.0.1:9945"',
    ):
        assert line in ran.out
    read = json.loads((as_json := called(home, "config", "show", "--json")).out)
    assert read["schema_version"] == 1
    lines = [f"{key} = {json.dumps(value)}" for key, value in read["settings"].items()]
    assert lines == ran.out.splitlines()
    for secret in (HASHED[7:], "lovelace", "T00", "engine", "T0KEN"):
        assert secret not in ran.out + ran.err + as_json.out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[http.tls_server_config]\ncert_file = '/none/c'\nkey_file = '/none/k'\n", "/none/c cann"),
        ('[http]\n"\\u001b[2J" = 1\n', "\\x1b[2J"),
        ("[http\n", "not valid TOML"),
        ("[agent]\nuser = 'root'\n", "agent.user: root is root"),
        ("[agent]\nuser = 'nobody-of-that-name'\n", "agent.user: there is no user"),
    ],
)
def test_check_names_settings_that_cannot_be_used(home: Path, text: str, words: str) -> None:
    configured(home, text)
    ran = called(home, "config", "check")
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err
    assert "\x1b" not in ran.err
    if "agent.user" in words:  # a start is refused alike
        start = called(home, "up")
        assert (start.code, words in start.err) == (2, True)
        assert not (home / "run/gpud/root.pid").exists()


def test_file_of_the_notepad_of_windows_is_read(home: Path) -> None:
    configured(home, "\ufeff[log]\nlevel = 'error'\n")
    assert 'log.level = "error"' in called(home, "config", "show").out
    assert called(home, "config", "check").code == 0


def test_secret_in_a_file_for_everybody_fails_the_check(home: Path) -> None:
    path = configured(home, HIDDEN, mode=0o644)
    ran = called(home, "config", "check")
    assert ran.code == 1
    assert f"everybody may read {path}, and alerts.webhook_urls is secret in it" in ran.err
    assert f"fix: move it to {path.with_name('secrets.toml')}" in ran.err
    path.chmod(0o640)
    assert called(home, "config", "check").code == 0
    path.write_text("")
    readable = secrets(home, HIDDEN, 0o644)
    ran = called(home, "config", "check")
    assert (ran.code, f"fix: chmod o= {readable}" in ran.err) == (1, True)


@needs_root
def test_user_who_may_not_read_the_secrets_is_shown_and_checked_the_rest(home: Path) -> None:
    path = secrets(home, HIDDEN, mode=0o600)
    assert 'alerts.webhook_urls = ["<hidden>"]' in (called(home, "config", "show").out)
    ran = started(home, "config", "show", nobody=True)
    assert (ran.code, "alerts.webhook_urls" in ran.out) == (0, False)
    assert 'log.level = "debug"' in ran.out
    assert f"you may not read {path}" in ran.err
    configured(home, "[http]\nlisten = '0.0.0.0:1'\nallow_plaintext_auth = true\n", mode=0o644)
    for words in (("config", "check"), ("status",), ("doctor",)):
        ran = started(home, *words, nobody=True)
        assert "can be reached from outside" not in ran.out + ran.err, words
    path.unlink()
    assert "can be reached from outside" in started(home, "config", "check", nobody=True).err


def test_settings_file_that_is_no_regular_file_is_named_and_leaves_nothing_open(
    tmp_path: Path,
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (str(fifo), "/dev/zero"):
        ran = called(tmp_path, "--config", path, "config", "check")
        assert (ran.code, f"{path} is not a regular file" in ran.err) == (2, True)
    before = os.listdir("/proc/self/fd")  # noqa: PTH208
    with pytest.raises(ConfigError, match="is not a regular file"):
        settings_files.read(tmp_path, {}, home=str(tmp_path))
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208


@pytest.mark.parametrize(
    ("typed", "code", "message"),
    [("x\n", 0, ""), ("", 2, "there is no password"), ("é" * 37, 2, "looks at 72 bytes")],
)
def test_hash_is_made_of_one_line(tmp_path: Path, typed: str, code: int, message: str) -> None:
    ran = started(tmp_path, "config", "hash-password", stdin=typed)
    assert (ran.code, message in ran.err) == (code, True)
    if code == 0:
        assert HttpSettings(basic_auth_users={"alice": ran.out.strip()})


def published(running: Program) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads((running.run_dir / "agent.json").read_bytes())
    except FileNotFoundError:
        return {}
    return document


@needs_root
def test_agent_takes_users_from_secrets_toml_and_reports_when_all_can_read_it() -> None:
    with program(probes=only("cpu_call"), agent={"user": "nobody"}) as running:
        path = secrets(running.home, f"[http.basic_auth_users]\nada = '{HASHED}'\n", 0o644)
        running.start()
        until(lambda: "http" in published(running).get("health", {}), "a listener")
        with pytest.raises(urllib.error.HTTPError) as refused:
            running.get("/metrics")
        assert refused.value.code == 401
        refused.value.close()
        health = until(lambda: published(running)["health"].get("settings"), "a complaint")
        assert (health["level"], health["reason"]) == (1, "secrets_exposed")
        assert f"everybody may read {path}" in health["detail"]
        assert f"chmod o= {path}" in health["fix"]


async def test_complaint_about_secrets_for_everybody_comes_and_goes_with_the_mode(
    home: Path,
) -> None:
    path, board = secrets(home, HIDDEN, 0o640), Board(snapshots.full())
    config = home / "etc/gpud/gpud.toml"
    for mode, level in ((0o640, None), (0o644, Level.DEGRADED), (0o640, Level.OK)):
        path.chmod(mode)
        await files.check_settings(config, str(home), board)
        health = board.read().health.get("settings")
        assert (health and health.level) == level


@needs_root
def test_agent_that_may_not_read_the_secrets_does_not_serve_without_them() -> None:
    with program(probes=only("cpu_call"), agent={"user": "nobody"}) as running:
        path = secrets(running.home, f"[http.basic_auth_users]\nada = '{HASHED}'\n", 0o600)
        running.start()
        message = f"cannot read {path}: Permission denied"
        until(lambda: message in running.console(), "a message")
        group = grp.getgrgid(pwd.getpwnam("nobody").pw_gid).gr_name
        assert f"sudo chown root:{group} {path}" in running.console()
        assert running.status() is None
