"""Effective configuration of the next dockerd: gpud's settings, dockerd's flags, daemon.json.

Flags come before the file, the file before the defaults. Root uses these paths to look, to remove
stale pid files and to ask; so a daemon.json that somebody else than root could write is not used
here, though dockerd itself may read it.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpud import regular_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.core.sections import DockerdSettings

LARGEST = 1024 * 1024
DEFAULT_SOCKETS = frozenset({"/run/docker.sock", "/var/run/docker.sock"})
DEFAULT_PIDFILES = frozenset({"/run/docker.pid", "/var/run/docker.pid"})
CONFIG_FILE = "/etc/docker/daemon.json"
UNIX = "unix://"
_SHORT = {"-g": "--data-root", "-p": "--pidfile", "-H": "--host"}
_LONG = {"--graph": "--data-root"}
_WITH_VALUE = frozenset(
    {"--config-file", "--containerd", "--data-root", "--exec-root", "--host", "--pidfile"}
)


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """Where one dockerd keeps things and listens. ``hosts`` is None when nobody set any."""

    file: str = CONFIG_FILE
    data_root: str = "/var/lib/docker"
    exec_root: str = "/var/run/docker"
    pidfile: str = "/run/docker.pid"
    socket: str = "/run/docker.sock"  # the one gpud asks
    hosts: tuple[str, ...] | None = None
    containerd: str | None = None  # somebody else's, by its address
    pass_host: bool = False  # gpud says -H itself
    pass_pidfile: bool = False
    elsewhere: bool = False  # no socket gpud could ask is among the hosts


def read(settings: DockerdSettings) -> DaemonConfig:
    """Put settings, flags and file together. Errors: none; what cannot be read sets nothing."""
    flags = _flags(settings.args)
    file = _last(flags, "--config-file") or CONFIG_FILE
    content = document(file)
    hosts = tuple(flags["--host"]) if "--host" in flags else _texts(content.get("hosts"))
    socket, elsewhere = _socket(settings.socket, hosts)
    pidfile = _last(flags, "--pidfile") or _text(content.get("pidfile"))
    return DaemonConfig(
        file=file,
        data_root=_last(flags, "--data-root")
        or _text(content.get("data-root"))
        or "/var/lib/docker",
        exec_root=_last(flags, "--exec-root")
        or _text(content.get("exec-root"))
        or "/var/run/docker",
        pidfile=pidfile or settings.pidfile,
        socket=socket,
        hosts=hosts,
        containerd=_last(flags, "--containerd") or _text(content.get("containerd")),
        pass_host=hosts is None and settings.socket not in DEFAULT_SOCKETS,
        pass_pidfile=pidfile is None and settings.pidfile not in DEFAULT_PIDFILES,
        elsewhere=elsewhere,
    )


def _socket(configured: str, hosts: tuple[str, ...] | None) -> tuple[str, bool]:
    """Choose the socket to ask; a default one gives way to whatever the hosts name."""
    if hosts is None:
        return configured, False
    paths = [host.removeprefix(UNIX) for host in hosts if host.startswith(UNIX)]
    paths = [path or "/var/run/docker.sock" for path in paths]
    if configured in paths or (
        configured in DEFAULT_SOCKETS and DEFAULT_SOCKETS.intersection(paths)
    ):
        return configured, False
    if paths and configured in DEFAULT_SOCKETS:
        return paths[0], False
    return configured, True


def _flags(args: Sequence[str]) -> dict[str, list[str]]:
    """Read ``--name=value``, ``--name value`` and the short forms, as pflag does."""
    values: dict[str, list[str]] = {}
    rest = list(args)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if not name.startswith("--") and name[:2] in _SHORT and len(name) > len("-H"):
            name, equals, value = name[:2], "=", name[2:] + equals + value
        name = _LONG.get(_SHORT.get(name, name), _SHORT.get(name, name))
        if name not in _WITH_VALUE:
            continue
        if not equals:
            value = rest.pop(0) if rest else ""
        values.setdefault(name, []).append(value)
    return values


def _last(flags: dict[str, list[str]], name: str) -> str | None:
    return flags[name][-1] if name in flags else None


def document(path: str) -> dict[str, Any]:
    """Give the object in a root-owned file that nobody else may write; empty for anything else."""
    try:
        with regular_file.opened(path, os.O_NOFOLLOW) as file:
            facts = os.fstat(file.fileno())
            shared = facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if facts.st_uid not in {0, os.geteuid()} or shared:
                return {}
            content = json.loads(file.read(LARGEST))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _texts(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, list):
        return None
    return tuple(entry for entry in value if isinstance(entry, str)) or None
