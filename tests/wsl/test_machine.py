"""The stand-in for a WSL2 distribution behaves as WSL2 does where gpud depends on it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.program import alive
from tests.waiting import until
from tests.wsl.machine import PASSWORD, RELEASE
from tests.wsl.terminal import PROMPT

if TYPE_CHECKING:
    from tests.wsl.machine import Machine


def test_it_looks_like_wsl2_without_systemd(fresh: Machine) -> None:
    window = fresh.terminal()
    looks = window.run("cat /proc/sys/kernel/osrelease /proc/1/comm; ls -d /run/systemd /dev/dxg")
    assert looks[1].startswith(f"{RELEASE}\npython3\n")
    assert "cannot access '/run/systemd'" in looks[1]
    assert "\n/dev/dxg\n" in looks[1]
    assert "microsoft-standard-WSL2" in window.run("cat /proc/version")[1]
    assert window.run("echo $WSL_DISTRO_NAME ${PATH##*:}")[1].startswith("Debian /mnt/c/")
    assert "libcuda.so.1 " in window.run("/sbin/ldconfig -p")[1]


def test_a_user_becomes_root_with_the_password_and_not_without(fresh: Machine) -> None:
    window = fresh.terminal()
    assert window.run("sudo -n id -u")[0] == 1
    window.send("sudo id -u\n")
    window.expect("password for player: ")
    window.send(f"{PASSWORD}\n")
    window.expect(r"\n0\r\n")
    window.expect(PROMPT)


def test_a_window_has_a_size_and_can_be_resized(fresh: Machine) -> None:
    window = fresh.terminal()
    assert window.run("stty size") == (0, "40 400\n")
    window.send("trap 'echo size: $LINES' WINCH\n")
    window.expect(PROMPT)
    window.resize(50, 300)
    window.send("\n")
    window.expect("size: 50")
    window.expect(PROMPT)
    assert window.run("stty size") == (0, "50 300\n")


def test_what_a_closed_window_started_lives_on_below_its_relay(fresh: Machine) -> None:
    window, quiet = fresh.terminal(), fresh.terminal()
    window.run("(setsid sleep 1000 </dev/null >/dev/null 2>&1 &)")
    quiet.close()
    quiet.relay.wait(timeout=10)  # it has no children left
    window.close()

    (sleeper,) = until(lambda: fresh.named("sleep"), "the process in the background")
    (relay,) = (p for p in fresh.processes() if p.pid == sleeper.parent)
    assert relay.inner != 1
    assert " relay " in relay.command
    assert window.relay.poll() is None
    os.kill(sleeper.pid, 9)
    window.relay.wait(timeout=10)


def test_shutdown_ends_everything_and_keeps_the_disk_but_not_run(fresh: Machine) -> None:
    window = fresh.terminal()
    window.run("(setsid sleep 1000 </dev/null >/dev/null 2>&1 &)")
    until(lambda: fresh.named("sleep"), "the process in the background")
    fresh.run("touch", "/run/gone", "/var/kept")
    everything = [process.pid for process in fresh.processes()]
    assert len(everything) >= 4  # init, relay, bash, sleep
    fresh.shutdown()
    assert not [pid for pid in everything if alive(pid)]

    fresh.boot()
    assert fresh.run("ls", "/run").stdout.split() == ["WSL", "lock"]
    assert fresh.run("ls", "/var/kept").returncode == 0


def test_the_machine_that_runs_the_tests_stays_as_it_is(fresh: Machine) -> None:
    groups = fresh.groups.files()
    names = ("ls", "/sys/class/net")
    before = subprocess.run(names, capture_output=True, check=True).stdout
    fresh.run("mount", "-t", "tmpfs", "none", "/mnt")
    assert fresh.run(*names).stdout.split() == ["lo"]
    fresh.shutdown()
    assert subprocess.run(names, capture_output=True, check=True).stdout == before
    assert fresh.place.name not in Path("/proc/mounts").read_text()
    assert not [file for file in groups if Path(file).exists()]


def test_a_child_without_a_parent_is_reaped_by_process_one(fresh: Machine) -> None:
    window = fresh.terminal()
    # The relay is gone before its grandchild ends, so that nobody but process 1 is left for it.
    window.run("(setsid sleep 1000 </dev/null >/dev/null 2>&1 &)")
    (sleeper,) = until(lambda: fresh.named("sleep"), "the process in the background")
    os.kill(sleeper.parent, 9)
    until(lambda: fresh.named("sleep")[0].parent == fresh.init, "a new parent")
    os.kill(sleeper.pid, 9)
    until(lambda: not Path(f"/proc/{sleeper.pid}").exists(), "no zombie")
