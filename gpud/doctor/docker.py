"""dockerd as an unprivileged person sees it: its socket, its files, its owner."""

from __future__ import annotations

import errno
import json
import socket
from enum import StrEnum
from typing import Any

import msgspec

from gpud.core import wsl
from gpud.core.report import DockerdReport, Owner
from gpud.doctor.machine import Machine

DAEMON_JSON = "/etc/docker/daemon.json"
REQUEST = b"GET /version HTTP/1.0\r\nHost: docker\r\n\r\n"
ANSWER_LIMIT_S = 0.8
ANSWER_LIMIT = 1 << 16
UNITS = (
    "/etc/systemd/system/multi-user.target.wants/docker.service",
    "/etc/systemd/system/sockets.target.wants/docker.socket",
)


class SocketState(StrEnum):
    """Answer of Docker's socket to a request."""

    ANSWERS = "answers"
    DENIED = "denied"  # dockerd is up, and not for us
    SILENT = "silent"  # a process listens and does not answer
    REFUSED = "refused"  # the file is there and nothing listens
    ABSENT = "absent"


ERRORS = {
    errno.EACCES: SocketState.DENIED,
    errno.EPERM: SocketState.DENIED,
    errno.ENOENT: SocketState.ABSENT,
}


class _Version(msgspec.Struct, rename="pascal"):
    version: str | None = None


def ask_version(path: str) -> tuple[SocketState, str | None]:
    """Ask dockerd for its version, which changes nothing. Errors: none."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as client:
            client.settimeout(ANSWER_LIMIT_S)
            client.connect(path)
            client.sendall(REQUEST)
            answer = client.makefile("rb").read(ANSWER_LIMIT)
    except TimeoutError:
        return SocketState.SILENT, None
    except OSError as error:
        return ERRORS.get(error.errno or 0, SocketState.REFUSED), None
    try:
        return SocketState.ANSWERS, _decoded(answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return SocketState.ANSWERS, None


def _decoded(answer: bytes) -> str | None:
    return msgspec.json.decode(answer.partition(b"\r\n\r\n")[2], type=_Version).version


def socket_path(machine: Machine) -> str:
    """Return the place of the socket of gpud's dockerd."""
    return str(machine.at(machine.settings.dockerd.socket))


def reported(machine: Machine) -> DockerdReport | None:
    """Return what root reports of dockerd."""
    return machine.root.dockerd if machine.root is not None else None


def desktop(machine: Machine) -> bool:
    """Say whether Docker Desktop serves this distribution."""
    folder = wsl.docker_desktop(machine.wsl_conf)
    behind = machine.inside(socket_path(machine))
    return behind.startswith(f"{folder}/") or machine.exists(folder)


def owner(machine: Machine) -> Owner | None:
    """Guess the owner of dockerd without root's report; None if nothing shows it."""
    if desktop(machine):
        return Owner.DOCKER_DESKTOP
    if machine.systemd and any(machine.exists(unit) for unit in UNITS):
        return Owner.SYSTEMD
    return None


def daemon_json(machine: Machine) -> tuple[dict[str, Any], str | None]:
    """Return the content of ``daemon.json``, and what is wrong with the file."""
    text = machine.text(DAEMON_JSON)
    if text is None or not text.strip():
        return {}, None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        return {}, f"{DAEMON_JSON} is not JSON: {error}"
    if not isinstance(content, dict):
        return {}, f"{DAEMON_JSON} holds no object"
    return content, None
