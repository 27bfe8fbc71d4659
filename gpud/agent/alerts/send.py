"""One message over HTTP or through Apprise, in a process of its own: `python -I -m`.

A job comes as JSON on stdin: ``kind``, ``url``, ``timeout_s``, ``check_only`` where nothing is to
be sent; ``body`` and ``token_file`` of a webhook; ``title``, ``body`` and ``severity`` of Apprise.
Lines of JSON go out: ``{"stage": ...}`` as it gets on, and at last ``{"status": 200}``, or
``reason`` and ``detail``. Whoever started it kills it at the deadline, wherever it then waits:
names are looked up by libc, which knows no deadline.
"""

from __future__ import annotations

import base64
import contextlib
import http
import http.client
import json
import os
import signal
import socket
import ssl
import stat
import sys
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import gpud

LARGEST_REPLY: Final = 64 << 10
REPLY_S: Final = 1.0
"""The status is all that counts; a first part of the reply is read so that no server complains."""
LARGEST_TOKEN: Final = 16 << 10
TROUBLES: Final = (
    (socket.gaierror, "no_such_host", "its name is not known"),
    (TimeoutError, "timed_out", "it does not answer in time"),
    (ConnectionRefusedError, "refused", "nobody listens there"),
    (ConnectionResetError, "hung_up", "it hung up without an answer"),
    (BrokenPipeError, "hung_up", "it hung up without an answer"),
)


class Refused(Exception):  # noqa: N818  # reads as the fact it states
    """The job failed; says why, in a slug and in words without secrets."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def main() -> int:
    """Do the job on stdin and report the result; the exit code is 0 whenever there is one."""
    job = json.load(sys.stdin.buffer)
    signal.alarm(int(job["timeout_s"]) + 2)  # nobody may be left to end it
    try:
        status = notify(job) if job["kind"] == "apprise" else post(job)
        _report({"status": status})
    except Refused as refused:
        _report({"reason": refused.reason, "detail": str(refused)})
    return 0


def post(job: dict[str, Any]) -> int:
    """Post ``body`` and return the status of the answer. Errors: ``Refused``.

    No proxy and no redirect is followed, and no variable of the environment counts.
    """
    if job.get("check_only"):
        _token(job["token_file"])
        return http.HTTPStatus.OK
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
    target = f"{address.path or '/'}{'?' if address.query else ''}{address.query}"
    try:
        connection = _connected(address.scheme, host, port, job["timeout_s"])
        _report({"stage": "for an answer"})
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
    with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        if connection.sock is not None:
            connection.sock.settimeout(REPLY_S)
        response.read1(LARGEST_REPLY)
    return response.status


def notify(job: dict[str, Any]) -> int:
    """Send ``title`` and ``body`` through Apprise. Errors: ``Refused``.

    Only this function imports it: it brings 170 services, 0.4 s and 40 MB. What a service answers
    is not passed on: it may quote the address.
    """
    try:
        import apprise
    except ImportError:
        raise Refused("no_apprise", "Apprise is not installed") from None
    import logging

    logging.disable(logging.CRITICAL)
    asset = apprise.AppriseAsset(
        app_id="gpud",
        app_desc="gpud",
        async_mode=False,
        interpret_escapes=False,
        interpret_emojis=False,
        secure_logging=True,
    )
    service = apprise.Apprise(asset=asset)
    if not service.add(job["url"]):
        raise Refused("bad_url", "Apprise knows no service for this address")
    if job.get("check_only"):
        return http.HTTPStatus.OK
    _report({"stage": "for the service"})
    kinds = {
        "critical": apprise.NotifyType.FAILURE,
        "warning": apprise.NotifyType.WARNING,
        "resolved": apprise.NotifyType.SUCCESS,
    }
    delivered = service.notify(
        title=job["title"],
        body=job["body"],
        body_format=apprise.NotifyFormat.TEXT,
        notify_type=kinds.get(job["severity"], apprise.NotifyType.INFO),
    )
    if not delivered:
        raise Refused("not_taken", "the service did not take it")
    return http.HTTPStatus.OK


def _connected(
    scheme: str, host: str, port: int | None, timeout_s: float
) -> http.client.HTTPConnection:
    _report({"stage": "for the host's name to be looked up and a connection"})
    connection: http.client.HTTPConnection
    if scheme == "https":
        trusted = ssl.create_default_context()
        connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=trusted)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    connection.connect()
    return connection


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


def _report(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(main())
