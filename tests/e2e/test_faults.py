"""One fault at a time, through the whole program: one clear reason, and the rest goes on."""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pwd
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.e2e.program import Program, cuda, free_port, only, program
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def assert_said_in_the_log_and_as_a_metric(gpud: Program, component: str, reason: str) -> None:
    assert reason in gpud.logs()
    assert gpud.value("gpud_health_reason_info", component=component, reason=reason) == 1
    assert "Traceback" not in gpud.console()


def test_without_any_gpu_the_cpu_is_measured_and_no_gpu_is_pretended(gpud: Program) -> None:
    gpud.settings["probes"] = only("cpu_call", "cpu_matmul", "launch")
    gpud.start()
    health = gpud.health("cuda", 2, "library_missing")
    assert "/nonexistent/libcuda.so.1" in health["detail"]
    until(
        lambda: gpud.value(
            "gpud_probe_flops_per_second", gpu="", probe="cpu_matmul", mode="matmul"
        ),
        "a matmul on the CPU",
    )
    until(lambda: gpud.median("cpu_call", "call", gpu=""), "a call on the CPU")
    scrape = gpud.metrics()
    assert not [key for key in scrape if dict(key[1]).get("gpu")]
    assert scrape["gpud_health", (("component", "cuda"),)] == 2
    assert_said_in_the_log_and_as_a_metric(gpud, "cuda", "library_missing")


def test_a_child_that_hangs_in_the_driver_is_a_reason_and_the_agent_goes_on() -> None:
    """Two programs side by side, because each hang takes the child's whole time budget."""
    hangs = {
        "cuInit": ("cuda", "slow_start"),
        "cuStreamSynchronize": ("probes", "hung"),
    }
    with contextlib.ExitStack() as stack:
        programs = {function: stack.enter_context(program()) for function in hangs}
        for function, gpud in programs.items():
            library = cuda(gpud.home, f"hang {function}\n")
            gpud.settings = {"cuda": {**library, "start_limit_s": 5.0}}
            gpud.start()
        for function, (component, reason) in hangs.items():
            gpud = programs[function]
            assert function in gpud.health(component, 2, reason)["detail"]
            assert_said_in_the_log_and_as_a_metric(gpud, component, reason)
            assert gpud.health("gpu", 2, "hung")["fix"]
            assert gpud.value("gpud_breaker_state", state="open") == 1
            assert gpud.value("gpud_gpu_stuck") == 0
            until(
                lambda gpud=gpud: "GPU work is tried again at " in gpud.cli("status").stdout,  # type: ignore[misc]
                "the moment of the next try",
            )
            assert gpud.median() is None
            assert gpud.runs() > 0


@pytest.fixture
def small_disk(gpud: Program) -> Iterator[Path]:
    """Mount a disk of 512 KiB where the history goes, on a path the agent's user can take."""
    state = gpud.home / "var/lib/gpud"
    state.mkdir(parents=True)
    for place in (state, *state.parents[:2]):
        place.chmod(0o755)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", state], check=True)
    try:
        yield state
    finally:
        if gpud.process is not None:
            gpud.stop()
        subprocess.run(["umount", state], check=True)


def test_full_disk_is_reported_measuring_goes_on_and_no_waiting_run_is_lost(
    gpud: Program, small_disk: Path
) -> None:
    ballast = small_disk / "ballast"
    gpud.start()
    gpud.health("store", 0)
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as filler:
        while True:
            filler.write(b"x" * 4096)
    gpud.health("store", 2, "disk_full")
    assert_said_in_the_log_and_as_a_metric(gpud, "store", "disk_full")
    gpud.more_runs()
    ballast.unlink()
    gpud.health("store", 0)


