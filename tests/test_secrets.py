"""secrets.toml: hashes and tokens apart from gpud.toml, for root and the agent alone."""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
import sys
import urllib.error
from typing import TYPE_CHECKING

import pytest

from gpud import settings_files
from gpud.core.errors import ConfigError
from tests.agent.serve.http.armed import HASHED
from tests.e2e.program import as_nobody, only, program
from tests.e2e.test_https import told
from tests.test_cli import configured, gpud
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

HIDDEN = "[alerts]\nwebhook_urls = ['https://chat.example/hooks/T0KEN']\n"


def secrets(home: Path, text: str, mode: int = 0o640) -> Path:
    path = home / "etc/gpud/secrets.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def others(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a verb as a user who is neither root nor the owner of anything here."""
    line = [*as_nobody(home), sys.executable, "-I", "-m", "gpud", "--home", str(home), *words]
    return subprocess.run(
        line, capture_output=True, text=True, check=False, timeout=60, env={"PATH": "/bin"}
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    return configured(tmp_path, "[log]\nlevel = 'debug'\n")


def test_a_secret_in_a_file_for_everybody_fails_config_check(home: Path) -> None:
    path = home / "etc/gpud/gpud.toml"
    path.write_text(HIDDEN)
    path.chmod(0o644)
    ran = gpud(home, "config", "check")
    assert ran.returncode == 1
    assert f"everybody may read {path}, and alerts.webhook_urls is secret in it" in ran.stderr
    assert f"fix: move it to {path.with_name('secrets.toml')}" in ran.stderr
    path.chmod(0o640)
    assert gpud(home, "config", "check").returncode == 0
    path.write_text("")
    open_ = secrets(home, HIDDEN, 0o644)
    ran = gpud(home, "config", "check")
    assert (ran.returncode, f"fix: chmod o= {open_}" in ran.stderr) == (1, True)


def test_config_check_names_each_file_that_it_has_read(home: Path) -> None:
    config, hidden = home / "etc/gpud/gpud.toml", secrets(home, HIDDEN)
    ran = gpud(home, "config", "check")
    assert (ran.returncode, ran.stdout) == (0, f"{config} is valid\n{hidden} is valid\n")
    config.unlink()
    assert gpud(home, "config", "check").stdout == f"{hidden} is valid\n"


def test_config_show_has_what_stands_in_secrets_toml_for_whom_it_is(home: Path) -> None:
    path = secrets(home, HIDDEN)
    shown = gpud(home, "config", "show")
    assert 'alerts.webhook_urls = ["https://chat.example/<hidden>"]' in shown.stdout
    ran = others(home, "config", "show")
    assert ran.returncode == 0, ran.stderr
    assert "alerts.webhook_urls" not in ran.stdout
    assert 'log.level = "debug"' in ran.stdout
    assert f"you may not read {path}" in ran.stderr


def test_who_may_not_read_the_secrets_asks_the_rest_as_before(home: Path) -> None:
    listen = "[http]\nlisten = '0.0.0.0:1'\nallow_plaintext_auth = true\n"
    (home / "etc/gpud/gpud.toml").write_text(listen)
    secrets(home, f"[http.basic_auth_users]\nada = '{HASHED}'\n")
    for words in (("config", "check"), ("status",), ("doctor",)):
        ran = others(home, *words)
        assert "can be reached from outside" not in ran.stdout + ran.stderr, words
    (home / "etc/gpud/secrets.toml").unlink()
    assert "can be reached from outside" in others(home, "config", "check").stderr


def test_the_arguments_of_the_alert_command_are_not_shown(home: Path) -> None:
    (home / "etc/gpud/gpud.toml").write_text("[alerts]\ncommand = ['/bin/true', '-k', 'T0KEN']\n")
    ran = gpud(home, "config", "show")
    assert 'alerts.command = ["/bin/true", "<hidden>", "<hidden>"]' in ran.stdout
    assert "T0KEN" not in ran.stdout


@pytest.mark.parametrize("user", ["root", "nobody-of-that-name"])
def test_a_user_that_the_agent_cannot_run_as_is_refused_before_the_start(
    home: Path, user: str
) -> None:
    (home / "etc/gpud/gpud.toml").write_text(f"[agent]\nuser = '{user}'\n")
    for words in (("config", "check"), ("up",)):
        ran = gpud(home, *words)
        assert ran.returncode == 2, words
        assert (
            f"agent.user: {'root is root' if user == 'root' else 'there is no user'}" in ran.stderr
        )
        assert "fix: name another user" in ran.stderr
    assert not (home / "run/gpud/root.pid").exists()


def test_a_settings_file_that_is_no_regular_file_is_named(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (str(fifo), "/dev/zero"):
        ran = gpud(tmp_path, "--config", path, "config", "check")
        assert (ran.returncode, f"{path} is not a regular file" in ran.stderr) == (2, True)


def test_a_folder_in_place_of_a_settings_file_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")  # noqa: PTH208
    with pytest.raises(ConfigError, match="is not a regular file"):
        settings_files.read(tmp_path, {}, home=str(tmp_path))
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to a group")
def test_the_agent_takes_users_from_secrets_toml_and_reports_when_all_can_read_it() -> None:
    with program(probes=only("cpu_call"), agent={"user": "nobody"}) as running:
        path = secrets(running.home, f"[http.basic_auth_users]\nada = '{HASHED}'\n")
        os.chown(path, 0, pwd.getpwnam("nobody").pw_gid)
        running.start()
        until(lambda: "http" in told(running).get("health", {}), "a listener", 60)
        with pytest.raises(urllib.error.HTTPError) as refused:
            running.get("/metrics")
        assert refused.value.code == 401
        refused.value.close()
        assert "settings" not in told(running)["health"]
        path.chmod(0o644)
        health = until(lambda: told(running)["health"].get("settings"), "health of settings", 60)
        assert (health["level"], health["reason"]) == (1, "secrets_exposed")
        assert f"everybody may read {path}" in health["detail"]
        assert f"chmod o= {path}" in health["fix"]
        path.chmod(0o640)
        until(lambda: told(running)["health"]["settings"]["level"] == 0, "settings again", 60)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to root alone")
def test_an_agent_that_may_not_read_the_secrets_does_not_serve_without_them() -> None:
    with program(probes=only("cpu_call"), agent={"user": "nobody"}) as running:
        path = secrets(running.home, f"[http.basic_auth_users]\nada = '{HASHED}'\n", 0o600)
        running.start()
        until(lambda: f"cannot read {path}: Permission denied" in running.console(), "a word", 60)
        group = grp.getgrgid(pwd.getpwnam("nobody").pw_gid).gr_name
        assert f"sudo chown root:{group} {path}" in running.console()
        assert running.status() is None
