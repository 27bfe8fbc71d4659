"""One message over HTTP or through Apprise, in a process of its own: `python -I -m`.

A job comes as JSON on stdin: ``kind``, ``url`` and ``timeout_s``; ``body`` and ``token_file`` of a
webhook; ``title``, ``body`` and ``severity`` of Apprise. One line of JSON goes out:
``{"status": 200}``, or ``reason`` and ``detail``. The process that started it kills it at the
deadline, wherever it then waits: names are looked up by libc, which has no deadline.
"""

from __future__ import annotations

import base64
import http.client
import json
import signal
import socket
import ssl
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import gpud
from gpud.core.errors import DeliveryError

FAILURES: Final = (
    (socket.gaierror, "no_such_host", "its name is not known"),
    (TimeoutError, "timed_out", "it does not answer in time"),
    (ConnectionRefusedError, "refused", "nobody listens there"),
    (ConnectionError, "hung_up", "it hung up without an answer"),
    ((http.client.InvalidURL, ValueError), "bad_url", "the address cannot be used as it is"),
    (http.client.HTTPException, "bad_reply", "the answer is no HTTP"),
)
"""Errors of a request, the first that matches counts."""


def main() -> int:
    """Do the job on stdin and report the result; the exit code is 0 whenever there is one."""
    job = json.load(sys.stdin.buffer)
    signal.alarm(int(job["timeout_s"]) + 2)  # nobody may be left to end it
    result: dict[str, Any]
    try:
        result = {"status": notify(job) if job["kind"] == "apprise" else post(job)}
    except DeliveryError as refused:
        result = {"reason": refused.reason, "detail": str(refused)}
    print(json.dumps(result), flush=True)
    return 0


def post(job: dict[str, Any]) -> int:
    """Post ``body`` and return the status of the answer, of which no more is read.

    No proxy and no redirect is followed, and no variable of the environment counts. Errors:
    ``DeliveryError``.
    """
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"gpud/{gpud.__version__}",
        "Connection": "close",
    }
    token = _token(job["token_file"]) if job["token_file"] else None
    try:
        address = urlsplit(job["url"])
        if authorization := _authorization(address.username, address.password, token):
            headers["Authorization"] = authorization
        target = f"{address.path or '/'}{'?' if address.query else ''}{address.query}"
        kind: type[http.client.HTTPConnection] = http.client.HTTPConnection
        if address.scheme == "https":
            kind = http.client.HTTPSConnection  # which checks the certificate
        connection = kind(address.hostname or "", address.port, timeout=job["timeout_s"])
        connection.request("POST", target, job["body"].encode(), headers)
        return connection.getresponse().status
    except ssl.SSLError as error:
        words = f"no TLS with it: {error.reason or type(error).__name__}"
        if isinstance(error, ssl.SSLCertVerificationError):
            words = f"its certificate is not trusted: {error.verify_message}"
        raise DeliveryError(words, reason="tls_failed") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        for failure, reason, words in FAILURES:
            if isinstance(error, failure):
                raise DeliveryError(words, reason=reason) from error
        words = getattr(error, "strerror", None) or type(error).__name__
        raise DeliveryError(words, reason="unreachable") from error


def notify(job: dict[str, Any]) -> int:
    """Send ``title`` and ``body`` through Apprise. Errors: ``DeliveryError``.

    Only this function imports it: it brings 170 services, 0.4 s and 40 MB. What a service answers
    is not passed on: it may quote the address.
    """
    try:
        import apprise
    except ImportError:
        raise DeliveryError("Apprise is not installed", reason="no_apprise") from None
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
        raise DeliveryError("Apprise knows no service for this address", reason="bad_url")
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
        raise DeliveryError("the service did not take it", reason="not_taken")
    return http.client.OK


def _authorization(user: str | None, password: str | None, token: str | None) -> str | None:
    if token is not None:
        return f"Bearer {token}"
    if user is None and password is None:
        return None
    pair = f"{unquote(user or '')}:{unquote(password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _token(path: str) -> str:
    try:
        token = Path(path).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DeliveryError(f"{path} cannot be read: {error}", reason="no_credentials") from error
    if not token or not token.isprintable():
        raise DeliveryError(f"{path} has no token on one line", reason="no_credentials")
    return token


if __name__ == "__main__":
    sys.exit(main())
