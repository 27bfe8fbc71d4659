"""What a webhook gets, how it is addressed, and receivers and networks that are not well."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.agent.alerts.telling import (
    HOST,
    LOST,
    SLOW,
    firing,
    receiver,
    refusal,
    says,
    webhook,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable


def never(connection: socket.socket) -> None:
    connection.recv(1)


def repeats(head: bytes, piece: bytes, every_s: float = 0.05) -> Callable[[socket.socket], None]:
    """Send a head and then the same for ever."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(piece)
            time.sleep(every_s)

    return answer


MEGABYTE = b"x" * (1 << 20)
LARGE_BODY = repeats(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n", MEGABYTE, 0)
ENDLESS_HEAD = repeats(b"HTTP/1.1 200 OK\r\nX: ", MEGABYTE, 0)
SLOW_BODY = repeats(b"HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n")
DRIP = repeats(b"HTTP/1.1 200 O", b"K")
CONTINUES = repeats(b"", b"HTTP/1.1 100 Continue\r\n\r\n")


def test_receiver_that_does_not_listen_is_named_by_host_and_port_alone(tmp_path: Path) -> None:
    with receiver() as gone:
        port = gone.port
    url = f"http://user:hunter2@127.0.0.1:{port}/services/T0KEN?key=s3cret"
    error = refusal(webhook(tmp_path, url), firing(SLOW))
    assert error.reason == "refused"
    assert f"127.0.0.1:{port}: nobody listens there" in str(error)
    for secret in ("hunter2", "T0KEN", "s3cret"):
        assert secret not in f"{error} {error.fix} {error.output}"


def test_network_that_has_no_way_there_says_so_in_its_own_words(tmp_path: Path) -> None:
    error = refusal(webhook(tmp_path, "http://224.0.0.1:9/"), firing(SLOW))  # of multicast
    assert error.reason == "unreachable"
    assert "224.0.0.1:9: Network is unreachable" in str(error)


def test_token_comes_from_its_file_and_a_password_from_the_address(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("  t0ken\n")
    more = f'webhook_credentials_file = "{token}"'
    with receiver() as there:
        asyncio.run(webhook(tmp_path, there.url("/a?b=c"), more=more).send(firing(LOST, SLOW)))
        named = there.url().replace("127", "ada:pa%20ss@127", 1)
        asyncio.run(webhook(tmp_path, named).send(firing(SLOW)))
        heads = [head for head, _ in there.requests]
        document, _ = there.documents
    assert heads[0].startswith("POST /a?b=c HTTP/1.1\r\n")
    assert "Content-Type: application/json" in heads[0]
    assert [alert["labels"]["alertname"] for alert in document["alerts"]] == [LOST.name, SLOW.name]
    assert {alert["labels"]["instance"] for alert in document["alerts"]} == {HOST}
    assert "Authorization: Bearer t0ken" in heads[0].splitlines()
    basic = base64.b64encode(b"ada:pa ss").decode()
    assert f"Authorization: Basic {basic}" in heads[1].splitlines()


def test_proxies_of_the_environment_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver() as proxy, receiver() as there:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url())
        asyncio.run(webhook(tmp_path, there.url()).send(firing(SLOW)))
        assert (len(there.requests), proxy.requests) == (1, [])


@pytest.mark.parametrize(
    "answer",
    [says("202 Accepted"), says("204 No Content"), LARGE_BODY, SLOW_BODY],
    ids=["202", "204", "a body of a gigabyte", "a body without an end"],
)
def test_any_2xx_is_a_delivery_whatever_follows(
    answer: Callable[[socket.socket], None], tmp_path: Path
) -> None:
    with receiver(answer) as there:
        asyncio.run(webhook(tmp_path, there.url()).send(firing(SLOW)))
        assert len(there.requests) == 1


ECHO = b"\x1b[31msecret echo"


@pytest.mark.parametrize(
    ("answer", "reason", "words"),
    [
        (says("500 Internal Server Error", body=ECHO), "http_500", "answers 500"),
        (says("404 Not Found", body=ECHO), "http_404", "answers 404"),
        (says("401 Unauthorized", body=ECHO), "http_401", "it wants other credentials"),
        (lambda connection: connection.close(), "hung_up", "hung up"),
        (lambda c: c.sendall(b"SSH-2.0-OpenSSH_9.2\r\n"), "bad_reply", "no HTTP"),
        (ENDLESS_HEAD, "bad_reply", "no HTTP"),
    ],
    ids=["500", "404", "401", "hangs up", "garbage", "a head without an end"],
)
def test_what_is_not_2xx_is_a_failure_with_a_fix(
    answer: Callable[[socket.socket], None], reason: str, words: str, tmp_path: Path
) -> None:
    with receiver(answer) as there:
        error = refusal(webhook(tmp_path, there.url()), firing(SLOW))
    assert error.reason == reason
    assert words in str(error)
    assert error.fix
    assert "secret" not in str(error) + error.output


def test_redirect_is_reported_and_not_followed(tmp_path: Path) -> None:
    with receiver() as elsewhere:
        moved = says("307 Temporary Redirect", f"Location: {elsewhere.url()}")
        with receiver(moved) as there:
            error = refusal(webhook(tmp_path, there.url()), firing(SLOW))
        assert error.reason == "http_307"
        assert "not followed" in str(error)
        assert elsewhere.requests == []


@pytest.mark.parametrize("answer", [never, DRIP, CONTINUES], ids=["never", "drip", "continues"])
def test_one_deadline_ends_whatever_a_receiver_does(
    answer: Callable[[socket.socket], None], tmp_path: Path
) -> None:
    with receiver(answer) as there:
        error = refusal(webhook(tmp_path, there.url(), timeout_s=3.0), firing(SLOW))
        assert there.contacted.is_set()
    # A head of more than a hundred lines is none.
    assert error.reason in {"timed_out", "bad_reply"}


def secured(folder: Path) -> Callable[[socket.socket], socket.socket]:
    """Make a certificate of one's own, and give what speaks TLS with it."""
    key, certificate = folder / "key.pem", folder / "cert.pem"
    made = ["req", "-x509", "-nodes", "-days", "1", "-newkey", "ec"]
    made += ["-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=127.0.0.1"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key)]
    command = ["openssl", *made, "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(certificate, key)
    return lambda connection: own.wrap_socket(connection, server_side=True)


def test_certificate_that_nobody_trusts_is_refused_and_a_trusted_one_is_not(
    tmp_path: Path,
) -> None:
    with receiver(says("200 OK"), secured(tmp_path)) as there:
        url = there.url("/T0KEN").replace("http", "https", 1)
        error = refusal(webhook(tmp_path, url), firing(SLOW))
        assert error.reason == "tls_failed"
        assert "not trusted" in str(error)
        assert there.requests == []
        if os.geteuid() != 0:
            pytest.skip("the other half needs root: it trusts the certificate, in a namespace")
        script = f"""
        trusted={tmp_path}/trusted
        mkdir $trusted
        cp {tmp_path}/cert.pem $trusted/$(openssl x509 -hash -noout -in {tmp_path}/cert.pem).0
        mount --bind $trusted /etc/ssl/certs
        exec {sys.executable} {tmp_path}/script.py {tmp_path} {url}
        """
        (tmp_path / "script.py").write_text(TRUSTING)
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-ec", script],
            cwd=Path(__file__).resolve().parents[3],
            env={**os.environ, "PYTHONPATH": "."},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.split() == ["delivered"], done.stdout + done.stderr
        assert len(there.requests) == 1


TRUSTING = """
import asyncio, sys
from pathlib import Path
from tests.agent.alerts.telling import SLOW, firing, webhook
asyncio.run(webhook(Path(sys.argv[1]), sys.argv[2]).send(firing(SLOW)))
print("delivered")
"""
