"""What a person without rights can see of dockerd: its socket, its files, its program."""

from __future__ import annotations

import errno
import http.client
import json
import os
import socket
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from gpud.core import wsl
from gpud.core.report import Owner

if TYPE_CHECKING:
    from gpud.doctor.machine import Machine

DAEMON_JSON = "/etc/docker/daemon.json"
ANSWER_S = 0.8
UNITS = (
    "/etc/systemd/system/multi-user.target.wants/docker.service",
    "/etc/systemd/system/sockets.target.wants/docker.socket",
)
LARGEST_ANSWER = 1 << 16


class Api(StrEnum):
    """What the socket did when we knocked."""

    ANSWERS = "answers"
    DENIED = "denied"  # dockerd is up, and not for us
    SILENT = "silent"  # somebody listens and does not speak
    REFUSED = "refused"  # the file is there and nobody listens
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at the socket; ``version`` is dockerd's own."""

    api: Api
    version: str | None = None


class _Unix(http.client.HTTPConnection):
    """HTTP over a Unix socket, with one deadline per read."""

    def __init__(self, path: str) -> None:
        super().__init__("docker", timeout=ANSWER_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the path instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def knock(path: str) -> Seen:
    """Ask ``/version``, which changes nothing. Errors: none; each is an answer of its own."""
    connection = _Unix(path)
    try:
        connection.request("GET", "/version")
        said = json.loads(connection.getresponse().read(LARGEST_ANSWER))
        version = said.get("Version") if isinstance(said, dict) else None
        return Seen(Api.ANSWERS, version if isinstance(version, str) else None)
    except TimeoutError:
        return Seen(Api.SILENT)
    except OSError as error:
        known = {errno.EACCES: Api.DENIED, errno.EPERM: Api.DENIED, errno.ENOENT: Api.ABSENT}
        return Seen(known.get(error.errno or 0, Api.REFUSED))
    except (http.client.HTTPException, ValueError, RecursionError):
        return Seen(Api.ANSWERS)  # somebody does, and it is not for us to judge the words
    finally:
        connection.close()


def socket_path(machine: Machine) -> str:
    """Where gpud's dockerd listens. Settings name it below ``/``; a recorded tree has its own."""
    return str(machine.at(machine.settings.dockerd.socket))


def desktop(machine: Machine) -> bool:
    """Say whether Docker Desktop serves this distribution."""
    theirs = wsl.docker_desktop(machine.wsl_conf)
    root = os.path.realpath(machine.settings.sysroot).rstrip("/")
    behind = os.path.realpath(socket_path(machine)).removeprefix(root)
    return behind.startswith(f"{theirs}/") or machine.exists(theirs)


def owner(machine: Machine) -> Owner | None:
    """Guess whose dockerd it is without root's help; None when nothing tells."""
    if desktop(machine):
        return Owner.DOCKER_DESKTOP
    if machine.systemd and any(machine.exists(unit) for unit in UNITS):
        return Owner.SYSTEMD
    return None


def daemon_json(machine: Machine) -> tuple[dict[str, Any], str | None]:
    """Give what ``daemon.json`` says, and what is wrong with it where something is."""
    text = machine.text(DAEMON_JSON)
    if text is None or not text.strip():
        return {}, None
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        return {}, f"{DAEMON_JSON} is not JSON: {error}"
    if not isinstance(said, dict):
        return {}, f"{DAEMON_JSON} holds no object"
    return said, None
