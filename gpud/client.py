"""Client of the agent's local socket: one request out, the lines of the answer in."""

from __future__ import annotations

import os
import socket
import struct
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from gpud.core.errors import ConfigError, DeniedError, GpudError, NotRunningError
from gpud.core.settings import SOCKET
from gpud.requests import AnswerLine, EndLine, ErrorLine, encoded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.core.settings import Settings
    from gpud.place import Place
    from gpud.requests import ApiRequest

SILENT_S: Final = 5.0
"""The agent sends an empty line every 2 s while it works."""
_CREDENTIALS: Final = struct.Struct("iII")
_LINES: Final = msgspec.json.Decoder(AnswerLine)


def ask(run_dir: Path, request: ApiRequest) -> Iterator[AnswerLine]:
    """Send a request and give the lines of its answer, but for the last.

    Errors: ``NotRunningError`` where no agent listens, ``DeniedError`` for who may not ask,
    ``ConfigError`` for a request that cannot be done as it is, ``GpudError`` for all else.
    """
    sent = encoded(request)
    with _connected(run_dir) as (connection, agent):
        try:
            with suppress(ConnectionError):  # refused already; the answer says why
                connection.sendall(sent)
            with connection.makefile("rb") as lines:
                for text in lines:
                    if text == b"\n":
                        continue
                    line = _LINES.decode(text)
                    if isinstance(line, EndLine):
                        return
                    if isinstance(line, ErrorLine):
                        raise _error(line)
                    yield line
        except TimeoutError as error:
            message = f"gpud's agent ({agent}) has been silent for {SILENT_S:g} s"
            raise GpudError(message, fix="gpud restart") from error
        except msgspec.DecodeError as error:
            message = f"gpud's agent ({agent}) is of another version: {error}"
            raise GpudError(message, fix="gpud restart") from error
        except ConnectionError:
            pass
    raise GpudError(f"gpud's agent ({agent}) ended before it had answered", fix="gpud logs")


def listens(run_dir: Path) -> bool:
    """Return whether an agent takes connections. Errors: none."""
    try:
        with _connected(run_dir):
            return True
    except GpudError:
        return False


def ask_running(place: Place, settings: Settings, request: ApiRequest) -> Iterator[AnswerLine]:
    """Ask as ``ask`` does; where no agent listens, the error says why and what starts it."""
    run_dir = Path(settings.run_dir)
    try:
        yield from ask(run_dir, request)
    except NotRunningError as error:
        lack = f"does not listen on {run_dir.joinpath(*SOCKET)}"
        raise place.absence(run_dir, lack) from error


def _error(line: ErrorLine) -> GpudError:
    kinds = {"usage": ConfigError, "denied": DeniedError, "problem": GpudError}
    return kinds[line.kind](line.message, fix=line.fix)


@contextmanager
def _connected(run_dir: Path) -> Iterator[tuple[socket.socket, str]]:
    """Give a connection to the agent, and how to name that in an error."""
    path = run_dir.joinpath(*SOCKET)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(SILENT_S)
        try:
            _connect(connection, path)
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError) as error:
            raise NotRunningError(f"no agent of gpud listens on {path}") from error
        except PermissionError as error:
            raise DeniedError(f"{path} is of a development run of another user") from error
        except OSError as error:  # EAGAIN: its backlog is full
            message = f"gpud's agent takes no connection on {path}: {error.strerror or error}"
            raise GpudError(message, fix="gpud restart") from error
        pid, uid, _ = _CREDENTIALS.unpack(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        if uid not in _trusted(path.parent):
            raise GpudError(f"{path} belongs to user {uid}, who is not gpud's", fix="gpud restart")
        yield connection, f"process {pid}"


def _connect(connection: socket.socket, path: Path) -> None:
    """Connect by way of a descriptor: a long name does not fit into an address.

    Of the socket itself: its folder is the agent's, who may put a link to another one there.
    """
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        connection.connect(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _trusted(folder: Path) -> set[int]:
    """Give the users that may serve: root, ourselves, and whom root gave the socket's folder."""
    trusted = {0, os.geteuid()}
    if folder.parent.stat().st_uid in trusted:
        trusted.add(folder.stat().st_uid)
    return trusted
