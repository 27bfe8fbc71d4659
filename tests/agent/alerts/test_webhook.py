"""What a webhook gets, how it is addressed, and receivers and networks that are not well."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud.agent.alerts.sinks import webhook as plugin
from gpud.core.errors import DeliveryError
from tests.agent.alerts.telling import (
    HOST,
    LOST,
    SLOW,
    context,
    firing,
    receiver,
    refusal,
    says,
    webhook,
)
from tests.agent.measure.ticking import HELD_UP_S, ticking

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from tests.agent.alerts.telling import Receiver

NONE_S = 30.0
"""Far beyond every deadline: who waits so long has waited for the receiver."""


def drip(connection: socket.socket) -> None:
    """Send a status line for ever, a byte at a time."""
    connection.sendall(b"HTTP/1.1 200 O")
    while True:
        connection.sendall(b"K")
        time.sleep(0.05)


def continues(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(0.05)


def never(connection: socket.socket) -> None:
    connection.recv(1)


def hang_up(connection: socket.socket) -> None:
    connection.close()


def garbage(connection: socket.socket) -> None:
    connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")


def gigabyte(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
    chunk = b"x" * (1 << 20)
    for _ in range(1024):
        connection.sendall(chunk)


def gigabyte_of_head(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    chunk = b"x" * (1 << 20)
    for _ in range(1024):
        connection.sendall(chunk)


def slow_body(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"1\r\nx\r\n")
        time.sleep(0.05)


def test_receiver_gets_alertmanagers_document(tmp_path: Path) -> None:
    with receiver() as there:
        asyncio.run(webhook(tmp_path, there.url("/a?b=c")).send(firing(LOST, SLOW)))
        [(head, _)] = there.requests
        [document] = there.documents
    assert head.startswith("POST /a?b=c HTTP/1.1\r\n")
    assert "Content-Type: application/json" in head
    assert document["status"] == "firing"
    assert [alert["labels"]["alertname"] for alert in document["alerts"]] == [LOST.name, SLOW.name]
    assert {alert["labels"]["instance"] for alert in document["alerts"]} == {HOST}


@pytest.mark.parametrize("status", ["202 Accepted", "204 No Content"])
def test_any_2xx_is_a_delivery(status: str, tmp_path: Path) -> None:
    with receiver(says(status)) as there:
        asyncio.run(webhook(tmp_path, there.url()).send(firing(SLOW)))
        assert len(there.requests) == 1


def test_receiver_that_does_not_listen_is_named_by_host_and_port_alone(tmp_path: Path) -> None:
    with receiver() as gone:
        port = gone.port
    url = f"http://user:hunter2@127.0.0.1:{port}/services/T0KEN?key=s3cret"
    error = refusal(webhook(tmp_path, url), firing(SLOW))
    assert error.reason == "refused"
    assert f"127.0.0.1:{port}" in str(error)
    for secret in ("hunter2", "T0KEN", "s3cret"):
        assert secret not in f"{error} {error.fix} {error.output}"


@pytest.mark.parametrize(
    "url",
    ["http://a..b/s3cret", f"http://{'a' * 300}/s3cret", "http://127.0.0.1:1/s3cret/\u00e9"],
)
def test_address_that_is_none_is_not_tried_again_and_not_quoted(url: str, tmp_path: Path) -> None:
    error = refusal(webhook(tmp_path, url), firing(SLOW))
    assert error.reason in {"bad_url", "refused", "no_such_host"}
    assert "s3cret" not in f"{error} {error.fix}"
    assert "webhook" in (error.fix or "")


def test_token_comes_from_its_file_and_a_password_from_the_address(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("  t0ken\n")
    more = f'webhook_credentials_file = "{token}"'
    with receiver() as there:
        asyncio.run(webhook(tmp_path, there.url(), more=more).send(firing(SLOW)))
        named = there.url().replace("127", "ada:pa%20ss@127", 1)
        asyncio.run(webhook(tmp_path, named).send(firing(SLOW)))
        heads = [head for head, _ in there.requests]
    assert "Authorization: Bearer t0ken" in heads[0].splitlines()
    basic = base64.b64encode(b"ada:pa ss").decode()
    assert f"Authorization: Basic {basic}" in heads[1].splitlines()


@pytest.mark.parametrize("content", [None, b"a\nb", b"\xff\xfe", "fifo"])
def test_without_a_token_nothing_is_sent(content: bytes | str | None, tmp_path: Path) -> None:
    token = tmp_path / "token"
    if content == "fifo":
        os.mkfifo(token)
    elif isinstance(content, bytes):
        token.write_bytes(content)
    with receiver() as there:
        sink = webhook(tmp_path, there.url(), more=f'webhook_credentials_file = "{token}"')
        error = refusal(sink, firing(SLOW))
        assert error.reason == "no_credentials"
        assert "webhook_credentials_file" in (error.fix or "")
        assert there.requests == []


def test_proxies_of_the_environment_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver() as proxy, receiver() as there:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url())
        asyncio.run(webhook(tmp_path, there.url()).send(firing(SLOW)))
        assert (len(there.requests), proxy.requests) == (1, [])


def test_two_addresses_are_two_sinks(tmp_path: Path) -> None:
    with receiver() as there:
        urls = f'webhook_urls = ["{there.url("/1")}", "{there.url("/2")}"]'
        made = plugin.create(context(tmp_path, urls))
    assert [sink.name for sink in made] == ["webhook", "webhook_2"]


@pytest.mark.parametrize("answer", [gigabyte, slow_body])
def test_reply_without_end_is_a_delivery_and_is_not_listened_to(
    answer: Callable[[socket.socket], None], tmp_path: Path
) -> None:
    async def once() -> float:
        begun_s = time.monotonic()
        async with ticking() as gap:
            await webhook(tmp_path, there.url(), timeout_s=NONE_S).send(firing(SLOW))
        assert gap.largest_s < HELD_UP_S
        return time.monotonic() - begun_s

    with receiver(answer) as there:
        assert asyncio.run(once()) < NONE_S / 2


@pytest.mark.parametrize(
    ("status", "again"),
    [
        ("500 Internal Server Error", True),
        ("429 Too Many Requests", True),
        ("401 Unauthorized", False),
        ("404 Not Found", False),
    ],
)
def test_what_is_not_2xx_is_a_failure_that_is_repeated_or_not(
    status: str, *, again: bool, tmp_path: Path
) -> None:
    with receiver(says(status, body=b"\x1b[31msecret echo")) as there:
        error = refusal(webhook(tmp_path, there.url()), firing(SLOW))
    assert (error.reason, error.again) == (f"http_{status[:3]}", again)
    assert error.fix
    assert "secret" not in str(error) + error.output


def test_redirect_is_reported_and_not_followed(tmp_path: Path) -> None:
    with receiver() as elsewhere:
        moved = says("307 Temporary Redirect", f"Location: {elsewhere.url()}")
        with receiver(moved) as there:
            error = refusal(webhook(tmp_path, there.url()), firing(SLOW))
        assert (error.reason, error.again) == ("http_307", False)
        assert "not followed" in str(error)
        assert elsewhere.requests == []


def test_one_deadline_ends_whatever_a_receiver_does(tmp_path: Path) -> None:
    async def once(there: Receiver) -> DeliveryError:
        with pytest.raises(DeliveryError) as caught:
            await webhook(tmp_path, there.url(), timeout_s=1.5).send(firing(SLOW))
        return caught.value

    async def at_once(there: list[Receiver]) -> list[DeliveryError]:
        begun_s = time.monotonic()
        async with ticking() as gap:
            errors = await asyncio.gather(*map(once, there))
        assert gap.largest_s < HELD_UP_S
        assert time.monotonic() - begun_s < 6.0
        return errors

    with ExitStack() as stack:
        answers = (never, drip, continues)
        there = [stack.enter_context(receiver(answer)) for answer in answers]
        errors = asyncio.run(at_once(there))
        assert all(made.contacted.is_set() for made in there)
    assert all(error.again for error in errors)
    # A head of more than a hundred lines is none.
    assert {error.reason for error in errors} <= {"timed_out", "bad_reply"}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(hang_up, "hung_up"), (garbage, "bad_reply"), (gigabyte_of_head, "bad_reply")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_answer_that_is_no_http_is_a_failure(
    answer: Callable[[socket.socket], None], reason: str, tmp_path: Path
) -> None:
    with receiver(answer) as there:
        error = refusal(webhook(tmp_path, there.url()), firing(SLOW))
    assert (error.reason, error.again) == (reason, True)


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
        assert (error.reason, error.again) == ("tls_failed", True)
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
        done = in_namespace("--mount", script)
        assert done.stdout.split() == ["delivered"], done.stdout + done.stderr
        assert len(there.requests) == 1


TRUSTING = """
import asyncio, sys
from pathlib import Path
from tests.agent.alerts.telling import SLOW, firing, webhook
asyncio.run(webhook(Path(sys.argv[1]), sys.argv[2]).send(firing(SLOW)))
print("delivered")
"""
SILENT_DNS = """
import asyncio, socket, sys, time
from pathlib import Path
from tests.agent.alerts.telling import SLOW, firing, context, only
from gpud.core.errors import DeliveryError
silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
silent.bind(("127.0.0.1", 53))
settings = context(Path(sys.argv[1]), 'webhook_urls = ["http://hook.test/"]', timeout_s=1.5)
sink = only("webhook", settings)
async def once():
    begun = time.monotonic()
    try:
        await sink.send(firing(SLOW))
    except DeliveryError as error:
        print(error.reason, "no answer" in str(error), time.monotonic() - begun < 6)
asyncio.run(once())
assert silent.recv(512)
"""


def test_name_server_that_is_silent_is_waited_for_no_longer_than_for_anything(
    tmp_path: Path,
) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes a machine with a name server of its own")
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    (tmp_path / "nsswitch.conf").write_text("hosts: files dns\n")
    (tmp_path / "script.py").write_text(SILENT_DNS)
    script = f"""
    ip link set lo up
    for name in resolv.conf nsswitch.conf; do
      [ -e /etc/$name ] || continue
      mount --bind {tmp_path}/$name $(readlink -f /etc/$name)
    done
    exec {sys.executable} {tmp_path}/script.py {tmp_path}
    """
    done = in_namespace("--mount --net", script)
    assert done.stdout.split() == ["timed_out", "True", "True"], done.stdout + done.stderr


def in_namespace(which: str, script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script in namespaces of its own, beside this checkout."""
    return subprocess.run(
        ["unshare", *which.split(), "sh", "-ec", script],
        cwd=Path(__file__).resolve().parents[3],
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=False,
    )