def test_taken_port_is_named_and_served_once_it_is_free(gpud: Program) -> None:
    with socket.create_server(("127.0.0.1", gpud.port)):
        gpud.start()

        def output() -> str | None:
            with contextlib.suppress(OSError):
                text = (gpud.run_dir / "agent.json").read_text()
                return text if "address_in_use" in text else None
            return None

        until(output, "address_in_use in agent.json")
        taken = f"127.0.0.1:{gpud.port} is taken by another program"
        shown = " ".join(gpud.cli("status").stdout.split())
        assert taken in shown
        console = (gpud.home / "console.log").read_text()
        assert f"127.0.0.1:{gpud.port} is taken, and `gpud status` says what to do" in console
        assert "page http" not in console
        assert "gpud takes the address as soon as it is free" in shown
        assert f"/gpud --home {gpud.home} restart" in shown
        assert "http://" not in shown, "somebody else answers there"
        (result,) = (
            item
            for item in json.loads(gpud.cli("doctor", "--json").stdout)["checks"]
            if item["name"] == "gpud"
        )
        assert taken in result["evidence"]
        assert f"/gpud --home {gpud.home} restart" in result["fix"]
    gpud.health("http", 0)
    page = f"page http://127.0.0.1:{gpud.port}/"
    until(lambda: page in gpud.cli("status").stdout, "the page's address in gpud status")
    gpud.config.write_text(gpud.config.read_text().replace(str(gpud.port), str(free_port())))
    assert page in gpud.cli("status").stdout, "that of the agent that runs, not that of the file"
    assert "Traceback" not in gpud.console()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"[schedule]\nsmal_interval_s = 5\n", "did you mean schedule.small_interval_s"),
        (b"[schedule]\nsmall_interval_s = 'often'\n", "schedule.small_interval_s"),
        (b"[schedule\n", "not valid TOML"),
    ],
    ids=["unknown key", "wrong type", "not TOML"],
)
def test_a_bad_setting_is_named_in_one_line_and_nothing_starts(
    text: bytes, expected: str, tmp_path: Path
) -> None:
    config = tmp_path / "etc/gpud/gpud.toml"
    config.parent.mkdir(parents=True)
    config.write_bytes(text)
    run = Program(tmp_path, {}).cli("run")
    assert run.returncode == 2
    assert expected in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="takes the settings from the agent's user")
def test_settings_that_only_root_can_read_are_named_with_the_fix_by_every_verb() -> None:
    with program(agent={"user": "nobody"}, probes=only("cpu_call")) as gpud:
        gpud.write_settings()
        group = grp.getgrgid(pwd.getpwnam("nobody").pw_gid).gr_name
        reason = f"cannot read {gpud.config}: Permission denied"
        fix = f"sudo chown root:{group} {gpud.config} && sudo chmod 640 {gpud.config}"

        def assert_named(line: str, code: int) -> None:
            ran = gpud.cli(*line.split())
            assert ran.returncode == code, ran
            assert reason in ran.stdout + ran.stderr, ran
            assert fix in ran.stdout + ran.stderr, ran

        try:
            gpud.cli("up")
            until(lambda: gpud.cli("status").returncode != 3, "the agent's status")
            gpud.config.chmod(0o600)
            agent = gpud.agent_pid()
            assert_named("config check", 2)
            assert_named("restart", 2)
            assert gpud.agent_pid() == agent, "what runs goes on"
            gpud.cli("down")
            gpud.cli("up")
            root = gpud.run_dir / "root.json"
            until(lambda: json.loads(root.read_bytes())["agent"]["restarts"] > 1, "a crash loop")
            assert (gpud.run_dir / "agent.json").exists(), "that of the agent before"
            for line, code in (("status", 3), ("status --json", 3), ("history", 3), ("doctor", 1)):
                assert_named(line, code)
            gpud.config.chmod(0o644)
            assert gpud.cli("config", "check").returncode == 0
            until(lambda: gpud.cli("status").returncode != 3, "the agent's status")
        finally:
            gpud.cli("down")


def test_agent_without_a_status_is_starting_or_has_a_reason() -> None:
    with program() as gpud:
        (gpud.run_dir / "agent/.agent.json.new").mkdir(parents=True)  # nothing can be written there
        gpud.run_dir.chmod(0o755)
        gpud.start()
        until(gpud.agent_pid, "an agent")
        ran = gpud.cli("status")
        assert ran.returncode == 3
        assert ran.stdout.startswith("gpud runs, and its agent is starting")
        health = gpud.health("status_file", 2, "not_written")
        assert ".agent.json.new" in health["detail"]
        assert health["fix"]
        gpud.more_runs(count=3)
        log = (gpud.home / "var/log/gpud/agent/agent.log").read_text()
        assert log.count("cannot write") == 1
        (gpud.run_dir / "agent/.agent.json.new").rmdir()
        gpud.health("status_file", 0)
        assert gpud.cli("status").returncode != 3
