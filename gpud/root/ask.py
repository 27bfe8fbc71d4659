"""One HTTP request over Docker's socket that never blocks the loop.

The docker SDK is not used here: importing it alone costs 10 MB and 95 ms, a quarter of this
process's memory budget, for requests of one line each.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time

from gpud.root import process
from gpud.root.dockerd_facts import Api

LARGEST = 1024 * 1024


class Ask:
    """A request under way. Poll ``fileno()`` for reading and call ``read`` until it is done."""

    def __init__(self, path: str, target: str) -> None:
        self.target = target
        self.begun_s = time.monotonic()
        self.api: Api | None = None  # None while the answer is open
        self.took_s: float | None = None
        self.peer_pid: int | None = None  # who listens, 0 outside our PID namespace; None: unknown
        self._answer = b""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._socket.connect(path)
            self.peer_pid = process.peer(self._socket)
            self._socket.send(f"GET {target} HTTP/1.0\r\nHost: docker\r\n\r\n".encode())
        except BlockingIOError:
            self._end(Api.SILENT)  # the backlog is full: somebody listens and does not accept
        except PermissionError:
            # Refused at the socket means that it is there; refused on the way tells nothing of it.
            self._end(Api.DENIED if os.access(path, os.F_OK) else Api.ABSENT)
        except FileNotFoundError:
            self._end(Api.ABSENT)
        except OSError:
            self._end(Api.REFUSED)

    def fileno(self) -> int:
        """Give the descriptor to poll; -1 once done."""
        return self._socket.fileno()

    def read(self) -> None:
        """Take what has arrived."""
        try:
            while part := self._socket.recv(65536):
                self._answer += part
                if len(self._answer) > LARGEST:
                    break
        except BlockingIOError:
            return
        except OSError:
            self._end(Api.REFUSED)
            return
        good = self._answer.startswith(b"HTTP/1.") and self._answer[8:13] == b" 200 "
        self.took_s = time.monotonic() - self.begun_s if good else None
        denied = b"authorization denied by plugin" in self._answer  # dockerd's words
        self._end(Api.ANSWERS if good else Api.DENIED if denied else Api.SILENT)

    def give_up(self) -> None:
        """Count a listener that sent nothing in time as silent; a late answer is still read."""
        self.api = Api.SILENT

    def has_answer(self) -> bool:
        """Say whether the listener has sent anything by now, also an error or too late."""
        if not self._answer:
            with contextlib.suppress(OSError):  # nothing yet, or closed
                self._answer = self._socket.recv(1)
        return bool(self._answer)

    def close(self) -> None:
        """Take no answer any more."""
        self._socket.close()

    def body(self) -> bytes:
        """Give the answer without its headers."""
        return self._answer.partition(b"\r\n\r\n")[2]

    def _end(self, api: Api) -> None:
        self.api = self.api or api
        with contextlib.suppress(OSError):
            self._socket.close()
