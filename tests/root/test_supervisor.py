"""The supervisor, an agent that is only a sleeping program, and logs that all have an end."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud import reports
from gpud.core.errors import AlreadyRunning, ConfigError
from gpud.core.report import ProcessRef
from gpud.core.sections import AgentSettings
from gpud.core.settings import Settings
from gpud.root import agent as agents
from gpud.root import files, lock, process
from gpud.root.dockerd import LARGEST_LOG
from tests.root.conftest import RUN
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from tests.root.conftest import Supervised

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def test_killed_agent_is_started_again_and_the_signal_reported(supervised: Supervised) -> None:
    supervised.start()
    first = supervised.agent_pid()
    os.kill(first, signal.SIGKILL)
    supervised.agent_pid(but=first)
    status = (supervised.report() or {})["agent"]
    assert status["restarts"] == 1
    assert status["detail"] == "ended by signal 9"


def test_directory_of_the_logs_that_somebody_removed_is_made_again_or_done_without(
    supervised: Supervised,
) -> None:
    supervised.start()
    first, logs = supervised.agent_pid(), supervised.home / "var/log/gpud"
    shutil.rmtree(logs)
    until((logs / "agent").is_dir, "the directories")
    os.kill(first, signal.SIGKILL)
    first = supervised.agent_pid(but=first)
    until(lambda: "agent_started" in (logs / "root.log").read_text(), "the log")
    shutil.rmtree(logs)
    logs.write_text("a file in its place, as good as a disk that takes no directory")
    os.kill(first, signal.SIGKILL)
    supervised.when(
        lambda r: not r["agent"]["process"] or r["agent"]["process"]["pid"] != first, "its end"
    )


def test_pid_file_that_somebody_removed_is_written_again_and_its_directory_with_a_new_agent(
    supervised: Supervised,
) -> None:
    supervised.start()
    first, run_dir = supervised.agent_pid(), supervised.home / "run/gpud"
    assert supervised.process is not None
    (run_dir / "root.pid").unlink()
    holder = until(lambda: reports.supervisor(run_dir), "the pid for shells")
    assert holder.pid == supervised.process.pid
    assert supervised.agent_pid() == first
    shutil.rmtree(run_dir)
    until(lambda: reports.supervisor(run_dir), "the pid for shells")
    supervised.agent_pid(but=first)
    with pytest.raises(AlreadyRunning):
        lock.Lock(run_dir)


def test_supervisor_ends_where_another_has_taken_the_removed_run_directory(
    supervised: Supervised,
) -> None:
    supervised.start()
    first, run_dir = supervised.process, supervised.home / "run/gpud"
    assert first is not None
    agent = supervised.agent_pid()
    fresh = run_dir.with_name("fresh")
    fresh.mkdir()
    other = lock.Lock(fresh)
    run_dir.rename(run_dir.with_name("removed"))
    fresh.rename(run_dir)
    assert first.wait(LIMIT_S) == 0
    assert process.ref(agent) is None
    assert not (run_dir / "root.json").exists()  # that one writes its own
    other.release()


def test_an_agent_that_keeps_failing_is_backed_off_with_its_last_words(
    supervised: Supervised,
) -> None:
    supervised.agent = ["/bin/sh", "-c", "echo this is why >&2; exit 7"]
    supervised.start()
    status = supervised.when(lambda r: r["agent"]["state"] == "backoff", "a back-off")["agent"]
    assert status["detail"] == "exited with code 7: this is why"


def test_sigterm_ends_the_agent_and_then_the_supervisor(supervised: Supervised) -> None:
    supervised.start()
    agent = supervised.agent_pid()
    assert supervised.stop() == 0
    assert process.ref(agent) is None
    log = (supervised.home / "var/log/gpud/root.log").read_text()
    assert "supervisor_stopped" in log
    assert "agent_ended" not in log


@needs_root
def test_agent_dies_with_a_killed_supervisor_and_the_next_waits_for_that(
    supervised: Supervised,
) -> None:
    supervised.agent = ["/bin/sh", "-c", "trap 'sleep 0.5; exit' TERM; sleep 1000 & wait"]
    supervised.start()
    old = process.ref(supervised.agent_pid())
    assert old is not None
    assert supervised.process is not None
    supervised.process.kill()
    supervised.process.wait()
    supervised.start()
    supervised.agent_pid(but=old.pid)
    assert not process.alive(old)
    assert (supervised.report() or {})["agent"]["restarts"] == 0


@needs_root
def test_agent_runs_as_another_user_and_each_directory_has_its_owner(
    supervised: Supervised,
) -> None:
    supervised.settings["agent"] = {"user": "nobody"}
    supervised.start()
    agent = supervised.agent_pid()

    def dropped() -> bool:
        return Path(f"/proc/{agent}").stat().st_uid == 65534

    until(dropped, "the drop")
    run = supervised.home / "run/gpud"
    owners = {name: (run / name).stat().st_uid for name in (".", "root.json", "root.pid", "agent")}
    assert owners == {".": 0, "root.json": 0, "root.pid": 0, "agent": 65534}
    assert stat.S_IMODE((run / "root.json").stat().st_mode) == 0o644
    assert (run / "agent.json").readlink() == Path("agent/agent.json")
    assert (supervised.home / "var/lib/gpud").stat().st_uid == 65534
    assert (supervised.home / "var/log/gpud").stat().st_uid == 0
    assert supervised.report() is not None


@needs_root
def test_terminal_of_root_is_not_handed_to_the_agent(supervised: Supervised) -> None:
    """It could read what is typed there, and steer what is shown."""
    supervised.program = RUN.replace("foreground=False", "foreground=True")
    supervised.settings = {"agent": {"user": "nobody"}, "dockerd": {"policy": "off"}}
    here, terminal = pty.openpty()
    try:
        supervised.start(terminal)
        agent = Path(f"/proc/{supervised.agent_pid()}")
        until(lambda: "sleep" in (agent / "cmdline").read_text().split("\0")[0], "the agent")
        assert os.ttyname(terminal) not in {str(each.readlink()) for each in agent.glob("fd/*")}
        assert supervised.stop() == 0
    finally:
        os.close(here)
        os.close(terminal)


def test_orphans_of_the_agent_that_end_without_end_do_not_keep_the_supervisor(
    supervised: Supervised,
) -> None:
    supervised.program = f"""
