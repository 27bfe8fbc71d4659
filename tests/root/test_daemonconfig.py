"""What dockerd will use, as flags, daemon.json and settings say it together."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from gpud.core.sections import DockerdSettings
from gpud.root import daemonconfig

if TYPE_CHECKING:
    from pathlib import Path


def answer(path: Path, status: Any, *args: str, **settings: Any) -> daemonconfig.DaemonConfig:
    file = path / "daemon.json"
    file.write_text(status if isinstance(status, str) else json.dumps(status))
    file.chmod(0o644)
    return daemonconfig.read(DockerdSettings(args=(f"--config-file={file}", *args), **settings))


def test_the_file_counts_and_a_flag_counts_more(tmp_path: Path) -> None:
    status = {"data-root": "/file/data", "exec-root": "/file/exec", "pidfile": "/file/pid"}
    config = answer(tmp_path, status, "--exec-root", "/flag/exec")
    assert (config.data_root, config.exec_root, config.pidfile) == (
        "/file/data",
        "/flag/exec",
        "/file/pid",
    )


@pytest.mark.parametrize(
    "args", [("-g/x",), ("-g", "/x"), ("--data-root=/x",), ("--graph", "/x"), ("-g=/x",)]
)
def test_flags_are_read_in_every_spelling(args: tuple[str, ...]) -> None:
    config = daemonconfig.read(
        DockerdSettings(args=("--config-file=/nonexistent", "--debug", *args))
    )
    assert config.data_root == "/x"


@pytest.mark.parametrize(
    ("hosts", "socket", "elsewhere"),
    [
        (["fd://", "unix:///var/run/docker.sock"], "/run/docker.sock", False),
        (["unix://"], "/run/docker.sock", False),
        (["tcp://127.0.0.1:2375", "unix:///srv/d.sock"], "/srv/d.sock", False),
        (["tcp://127.0.0.1:2375"], "/run/docker.sock", True),
    ],
)
def test_gpud_asks_where_the_hosts_say_and_adds_none(
    tmp_path: Path, hosts: list[str], socket: str, *, elsewhere: bool
) -> None:
    config = answer(tmp_path, {"hosts": hosts})
    assert (config.socket, config.elsewhere, config.pass_host) == (socket, elsewhere, False)


def test_a_socket_of_the_settings_is_passed_on_unless_the_hosts_are_set(tmp_path: Path) -> None:
    assert answer(tmp_path, {}, socket="/srv/d.sock").pass_host
    assert answer(tmp_path, {"hosts": ["unix:///else"]}, socket="/srv/d.sock").elsewhere


@pytest.mark.parametrize(
    "status", [None, "", "{", "[]", "null", '{"data-root": 7, "hosts": "x"}', "[" * 9999]
)
def test_without_a_file_or_with_nothing_usable_in_it_the_defaults_are_dockers_own(
    tmp_path: Path, status: str | None
) -> None:
    absent = DockerdSettings(args=("--config-file=/nonexistent/daemon.json",))
    config = daemonconfig.read(absent) if status is None else answer(tmp_path, status)
    assert (config.data_root, config.exec_root) == ("/var/lib/docker", "/var/run/docker")
    assert (config.pass_host, config.pass_pidfile, config.elsewhere) == (False, False, False)
    assert config.hosts is None


def test_file_that_another_user_can_change_is_not_followed(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to give a file away")
    file, link = tmp_path / "daemon.json", tmp_path / "link.json"
    file.write_text('{"pidfile": "/etc/passwd"}')
    link.symlink_to(file)

    def pidfile(path: Path) -> str:
        return daemonconfig.read(DockerdSettings(args=(f"--config-file={path}",))).pidfile

    file.chmod(0o644)
    assert (pidfile(file), pidfile(link)) == ("/etc/passwd", "/run/docker.pid")
    for mode, uid in ((0o666, 0), (0o664, 0), (0o644, 65534)):
        file.chmod(mode)
        os.chown(file, uid, -1)
        assert pidfile(file) == "/run/docker.pid"
