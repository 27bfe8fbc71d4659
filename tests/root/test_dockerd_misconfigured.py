"""What another start cannot mend, provoked with a real dockerd: the reason, and the end of it.

Each of these is held with its reason, and dockerd comes back by itself once the thing is mended.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpud.root import conditions
from gpud.root.daemonconfig import DaemonConfig
from gpud.root.dockerd_facts import StartCondition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.dockerd import PrivateDockerd
    from tests.root.conftest import Supervised


def held(supervised: Supervised, reason: str, within_s: float = 60.0) -> dict[str, Any]:
    """Wait for the hold and give what root says of dockerd."""
    report = supervised.when(
        lambda r: (r["dockerd"]["state"], r["dockerd"]["reason"]) == ("misconfigured", reason),
        f"a hold for {reason}",
        within_s,
    )
    said: dict[str, Any] = report["dockerd"]
    assert said["up"] is False
    assert said["detail"]
    assert said["fix"]
    return said


def comes_back(supervised: Supervised) -> dict[str, Any]:
    report = supervised.when(lambda r: r["dockerd"]["state"] == "running", "dockerd back")
    said: dict[str, Any] = report["dockerd"]
    assert said["owner"] == "gpud"
    assert said["reason"] is None
    return said


def quick(dockerd: PrivateDockerd, *args: str, **more: Any) -> dict[str, Any]:
    settings = dockerd.settings(ping_interval_s=0.1, **more)
    return {"dockerd": {**settings, "args": (*dockerd.args, *args)}}


@pytest.fixture
def small_disk(dockerd: PrivateDockerd) -> Iterator[Path]:
    """A file system of its own where the data-root is."""
    place = dockerd.root / "data"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def remount(place: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", place], check=True)


@pytest.mark.parametrize(
    ("text", "reason", "words"),
    [
        ('{"debug": tru', "config_invalid", "unable to configure the Docker daemon"),
        ('{"debgu": true}', "config_invalid", "debgu"),
        ('{"storage-driver": "vfs"}', "config_conflict", "both as a flag"),
    ],
)
def test_a_bad_daemon_json_is_held_until_the_file_changes(
    supervised: Supervised, dockerd: PrivateDockerd, text: str, reason: str, words: str
) -> None:
    file = dockerd.root / "daemon.json"
    file.write_text(text)
    supervised.settings = quick(dockerd, f"--config-file={file}")
    supervised.start()
    assert words in held(supervised, reason)["detail"]
    file.write_text("{}")
    assert comes_back(supervised)["restarts"] == {"start_failed": 1}


def test_a_missing_program_is_held_until_it_is_installed(
    supervised: Supervised, dockerd: PrivateDockerd
) -> None:
    program = dockerd.root / "bin" / "dockerd"
    program.parent.mkdir()
    supervised.settings = quick(dockerd, binary=str(program))
    supervised.start()
    assert str(program) in held(supervised, "binary_missing")["detail"]
    real = shutil.which("dockerd")
    assert real is not None
    program.symlink_to(real)
    assert comes_back(supervised)["restarts"] == {}


def test_a_taken_port_names_who_holds_it_and_is_retried_when_he_is_gone(
    supervised: Supervised, dockerd: PrivateDockerd
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        supervised.settings = quick(dockerd, "-H", f"tcp://{address}", f"-Hunix://{dockerd.socket}")
        supervised.start()
        said = held(supervised, "port_taken")
        assert f"listen tcp {address}" in said["detail"]
        assert f"(pid {os.getpid()})" in said["detail"]
    comes_back(supervised)


def test_a_socket_that_somebody_else_serves_is_left_alone_and_its_file_does_not_matter_later(
    supervised: Supervised, dockerd: PrivateDockerd
) -> None:
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(dockerd.socket)
        taken.listen()
        supervised.settings = quick(dockerd, ping_timeout_s=0.3)
        supervised.start()
        said = held(supervised, "socket_taken")
        assert f"(pid {os.getpid()})" in said["detail"]
        assert dockerd.dockerds() == []
    assert Path(dockerd.socket).exists()  # stale from now on: nobody listens
    comes_back(supervised)


def test_a_directory_in_the_place_of_the_socket_is_held_until_it_is_removed(
    supervised: Supervised, dockerd: PrivateDockerd
) -> None:
    Path(dockerd.socket).mkdir()
    supervised.settings = quick(dockerd)
    supervised.start()
    assert "is a directory" in held(supervised, "socket_unusable")["detail"]
    Path(dockerd.socket).rmdir()
    comes_back(supervised)


def test_a_full_disk_is_held_until_there_is_space(
    supervised: Supervised, dockerd: PrivateDockerd, small_disk: Path
) -> None:
    with (small_disk / "filler").open("wb") as filler:
        filler.write(b"x" * (160 * 1024))
    supervised.settings = quick(dockerd)
    supervised.start()
    assert "no space left on device" in held(supervised, "disk_full")["detail"]
    remount(small_disk, "size=512m")
    comes_back(supervised)


def test_a_full_disk_below_the_exec_root_is_held_until_there_is_space(
    supervised: Supervised, dockerd: PrivateDockerd
) -> None:
    place = dockerd.root / "exec"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", place], check=True)
    try:
        (place / "filler").write_bytes(b"x" * 8192)
        supervised.settings = quick(dockerd)
        supervised.start()
        held(supervised, "disk_full")
        (place / "filler").unlink()
        remount(place, "size=100m")
        comes_back(supervised)
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_socket_whose_directory_is_missing_is_held_until_it_is_made(
    supervised: Supervised, dockerd: PrivateDockerd
) -> None:
    place = dockerd.root / "later"
    supervised.settings = quick(dockerd, socket=str(place / "docker.sock"))
    supervised.start()
    assert "no such file" in held(supervised, "socket_unusable")["detail"]
    place.mkdir()
    comes_back(supervised)


def test_a_storage_driver_that_the_disk_refuses_is_held_until_another_disk_is_mounted(
    supervised: Supervised, dockerd: PrivateDockerd
) -> None:
    data, ram = dockerd.root / "data", dockerd.root / "ram"
    for place in (data, ram):
        place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", ram], check=True)
    for name in ("lower", "upper", "work"):
        (ram / name).mkdir()
    options = f"lowerdir={ram}/lower,upperdir={ram}/upper,workdir={ram}/work"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, data], check=True)
    args = [a for a in dockerd.args if not a.startswith("--storage-driver")]
    settings = dockerd.settings(args=[*args, "--storage-driver=overlay2"], ping_interval_s=0.1)
    supervised.settings = {"dockerd": settings}
    supervised.start()
    held(supervised, "storage_driver")
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", data], check=True)
    comes_back(supervised)


def test_a_pid_file_that_cannot_be_removed_is_told(
    supervised: Supervised, dockerd: PrivateDockerd, small_disk: Path
) -> None:
    pidfile = small_disk / "docker.pid"
    pidfile.write_text("999999")
    remount(small_disk, "ro")
    supervised.settings = quick(dockerd, pidfile=str(pidfile))
    supervised.start()
    supervised.when(
        lambda r: "docker.pid: Read-only" in (r["dockerd"]["detail"] or ""), "the file's name"
    )
    supervised.stop()  # before the disk is gone, and with it what keeps dockerd from starting


def test_a_read_only_disk_is_held_until_it_is_writable(
    supervised: Supervised, dockerd: PrivateDockerd, small_disk: Path
) -> None:
    remount(small_disk, "size=512m,ro")
    supervised.settings = quick(dockerd)
    supervised.start()
    assert "read-only file system" in held(supervised, "read_only")["detail"]
    remount(small_disk, "size=512m,rw")
    comes_back(supervised)


def test_missing_iptables_are_held_until_they_are_there(
    supervised: Supervised, dockerd: PrivateDockerd
) -> None:
    hidden = shutil.which("iptables")
    assert hidden is not None
    args = [a for a in dockerd.args if not a.startswith(("--iptables", "--bridge", "--ip-masq"))]
    supervised.settings = {"dockerd": dockerd.settings(args=args, ping_interval_s=0.1)}
    # In mounts of its own /dev/null lies over iptables; in a network of its own docker0 is free.
    hide = f'mount --bind /dev/null {hidden}; exec "$@"'
    supervised.prefix = ["unshare", "--mount", "--net", "sh", "-c", hide, "sh"]
    supervised.start()
    assert "ptables" in held(supervised, "firewall_missing")["detail"]
    assert supervised.process is not None
    inside = ["nsenter", "--mount", "--root", "--target", str(supervised.process.pid)]
    subprocess.run([*inside, "umount", hidden], check=True)
    comes_back(supervised)


def test_a_refusing_firewall_is_told_in_its_own_words(
    supervised: Supervised, dockerd: PrivateDockerd
) -> None:
    args = [a for a in dockerd.args if not a.startswith(("--iptables", "--bridge", "--ip-masq"))]
    supervised.settings = {"dockerd": dockerd.settings(args=args, ping_interval_s=0.1)}
    supervised.prefix = ["unshare", "--net", "setpriv", "--bounding-set=-net_admin"]
    supervised.start()
    assert "NAT chain" in held(supervised, "firewall_refused")["detail"]


def test_missing_cgroups_are_told(supervised: Supervised, dockerd: PrivateDockerd) -> None:
    supervised.settings = quick(dockerd)
    gone = 'umount --recursive --lazy /sys/fs/cgroup; exec "$@"'
    supervised.prefix = ["unshare", "--mount", "sh", "-c", gone, "sh"]
    supervised.start()
    assert "cgroup" in held(supervised, "cgroups_missing")["detail"]


def test_hosts_without_a_unix_socket_are_held_before_anything_is_started(
    supervised: Supervised, dockerd: PrivateDockerd
) -> None:
    file = dockerd.root / "daemon.json"
    file.write_text(json.dumps({"hosts": ["tcp://127.0.0.1:1"]}))
    supervised.settings = quick(dockerd, f"--config-file={file}")
    supervised.start()
    assert dockerd.socket in held(supervised, "socket_elsewhere")["detail"]
    file.write_text(json.dumps({"hosts": [f"unix://{dockerd.socket}"]}))
    assert comes_back(supervised)["restarts"] == {}


def test_a_containerd_of_somebody_elses_is_waited_for_and_missed_when_it_dies(
    supervised: Supervised, dockerd: PrivateDockerd
) -> None:
    address = dockerd.root / "containerd.sock"
    supervised.settings = quick(dockerd, f"--containerd={address}")
    supervised.start()
    assert str(address) in held(supervised, "containerd_unreachable")["detail"]
    places = [f"--{name}={dockerd.root / 'containerd' / name}" for name in ("root", "state")]
    with (dockerd.root / "containerd.log").open("wb") as log:
        containerd = subprocess.Popen(
            ["containerd", "--address", str(address), *places], stdout=log, stderr=log
        )
    first = comes_back(supervised)
    containerd.kill()
    containerd.wait()
    said = supervised.when(lambda r: r["dockerd"]["reason"] == "containerd_gone", "its death")
    assert said["dockerd"]["up"] is True
    assert said["dockerd"]["process"] == first["process"]
    assert "did not start it" in said["dockerd"]["fix"]


def test_a_restart_of_gpud_tries_again_whatever_was_held(
    supervised: Supervised, dockerd: PrivateDockerd
) -> None:
    supervised.settings = quick(dockerd, "--no-such-flag")
    supervised.start()
    said = held(supervised, "flag_invalid")
    assert "gpud restart" in said["fix"]
    assert supervised.stop() == 0
    supervised.settings = quick(dockerd)
    supervised.start()
    comes_back(supervised)


@pytest.mark.soak
def test_a_data_root_in_use_is_told_once_dockerd_gave_up(
    supervised: Supervised, dockerd: PrivateDockerd
) -> None:
    argv = [
        *dockerd.argv(),
        f"--exec-root={dockerd.root / 'other'}",
        f"--pidfile={dockerd.root / 'other.pid'}",
        f"-Hunix://{dockerd.root / 'other.sock'}",
    ]
    argv = [a for a in argv if a not in ("-H", f"unix://{dockerd.socket}")]
    argv = [a for a in argv if a not in ("--pidfile", dockerd.pidfile)]
    argv.remove(f"--exec-root={dockerd.root / 'exec'}")
    with (dockerd.root / "other.log").open("wb") as log:
        other = subprocess.Popen(argv, stdout=log, stderr=log)
    supervised.settings = quick(dockerd)
    supervised.start()
    held(supervised, "data_root_in_use", 40)
    other.terminate()
    other.wait()
    comes_back(supervised)


def test_a_helper_of_any_name_counts_as_a_program_that_was_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "PATH", str(tmp_path))
    before = conditions.look(DaemonConfig(), None, None, everything=True)
    assert conditions.look(DaemonConfig(), None, None, everything=True) == before
    (tmp_path / "fuse-overlayfs").touch()
    after = conditions.look(DaemonConfig(), None, None, everything=True)
    assert {watch for watch in after if after[watch] != before[watch]} == {StartCondition.PROGRAMS}
