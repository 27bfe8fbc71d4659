"""One HTTP request and its answer's status, in a process of its own: `python -I -m`.

A job comes as JSON on stdin: ``url``, ``body``, ``token_file``, ``timeout_s``; ``only_look`` where
nothing is to be sent. Lines of JSON go out: ``{"stage": ...}`` as it gets on, and at last
``{"status": 200}``, or ``reason`` and ``detail``.
Whoever started it ends it at the deadline, wherever it then waits: names are looked up by libc,
which knows no deadline. No proxy and no redirect is followed, and no variable is heard.
"""

from __future__ import annotations

import base64
import http
import http.client
import json
import os
import signal
import socket
import ssl
import stat
import sys
import time
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import gpud

LARGEST_REPLY: Final = 64 << 10
REPLY_S: Final = 1.0
"""The status is all there is to know; the rest of a reply is taken so that no server complains."""
LARGEST_TOKEN: Final = 16 << 10
TROUBLES: Final = (
    (socket.gaierror, "no_such_host", "its name is not known"),
    (TimeoutError, "timed_out", "it does not answer in time"),
    (ConnectionRefusedError, "refused", "nobody listens there"),
    (ConnectionResetError, "hung_up", "it hung up without an answer"),
    (BrokenPipeError, "hung_up", "it hung up without an answer"),
)


class Refused(Exception):  # noqa: N818  # reads as the fact it states
    """The request ended without a status; says why, in a slug and in words without secrets."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def main() -> int:
    """Do the job on stdin and say how it went; the exit code is 0 whenever that was said."""
    job = json.load(sys.stdin.buffer)
    signal.alarm(int(job["timeout_s"]) + 2)  # nobody may be left to end it
    try:
        said: dict[str, Any] = {"status": looked(job) if job.get("only_look") else posted(job)}
    except Refused as refused:
        said = {"reason": refused.reason, "detail": str(refused)}
    _say(said)
    return 0


def looked(job: dict[str, Any]) -> int:
    """Read the token and send nothing; gives the status of no fault. ``Errors: Refused``."""
    _token(job["token_file"])
    return http.HTTPStatus.OK


def posted(job: dict[str, Any]) -> int:
    """Send the request and give the status of the answer. ``Errors: Refused``."""
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"gpud/{gpud.__version__}",
        "Connection": "close",
    }
    try:
        address = urlsplit(job["url"])
        host, port = address.hostname, address.port
    except ValueError as error:
        raise Refused("bad_url", "the address cannot be read") from error
    if not host:
        raise Refused("bad_url", "the address names no host")
    if authorization := _authorization(address.username, address.password, job["token_file"]):
        headers["Authorization"] = authorization
    target = address.path or "/"
    if address.query:
        target += f"?{address.query}"
    try:
        connection = _connected(address.scheme, host, port, job["timeout_s"])
        _say({"stage": "for an answer"})
        connection.request("POST", target, job["body"].encode(), headers)
        response = connection.getresponse()
    except OSError as error:
        raise _translated(error) from error
    except http.client.InvalidURL as error:
        raise Refused("bad_url", "the address has characters that no address has") from error
    except (UnicodeError, ValueError) as error:
        raise Refused("bad_url", "the address or the token cannot be sent as it is") from error
    except http.client.HTTPException as error:
        raise Refused("bad_reply", f"the answer is no HTTP: {type(error).__name__}") from error
    _let_go(connection, response)
    return response.status


def _connected(
    scheme: str, host: str, port: int | None, timeout_s: float
) -> http.client.HTTPConnection:
    _say({"stage": "for the host's name to be looked up and a connection"})
    connection: http.client.HTTPConnection
    if scheme == "https":
        trusted = ssl.create_default_context()
        connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=trusted)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    connection.connect()
    return connection


def _let_go(connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
    ends_s = time.monotonic() + REPLY_S
    left = LARGEST_REPLY
    try:
        while left > 0 and (left_s := ends_s - time.monotonic()) > 0:
            if connection.sock is not None:
                connection.sock.settimeout(left_s)
            chunk = response.read1(min(left, 8192))
            if not chunk:
                break
            left -= len(chunk)
    except (OSError, ValueError, http.client.HTTPException):
        pass  # it has been answered
    connection.close()


def _authorization(user: str | None, password: str | None, token_file: str) -> str | None:
    if token_file:
        return f"Bearer {_token(token_file)}"
    if user is None and password is None:
        return None
    pair = f"{unquote(user or '')}:{unquote(password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _token(path: str) -> str:
    """Read it, from a plain file only: a pipe would wait for its other end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123  # of a descriptor
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Refused("no_credentials", f"{path} is no plain file")
            token = file.read(LARGEST_TOKEN).decode("ascii").strip()
    except OSError as error:
        raise Refused("no_credentials", f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Refused("no_credentials", f"{path} holds no token: it is not ASCII") from error
    if not token or not token.isprintable():
        raise Refused("no_credentials", f"{path} holds no token on one line")
    return token


def _translated(error: OSError) -> Refused:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Refused("tls_failed", f"its certificate is not trusted: {error.verify_message}")
    if isinstance(error, ssl.SSLError):
        return Refused("tls_failed", f"no TLS with it: {error.reason or type(error).__name__}")
    for kind, reason, words in TROUBLES:
        if isinstance(error, kind):
            return Refused(reason, words)
    return Refused("unreachable", error.strerror or type(error).__name__)


def _say(said: dict[str, Any]) -> None:
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    sys.exit(main())
