"""The contract of the command line: verbs, exit codes, one document for --json."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gpud.core.http_settings import HttpSettings
from tests.agent.serve.http.armed import HASHED
from tests.e2e.program import as_nobody, program
from tests.waiting import until


def gpud(home: Path | str, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-m", "gpud", "--home", str(home), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **environ},
    )


def configured(home: Path, text: str) -> Path:
    path = home / "etc/gpud/gpud.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return home


@pytest.mark.parametrize("word", ["version", "--version"])
def test_version_is_one_line(word: str, tmp_path: Path) -> None:
    ran = gpud(tmp_path, word)
    assert (ran.returncode, ran.stdout) == (0, "gpud 0.1.0\n")


@pytest.mark.parametrize("words", [(), ("nonsense",), ("status", "--nonsense")])
def test_wrong_usage_is_2(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert gpud(tmp_path, *words).returncode == 2


def test_no_secret_of_the_settings_is_shown(tmp_path: Path) -> None:
    text = (
        f"[http]\nbasic_auth_users = {{ alice = '{HASHED}' }}\n"
        "[alerts]\nwebhook_urls = ['https://ada:lovelace@hooks.example/T00/B00']\n"
        "apprise_urls = ['ntfy://engine']\n"
    )
    ran = gpud(configured(tmp_path, text), "config", "show")
    assert ran.returncode == 0
    assert 'http.basic_auth_users = {"alice": "<hidden>"}' in ran.stdout
    assert 'alerts.webhook_urls = ["https://<hidden>@hooks.example/<hidden>"]' in ran.stdout
    for secret in (HASHED[7:], "lovelace", "T00", "engine"):
        assert secret not in ran.stdout + ran.stderr


def test_a_certificate_that_cannot_be_used_is_found_by_config_check(tmp_path: Path) -> None:
    tls = "[http.tls_server_config]\ncert_file = '/nonexistent/c'\nkey_file = '/nonexistent/k'\n"
    ran = gpud(configured(tmp_path, tls), "config", "check")
    assert ran.returncode == 2
    assert "cert_file /nonexistent/c cannot be read: No such file" in ran.stderr
    assert "fix: " in ran.stderr


@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [("x\n", 0, ""), ("", 2, "there is no password"), ("é" * 37, 2, "looks at 72 bytes")],
)
def test_a_hash_is_made_of_one_line(tmp_path: Path, typed: str, code: int, said: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-I", "-m", "gpud", "--home", str(tmp_path), "config", "hash-password"],
        input=typed,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == code
    assert said in ran.stderr
    if code == 0:
        assert HttpSettings(basic_auth_users={"alice": ran.stdout.strip()})


def test_status_answers_with_settings_that_cannot_be_read_and_says_so(tmp_path: Path) -> None:
    ran = gpud(configured(tmp_path, "[http\n"), "status", "--json")
    assert (ran.returncode, json.loads(ran.stdout)["state"]) == (3, "not_running")
    assert "not valid TOML" in ran.stderr


def test_a_broken_file_does_not_hide_what_the_environment_says(tmp_path: Path) -> None:
    marker = tmp_path / "elsewhere/stopped"
    marker.parent.mkdir()
    marker.touch()
    ran = gpud(configured(tmp_path, "[http\n"), "status", GPUD_PATHS__RUN=str(marker.parent))
    assert "stopped with gpud down" in ran.stdout


def test_a_closed_output_is_no_crash(tmp_path: Path) -> None:
    line = f"{sys.executable} -I -m gpud --home {tmp_path} config check >&- 2>&-"
    assert subprocess.run(["sh", "-c", line], check=False).returncode == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")  # noqa: PTH110
@pytest.mark.parametrize("output", [">/dev/full 2>/dev/full", "1</dev/null 2</dev/null"])
def test_outputs_that_take_nothing_leave_the_exit_code(tmp_path: Path, output: str) -> None:
    line = f"{sys.executable} -I -m gpud --home {tmp_path} version {output}"
    assert subprocess.run(["sh", "-c", line], check=False).returncode == 1


def test_a_limit_on_memory_that_is_too_low_is_named(tmp_path: Path) -> None:
    line = f"ulimit -v 30720; exec {sys.executable} -I -m gpud --home {tmp_path} up"
    ran = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == (
        "gpud: memory ran out: this shell allows 30 MiB (ulimit -v)\n"
        "  fix: ulimit -v unlimited, or a new shell\n"
    )


def test_a_start_that_another_verb_stops_says_so(tmp_path: Path) -> None:
    log = tmp_path / "var/log/gpud/root.log"
    log.parent.mkdir(parents=True)
    os.mkfifo(log)  # the start waits here for a reader, which never comes
    line = [sys.executable, "-I", "-m", "gpud", "--home", str(tmp_path), "up"]
    with subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as up:
        until((tmp_path / "run/gpud/root.pid").exists, "the supervisor's pid")
        assert gpud(tmp_path, "down").returncode == 0
        _, stderr = up.communicate(timeout=60)
    assert up.returncode == 1
    assert "gpud: it was stopped while it started, by another gpud down or gpud restart" in stderr
    assert f"/gpud --home {tmp_path} status says whether it runs" in stderr


def test_what_was_stopped_is_said_to_be(tmp_path: Path) -> None:
    assert "stopped with" not in gpud(tmp_path, "status").stdout
    marker = tmp_path / "run/gpud/stopped"
    marker.parent.mkdir(parents=True)
    marker.touch()
    assert "(stopped with gpud down)" in gpud(tmp_path, "status").stdout


def test_the_list_of_probes_needs_nobodys_lock(tmp_path: Path) -> None:
    (tmp_path / "run/gpud/agent/gpu.lock").mkdir(parents=True)  # nothing could open it for writing
    assert "nbody" in gpud(tmp_path, "probe", "--list").stdout


def test_status_of_nothing_is_3_in_words_and_as_one_document(tmp_path: Path) -> None:
    assert gpud(tmp_path, "status").returncode == 3
    ran = gpud(tmp_path, "status", "--json")
    assert (ran.returncode, json.loads(ran.stdout)) == (
        3,
        {"schema_version": 1, "state": "not_running"},
    )


def test_config_show_prints_every_setting_in_force(tmp_path: Path) -> None:
    ran = gpud(configured(tmp_path, "[schedule]\nsmall_interval_s = 30\n"), "config", "show")
    assert ran.returncode == 0
    assert "schedule.small_interval_s = 30.0" in ran.stdout
    assert 'http.listen = "127.0.0.1:9945"' in ran.stdout


def test_config_check_says_whether_there_is_a_file(tmp_path: Path) -> None:
    assert "does not exist; the defaults hold" in gpud(tmp_path, "config", "check").stdout
    config = configured(tmp_path, "") / "etc/gpud/gpud.toml"
    assert gpud(tmp_path, "config", "check").stdout == f"{config} is valid\n"


def test_probes_are_listed_without_running_any(tmp_path: Path) -> None:
    one = gpud(tmp_path, "probe", "--list", "--json", "nbody")
    assert [spec["name"] for spec in json.loads(one.stdout)["probes"]] == ["nbody"]
    none = gpud(tmp_path, "probe", "--list", "lunch")
    assert (none.returncode, "there is no probe lunch; there are:" in none.stderr) == (2, True)
    ran = gpud(tmp_path, "probe", "--list", "--json")
    assert ran.returncode == 0
    listed = json.loads(ran.stdout)
    assert listed["schema_version"] == 1
    assert {"launch", "nbody", "triad", "copy", "cpu_call", "cpu_matmul"} <= {
        probe["name"] for probe in listed["probes"]
    }


def test_the_list_says_modes_and_budgets_and_loads_nothing_to_draw_with(tmp_path: Path) -> None:
    script = (
        "import sys; from gpud.cli import main\n"
        f"code = main(['--home', {str(tmp_path)!r}, 'probe', '--list'])\n"
        "assert 'rich' not in sys.modules\nsys.exit(code)"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-c", script], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert re.search(
        r"^nbody +cuda +large +at most \d+ s, \S+ s of it GPU time$", ran.stdout, re.MULTILINE
    )
    assert "modes: host_to_device, device_to_host" in ran.stdout


@pytest.mark.parametrize("repeats", ["0", "101", "-1", "1.5", "many", "9" * 5000])
def test_a_number_of_repeats_nobody_can_mean_is_2(tmp_path: Path, repeats: str) -> None:
    ran = gpud(tmp_path, "probe", "cpu_call", f"--repeat={repeats}")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "--repeat" in ran.stderr


def test_a_probe_by_hand_needs_no_running_gpud(tmp_path: Path) -> None:
    ran = gpud(tmp_path, "probe", "cpu_call", "--json")
    [run] = json.loads(ran.stdout)["runs"]
    assert (ran.returncode, run["failure"]) == (0, None)
    assert run["samples"][0]["median"] > 0


def test_a_probe_that_brings_nothing_is_1_and_says_why(tmp_path: Path) -> None:
    home = configured(tmp_path, "[cuda]\nlibrary = '/nonexistent/libcuda.so.1'\n")
    ran = gpud(home, "probe", "triad")
    assert ran.returncode == 1
    assert "/nonexistent/libcuda.so.1: cannot open shared object file" in ran.stdout
    assert "fix:" in ran.stdout


def test_an_unknown_probe_is_2_with_the_list(tmp_path: Path) -> None:
    ran = gpud(tmp_path, "probe", "nosuch")
    assert ran.returncode == 2
    assert "there is no probe nosuch; there are: copy, cpu_call" in ran.stderr


def test_the_completion_script_is_one_bash_can_read(tmp_path: Path) -> None:
    script = gpud(tmp_path, "completion", "bash").stdout
    checked = subprocess.run(["bash", "-n"], input=script, text=True, check=False)
    assert checked.returncode == 0
    assert "_shtab_gpud_probe_option_strings=(-h --help --list --json --gpu --repeat)" in script


def test_words_from_outside_cannot_steer_the_terminal(tmp_path: Path) -> None:
    ran = gpud(configured(tmp_path, '[http]\n"\\u001b[2J" = 1\n'), "config", "check")
    assert ran.returncode == 2
    assert "\x1b" not in ran.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes nobody")
@pytest.mark.parametrize(
    "words",
    [
        ("alerts", "test"),
        ("alerts", "test", "a b"),
    ],
)
def test_a_refused_command_is_repeated_whole_with_sudo(words: tuple[str, ...]) -> None:
    with program() as made:
        (made.run_dir / "agent").mkdir(parents=True)
        os.chown(made.run_dir / "agent", 1, 1)
        history = made.home / "var/lib/gpud/gpud.db"
        history.parent.mkdir(parents=True)
        history.touch(0o600)
        command = [*as_nobody(made.home), sys.executable, "-I", "-m", "gpud"]
        ran = subprocess.run(
            [*command, "--home", str(made.home), *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            cwd="/",
        )
    assert ran.returncode == 4
    start = str(Path(sys.executable).parent / "gpud")
    typed = shlex.join([start, "--home", str(made.home), *words])
    assert ran.stderr.endswith(f"  fix: sudo {typed}\n")
