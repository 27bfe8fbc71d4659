"""The stand-in for a WSL2 distribution behaves as WSL2 does where gpud depends on it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.program import alive
from tests.waiting import until
from tests.wsl.machine import RELEASE

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