import os
os.waitpid = lambda pid, options: (1 << 22, 0)  # as fast as they are reaped there are more
{RUN}"""
    supervised.start()
    first = supervised.when(lambda r: r["agent"]["process"], "an agent")["beat_s"]
    supervised.when(lambda r: r["beat_s"] > first, "another report")


def test_a_recycled_pid_is_not_taken_for_the_process() -> None:
    me = process.ref(os.getpid())
    assert me is not None
    assert process.alive(me)
    assert not process.alive(ProcessRef(me.pid, me.start_ticks + 1))
    assert not process.send(ProcessRef(me.pid, me.start_ticks + 1), signal.SIGKILL)


def test_a_zombie_does_not_count_as_running() -> None:
    child = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process.ref(child.pid) is None
    child.wait()


@needs_root
@pytest.mark.parametrize("script", ["exec sleep 1000", "while :; do echo words >&2; done"])
def test_look_at_the_settings_as_the_agents_user_is_over_soon_whatever_that_user_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    command = ["/bin/sh", "-c", script]
    monkeypatch.setattr(agents, "default_command", lambda *_: command)
    monkeypatch.setattr(agents, "CHECK_S", 2.0)
    settings = Settings(home=str(tmp_path), agent=AgentSettings(user="nobody"))
    agents.check_files(settings, tmp_path / "gpud.toml")
    command[-1] = "echo gpud: why >&2; exit 2"
    with pytest.raises(ConfigError, match=r"^why$"):
        agents.check_files(settings, tmp_path / "gpud.toml")


BY_ROOT = ("dockerd.log", "agent.log", "root.err")
BY_STRUCTLOG = {"root.log"}
LINES = b"something went wrong again\n" * (LARGEST_LOG // 27 + 1000)


def test_a_log_that_grew_too_large_is_set_aside_while_its_writer_goes_on(
    supervised: Supervised,
) -> None:
    supervised.start()
    folder = supervised.home / "var/log/gpud"
    until((folder / "agent.log").exists, "the agent's log")
    found = {path.name for path in folder.iterdir() if path.is_file()}
    assert found <= BY_STRUCTLOG | set(BY_ROOT)
    logs = [folder / name for name in BY_ROOT]
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(log.open("ab", buffering=0)) for log in logs]
        for writer in writers:
            writer.write(LINES)
        until(lambda: all(log.stat().st_size < LARGEST_LOG for log in logs), "emptied logs")
        for writer in writers:
            writer.write(b"and again\n")
    for log in logs:
        assert log.read_bytes().endswith(b"and again\n")
        assert log.stat().st_size < LARGEST_LOG
        assert log.with_name(f"{log.name}.1").stat().st_size <= LARGEST_LOG


@needs_root
def test_starts_that_always_fail_do_not_fill_the_disk(tmp_path: Path) -> None:
    log = tmp_path / "var/log/gpud/root.err"
    log.parent.mkdir(parents=True)
    log.write_bytes(LINES)
    wrong = tmp_path / "etc/gpud/gpud.toml"
    wrong.parent.mkdir(parents=True)
    wrong.write_text("[paths]\nrun = '/proc/nowhere'\n")
    answer = subprocess.run(
        [sys.executable, "-I", "-m", "gpud", "--home", tmp_path, "up"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode != 0
    assert "/proc/nowhere" in answer.stderr
    assert log.stat().st_size < LARGEST_LOG


@needs_root
def test_a_full_disk_does_not_keep_a_log_full(tmp_path: Path) -> None:
    log = tmp_path / "disk" / "dockerd.log"
    log.parent.mkdir()
    size = f"size={LARGEST_LOG + 1024 * 1024}"
    disk = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(log.parent)]
    subprocess.run(disk, check=True)
    try:
        with contextlib.suppress(OSError), log.open("ab", buffering=0) as writer:
            while True:
                writer.write(b"x" * 4096)
        files.rotate(log, LARGEST_LOG)
        assert list(log.parent.iterdir()) == [log]
        assert log.stat().st_size == 0
    finally:
        subprocess.run(["umount", log.parent], check=True)


def test_a_log_that_its_writer_made_enormous_is_cut_and_never_read_whole(tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    with log.open("wb") as writer:
        writer.truncate(1 << 42)
        writer.seek(0, os.SEEK_END)
        writer.write(b"last words\n")
    log.chmod(0o640)
    files.rotate(log, 1024)
    assert log.stat().st_size == 0
    assert stat.S_IMODE((tmp_path / "agent.log.1").stat().st_mode) == 0o640
    rest = (tmp_path / "agent.log.1").read_bytes()
    assert len(rest) == 1024
    assert rest.endswith(b"last words\n")
