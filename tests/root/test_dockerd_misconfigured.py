"""What another start cannot mend, provoked with a real dockerd: the reason, and the end of it.

Each of these is held with its reason, and dockerd comes back by itself once the thing is mended.
"""

from __future__ import annotations

import contextlib
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
    from collections.abc import Callable, Generator, Iterator

    from tests.dockerd import PrivateDockerd
    from tests.root.conftest import Supervised

    Trouble = Generator[tuple[dict[str, Any], str, str], None, None]


def held(supervised: Supervised, reason: str) -> dict[str, Any]:
    """Wait for the hold and return what root reports of dockerd."""
    report = supervised.when(
        lambda r: (r["dockerd"]["state"], r["dockerd"]["reason"]) == ("misconfigured", reason),
        f"a hold for {reason}",
    )
    dockerd: dict[str, Any] = report["dockerd"]
    assert dockerd["up"] is False
    assert dockerd["detail"]
    assert dockerd["fix"]
    return dockerd


def comes_back(supervised: Supervised) -> dict[str, Any]:
    report = supervised.when(lambda r: r["dockerd"]["state"] == "running", "dockerd back")
    dockerd: dict[str, Any] = report["dockerd"]
    assert dockerd["owner"] == "gpud"
    assert dockerd["reason"] is None
    return dockerd


def quick(dockerd: PrivateDockerd, *args: str, **more: Any) -> dict[str, Any]:
    settings = dockerd.settings(ping_interval_s=0.1, **more)
    return {"dockerd": {**settings, "args": (*dockerd.args, *args)}}


def mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *arguments], check=True)


def bad_file(dockerd: PrivateDockerd, text: str, reason: str, words: str) -> Trouble:
    file = dockerd.root / "daemon.json"
    file.write_text(text)
    yield quick(dockerd, f"--config-file={file}"), reason, words
    file.write_text("{}")


def json_cut_short(dockerd: PrivateDockerd) -> Trouble:
    words = "unable to configure the Docker daemon"
    return bad_file(dockerd, '{"debug": tru', "config_invalid", words)


def hosts_without_a_unix_socket(dockerd: PrivateDockerd) -> Trouble:
    text = json.dumps({"hosts": ["tcp://127.0.0.1:1"]})
    for trouble in bad_file(dockerd, text, "socket_elsewhere", dockerd.socket):
        yield trouble
        hosts = json.dumps({"hosts": [f"unix://{dockerd.socket}"]})
        (dockerd.root / "daemon.json").write_text(hosts)
        return


def program_missing(dockerd: PrivateDockerd) -> Trouble:
    program = dockerd.root / "bin" / "dockerd"
    program.parent.mkdir()
    yield quick(dockerd, binary=str(program)), "binary_missing", str(program)
    program.symlink_to(shutil.which("dockerd") or "")


def port_taken(dockerd: PrivateDockerd) -> Trouble:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = quick(dockerd, "-H", f"tcp://{address}", f"-Hunix://{dockerd.socket}")
        yield settings, "port_taken", f"(pid {os.getpid()})"


def socket_served_by_another_program(dockerd: PrivateDockerd) -> Trouble:
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(dockerd.socket)
        taken.listen()
        yield quick(dockerd, ping_timeout_s=0.3), "socket_taken", f"(pid {os.getpid()})"
        assert dockerd.dockerds() == []
    assert Path(dockerd.socket).exists()  # stale from now on: nobody listens


def folder_of_the_socket_missing(dockerd: PrivateDockerd) -> Trouble:
    place = dockerd.root / "later"
    settings = quick(dockerd, socket=str(place / "docker.sock"))
    yield settings, "socket_unusable", "no such file"
    place.mkdir()


def directory_for_a_socket(dockerd: PrivateDockerd) -> Trouble:
    Path(dockerd.socket).mkdir()
    yield quick(dockerd), "socket_unusable", "is a directory"
    Path(dockerd.socket).rmdir()


@contextlib.contextmanager
def small_disk(dockerd: PrivateDockerd, name: str, free: int) -> Iterator[Path]:
    """A file system of its own, of 256 KiB, below dockerd's root; it is gone with the test."""
    place = dockerd.root / name
    place.mkdir()
    mount("-t", "tmpfs", "-o", "size=256k", "tmpfs", place)
    try:
        (place / "filler").write_bytes(b"x" * (256 * 1024 - free))
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def disk(dockerd: PrivateDockerd, name: str, options: str, reason: str, words: str) -> Trouble:
    with small_disk(dockerd, name, free=0 if name == "exec" else 96 * 1024) as place:
        mount("-o", f"remount,{options}", place)
        yield quick(dockerd), reason, words
        mount("-o", "remount,rw,size=512m", place)
        yield quick(dockerd), reason, words  # until dockerd is back


def disk_full(dockerd: PrivateDockerd) -> Trouble:
    return disk(dockerd, "data", "rw", "disk_full", "no space left on device")


