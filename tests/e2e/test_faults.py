"""One fault at a time, through the whole program: one clear reason, and the rest goes on."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.program import Program, children_of, cuda, free_port, program
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def gpud() -> Iterator[Program]:
    with program() as made:
        yield made


def assert_no_traceback_at_the_user(gpud: Program) -> None:
    assert "Traceback" not in gpud.console()


def assert_said_in_the_log_and_as_a_metric(gpud: Program, component: str, reason: str) -> None:
    assert reason in gpud.logs()
    assert gpud.value("gpud_health_reason_info", component=component, reason=reason) == 1
    assert_no_traceback_at_the_user(gpud)


def test_without_any_gpu_the_cpu_is_measured_and_no_gpu_is_pretended(gpud: Program) -> None:
    gpud.start()
    health = gpud.health("cuda", 2, "library_missing")
    assert "/nonexistent/libcuda.so.1" in health["detail"]
    until(
        lambda: gpud.value(
            "gpud_probe_flops_per_second", gpu="", probe="cpu_matmul", mode="matmul"
        ),
        "a matmul on the CPU",
    )
    until(
        lambda: gpud.value(
            "gpud_probe_latency_median_seconds", gpu="", probe="cpu_call", mode="call"
        ),
        "a call on the CPU",
    )
    scrape = gpud.metrics()
    assert not [key for key in scrape if dict(key[1]).get("gpu")]
    assert scrape["gpud_health", (("component", "cuda"),)] == 2
    assert_said_in_the_log_and_as_a_metric(gpud, "cuda", "library_missing")


def test_a_child_that_hangs_in_the_driver_is_a_reason_and_the_agent_goes_on() -> None:
    """Three programs side by side, because each hang takes the child's whole time budget."""
    hangs = {
        "cuInit": ("cuda", "slow_start"),
        "cuModuleLoadDataEx": ("probes", "slow_start"),
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
            assert function in gpud.health(component, 2, reason, within_s=60)["detail"]
            assert_said_in_the_log_and_as_a_metric(gpud, component, reason)
            assert gpud.health("gpu", 2, "hung")["fix"]
            assert gpud.value("gpud_breaker_state", state="open") == 1
            assert gpud.value("gpud_gpu_stuck") == 0
            until(
                lambda gpud=gpud: "GPU work is tried again at " in gpud.cli("status").stdout,  # type: ignore[misc]
                "the moment of the next try",
            )
            submit = gpud.value(
                "gpud_probe_latency_median_seconds", gpu="0", probe="launch", mode="submit"
            )
            assert submit is None
            runs = gpud.value("gpud_probe_runs_total", probe="cpu_call")
            assert runs is not None
            assert runs > 0


def test_a_child_that_is_killed_is_counted_and_the_next_run_is_well(gpud: Program) -> None:
    gpud.settings = {"cuda": cuda(gpud.home, "hang cuInit\n")}
    gpud.start()

    def probe_child() -> int | None:
        agent = gpud.agent_pid()
        for pid in children_of(agent) if agent else []:
            with contextlib.suppress(OSError):
                if b"--inventory" in Path("/proc", str(pid), "cmdline").read_bytes():
                    return pid
        return None

    child = until(probe_child, "a probe child")
    os.kill(child, signal.SIGKILL)
    gpud.health("cuda", 2, "killed")
    assert_no_traceback_at_the_user(gpud)


def test_wrong_results_publish_no_number(gpud: Program) -> None:
    gpud.settings = {"cuda": cuda(gpud.home, "corrupt gpud_triad\n")}
    gpud.start()
    gpud.health("probes", 2, "verification_failed")
    assert gpud.value("gpud_probe_bytes_per_second", gpu="0", probe="triad", mode="triad") is None
    until(
        lambda: gpud.value("gpud_probe_flops_per_second", gpu="0", probe="nbody", mode="nbody"),
        "n-body, which is right",
    )
    assert_said_in_the_log_and_as_a_metric(gpud, "probes", "verification_failed")


def test_a_corrupt_history_is_set_aside_and_a_new_one_begun(gpud: Program) -> None:
    state = gpud.home / "var/lib/gpud"
    state.mkdir(parents=True)
    (state / "gpud.db").write_bytes(b"this was never a database" * 1000)
    gpud.start()
    until(lambda: list(state.glob("gpud.db.corrupt-*")), "the old file set aside")
    assert "corrupt" in gpud.health("store", 1, "corrupt_set_aside")["detail"]
    assert_said_in_the_log_and_as_a_metric(gpud, "store", "corrupt_set_aside")


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
    runs = gpud.value("gpud_probe_runs_total", probe="cpu_call") or 0
    until(
        lambda: (gpud.value("gpud_probe_runs_total", probe="cpu_call") or 0) > runs,
        "measuring goes on",
    )
    ballast.unlink()
    gpud.health("store", 0)


def test_read_only_disk_is_reported_and_measuring_goes_on(gpud: Program, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    gpud.start()
    gpud.health("store", 2, "read_only")
    assert_said_in_the_log_and_as_a_metric(gpud, "store", "read_only")
    runs = gpud.value("gpud_probe_runs_total", probe="cpu_call") or 0
    until(
        lambda: (gpud.value("gpud_probe_runs_total", probe="cpu_call") or 0) > runs,
        "measuring goes on",
    )
    # The agent may live in a mount namespace of its own (its interpreter below /root, say), where
    # a mount keeps its own read-only flag beside that of the file system.
    for place in (["nsenter", "-t", str(gpud.agent_pid()), "-m"], []):
        subprocess.run([*place, "mount", "-o", "remount,rw", small_disk], check=True)
    small_disk.chmod(0o777)
    gpud.health("store", 0)


def test_a_taken_port_is_named_with_its_holder_and_served_once_it_is_free(gpud: Program) -> None:
    with socket.create_server(("127.0.0.1", gpud.port)):
        gpud.start()

        def said() -> str | None:
            with contextlib.suppress(OSError):
                text = (gpud.run_dir / "agent.json").read_text()
                return text if "address_in_use" in text else None
            return None

        until(said, "address_in_use in agent.json")
        holder = rf"127\.0\.0\.1:{gpud.port} is taken by \S+ \(process {os.getpid()}\)"
        shown = gpud.cli("status").stdout
        assert re.search(holder, shown), "by root, who may see every process"
        assert "gpud takes the address as soon as it is free" in shown
        assert f"/gpud --home {gpud.home} restart" in shown
        for text in (shown, gpud.console()):
            assert "http://" not in text, "somebody else answers there"
        (found,) = (
            one
            for one in json.loads(gpud.cli("doctor", "--json").stdout)["checks"]
            if one["name"] == "port"
        )
        assert re.search(holder, found["evidence"])
        assert f"/gpud --home {gpud.home} restart" in found["fix"]
    gpud.health("http", 0)
    page = f"page http://127.0.0.1:{gpud.port}/"
    until(lambda: page in gpud.cli("status").stdout, "the page's address in gpud status")
    gpud.config.write_text(gpud.config.read_text().replace(str(gpud.port), str(free_port())))
    assert page in gpud.cli("status").stdout, "that of the agent that runs, not that of the file"
    assert_no_traceback_at_the_user(gpud)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"[schedule]\nsmal_interval_s = 5\n", "did you mean schedule.small_interval_s"),
        (b"[schedule]\nsmall_interval_s = 'often'\n", "schedule.small_interval_s"),
        (b"[schedule]\nsmall_interval_s = nan\n", "small_interval_s must be"),
        (b"[schedule]\nsmall_interval_s = -1\n", "small_interval_s must be"),
        (b"\xff\xfe[schedule]\n", "not UTF-8"),
        (b"[schedule\n", "not valid TOML"),
    ],
    ids=["unknown key", "wrong type", "NaN", "negative", "not UTF-8", "not TOML"],
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