def disk_of_the_exec_root_full(dockerd: PrivateDockerd) -> Trouble:
    return disk(dockerd, "exec", "rw", "disk_full", "no space left on device")


def disk_read_only(dockerd: PrivateDockerd) -> Trouble:
    return disk(dockerd, "data", "ro,size=512m", "read_only", "read-only file system")


def storage_driver_that_the_disk_refuses(dockerd: PrivateDockerd) -> Trouble:
    data, ram = dockerd.root / "data", dockerd.root / "ram"
    for place in (data, ram):
        place.mkdir()
    mount("-t", "tmpfs", "tmpfs", ram)
    for name in ("lower", "upper", "work"):
        (ram / name).mkdir()
    options = f"lowerdir={ram}/lower,upperdir={ram}/upper,workdir={ram}/work"
    mount("-t", "overlay", "overlay", "-o", options, data)
    args = [a for a in dockerd.args if not a.startswith("--storage-driver")]
    settings = dockerd.settings(args=[*args, "--storage-driver=overlay2"], ping_interval_s=0.1)
    yield {"dockerd": settings}, "storage_driver", ""
    mount("-t", "tmpfs", "tmpfs", data)


def data_root_in_use(dockerd: PrivateDockerd) -> Trouble:
    other = dockerd.root / "other"
    args = [a for a in dockerd.args if not a.startswith("--exec-root")]
    names = [f"--exec-root={other}", f"--pidfile={other}.pid", f"-Hunix://{other}.sock"]
    with (dockerd.root / "other.log").open("wb") as log:
        process = subprocess.Popen(["dockerd", *args, *names], stdout=log, stderr=log)
    yield quick(dockerd), "data_root_in_use", ""
    process.terminate()
    process.wait()


SELDOM = (
    folder_of_the_socket_missing,
    directory_for_a_socket,
    disk_of_the_exec_root_full,
    disk_read_only,
    data_root_in_use,
)
"""Whose words are among the recorded ones too."""


@pytest.mark.parametrize(
    "make",
    [
        json_cut_short,
        hosts_without_a_unix_socket,
        program_missing,
        port_taken,
        socket_served_by_another_program,
        disk_full,
        storage_driver_that_the_disk_refuses,
        *(pytest.param(each, marks=pytest.mark.soak) for each in SELDOM),
    ],
)
def test_cause_is_held_in_dockerds_words_until_it_is_mended(
    supervised: Supervised, dockerd: PrivateDockerd, make: Callable[[PrivateDockerd], Trouble]
) -> None:
    with contextlib.closing(make(dockerd)) as trouble:
        supervised.settings, reason, words = next(trouble)
        supervised.start()
        assert words in held(supervised, reason)["detail"]
        next(trouble, None)  # mend it
        restarts = comes_back(supervised)["restarts"]
        if reason.startswith("config_"):
            assert restarts == {"start_failed": 1}
        supervised.stop()


def test_pid_file_that_cannot_be_removed_is_reported(
    supervised: Supervised, dockerd: PrivateDockerd
) -> None:
    with small_disk(dockerd, "pid", 96 * 1024) as place:
        (place / "docker.pid").write_text("999999")
        mount("-o", "remount,ro", place)
        supervised.settings = quick(dockerd, pidfile=str(place / "docker.pid"))
        supervised.start()
        supervised.when(
            lambda r: "docker.pid: Read-only" in (r["dockerd"]["detail"] or ""), "the file's name"
        )
        supervised.stop()  # before the disk is gone, and with it what keeps dockerd from starting


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


def test_containerd_of_another_owner_is_waited_for_and_missed_when_it_dies(
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
    gone = supervised.when(lambda r: r["dockerd"]["reason"] == "containerd_gone", "its death")
    assert gone["dockerd"]["up"] is True
    assert gone["dockerd"]["process"] == first["process"]
    assert "did not start it" in gone["dockerd"]["fix"]


def test_restart_of_gpud_tries_again_whatever_was_held(
    supervised: Supervised, dockerd: PrivateDockerd
) -> None:
    supervised.settings = quick(dockerd, "--no-such-flag")
    supervised.start()
    assert "gpud restart" in held(supervised, "flag_invalid")["fix"]
    assert supervised.stop() == 0
    supervised.settings = quick(dockerd)
    supervised.start()
    comes_back(supervised)


def test_helper_of_any_name_counts_as_a_program_that_was_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "PATH", str(tmp_path))
    before = conditions.look(DaemonConfig(), None, None, everything=True)
    assert conditions.look(DaemonConfig(), None, None, everything=True) == before
    (tmp_path / "fuse-overlayfs").touch()
    after = conditions.look(DaemonConfig(), None, None, everything=True)
    assert {watch for watch in after if after[watch] != before[watch]} == {StartCondition.PROGRAMS}
