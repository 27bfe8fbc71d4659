"""The webhook against receivers that do everything a receiver can do."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import ssl
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud.agent.alerts import webhook
from gpud.core.errors import DeliveryError
from gpud.core.message import Message
from tests.agent.alerts.telling import (
    HOST,
    LOST,
    OK,
    SLOW,
    context,
    ended,
    firing,
    hostile,
    only,
    receiver,
    refusal,
    says,
)
from tests.agent.ticking import ticking

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpud.agent.sink import Sink

LOOP_S = 0.25
"""A start of a process on a busy machine, and far below any deadline here."""
NONE_S = 30.0
"""Far beyond every deadline: who waits so long has waited for the receiver."""


def sink(folder: Path, url: str, *, timeout_s: float = 30.0, more: str = "") -> Sink:
    return only(
        "webhook", context(folder, f'webhook_urls = ["{url}"]\n{more}', timeout_s=timeout_s)
    )


def drip(connection: socket.socket) -> None:
    """Send a status line for ever, a byte at a time."""
    connection.sendall(b"HTTP/1.1 200 O")
    while True:
        connection.sendall(b"K")
        time.sleep(0.05)


def drip_headers(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X-More: 1\r\n")
        time.sleep(0.05)


def drip_continue(connection: socket.socket) -> None:
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


def test_a_receiver_gets_alertmanagers_document(tmp_path: Path) -> None:
    with receiver() as there:
        asyncio.run(sink(tmp_path, there.url("/a?b=c")).send(firing(LOST, SLOW)))
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
        asyncio.run(sink(tmp_path, there.url()).send(firing(SLOW)))
        assert len(there.requests) == 1


@pytest.mark.parametrize("answer", [gigabyte, slow_body])
def test_a_reply_without_end_is_a_delivery_and_is_not_listened_to(
    answer: Callable[[socket.socket], None], tmp_path: Path
) -> None:
    async def once() -> float:
        begun_s = time.monotonic()
        async with ticking() as gap:
            await sink(tmp_path, there.url(), timeout_s=NONE_S).send(firing(SLOW))
        assert gap.largest_s < LOOP_S
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
        error = refusal(sink(tmp_path, there.url()), firing(SLOW))
    assert (error.reason, error.again) == (f"http_{status[:3]}", again)
    assert error.fix
    assert "secret" not in str(error) + error.output


def test_a_redirect_is_told_and_not_followed(tmp_path: Path) -> None:
    with receiver() as elsewhere:
        moved = says("307 Temporary Redirect", f"Location: {elsewhere.url()}")
        with receiver(moved) as there:
            error = refusal(sink(tmp_path, there.url()), firing(SLOW))
        assert (error.reason, error.again) == ("http_307", False)
        assert "not followed" in str(error)
        assert elsewhere.requests == []


@pytest.mark.parametrize(
    "answer", [never, drip, drip_headers, drip_continue], ids=lambda answer: str(answer.__name__)
)
def test_one_deadline_ends_whatever_a_receiver_does(
    answer: Callable[[socket.socket], None], tmp_path: Path
) -> None:
    async def once() -> DeliveryError:
        async with ticking() as gap:
            begun_s = time.monotonic()
            with pytest.raises(DeliveryError) as caught:
                await sink(tmp_path, there.url(), timeout_s=1.0).send(firing(SLOW))
            took_s = time.monotonic() - begun_s
        assert gap.largest_s < LOOP_S
        assert took_s < 5.0
        return caught.value

    with receiver(answer) as there:
        error = asyncio.run(once())
    assert error.again
    assert error.reason in {"timed_out", "bad_reply"}  # a head of a hundred lines is none
    assert there.asked.is_set()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(hang_up, "hung_up"), (garbage, "bad_reply"), (gigabyte_of_head, "bad_reply")],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_what_is_no_http_is_said_to_be_none(
    answer: Callable[[socket.socket], None], reason: str, tmp_path: Path
) -> None:
    with receiver(answer) as there:
        error = refusal(sink(tmp_path, there.url()), firing(SLOW))
    assert (error.reason, error.again) == (reason, True)


def test_one_that_does_not_listen_is_named_by_host_and_port_alone(tmp_path: Path) -> None:
    with receiver() as gone:
        port = gone.port
    url = f"http://user:hunter2@127.0.0.1:{port}/services/T0KEN?key=s3cret"
    error = refusal(sink(tmp_path, url), firing(SLOW))
    assert error.reason == "refused"
    assert f"127.0.0.1:{port}" in str(error)
    for secret in ("hunter2", "T0KEN", "s3cret"):
        assert secret not in f"{error} {error.fix} {error.output}"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:99999/s3cret",
        "http://[::1/s3cret",
        "http://127.0.0.1:1/s3cret\\r\\nX-Evil: 1",
        "http://exa mple/s3cret",
    ],
)
def test_an_address_that_is_none_is_not_tried_again_and_not_quoted(
    url: str, tmp_path: Path
) -> None:
    error = refusal(sink(tmp_path, url), firing(SLOW))
    assert error.reason in {"bad_url", "refused", "no_such_host"}
    assert "s3cret" not in f"{error} {error.fix}"
    assert "webhook" in (error.fix or "")


def test_the_token_comes_from_its_file_and_a_password_from_the_address(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("  t0ken\n")
    more = f'webhook_credentials_file = "{token}"'
    with receiver() as there:
        asyncio.run(sink(tmp_path, there.url(), more=more).send(firing(SLOW)))
        named = there.url().replace("127", "ada:pa%20ss@127", 1)
        asyncio.run(sink(tmp_path, named).send(firing(SLOW)))
        heads = [head for head, _ in there.requests]
    assert "Authorization: Bearer t0ken" in heads[0].splitlines()
    basic = base64.b64encode(b"ada:pa ss").decode()
    assert f"Authorization: Basic {basic}" in heads[1].splitlines()


@pytest.mark.parametrize("content", [None, b"a\nb", b"\xff\xfe", "fifo"])
def test_without_a_token_nothing_is_sent_and_it_is_told_before_the_first_alert(
    content: bytes | str | None, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    if content == "fifo":
        os.mkfifo(token)
    elif isinstance(content, bytes):
        token.write_bytes(content)
    with receiver() as there:
        one = sink(tmp_path, there.url(), more=f'webhook_credentials_file = "{token}"')
        error = refusal(one, firing(SLOW))
        assert error.reason == "no_credentials"
        assert "webhook_credentials_file" in (error.fix or "")
        with pytest.raises(type(error)):
            asyncio.run(one.ready())
        assert there.requests == []


def test_a_certificate_that_nobody_trusts_is_refused(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
            ),
            *(
                "-nodes",
                "-days",
                "1",
                "-subj",
                "/CN=127.0.0.1",
                "-keyout",
                key,
                "-out",
                certificate,
            ),
        ],
        check=True,
        capture_output=True,
    )
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(certificate, key)
    heard = []

    def serve(connection: socket.socket) -> None:
        with own.wrap_socket(connection, server_side=True) as secured:
            heard.append(secured.recv(65536))

    with socket.create_server(("127.0.0.1", 0)) as listening:

        def once() -> None:
            connection, _ = listening.accept()
            try:
                serve(connection)
            except OSError:
                connection.close()

        thread = threading.Thread(target=once)
        thread.start()
        port = listening.getsockname()[1]
        error = refusal(sink(tmp_path, f"https://127.0.0.1:{port}/"), firing(SLOW))
        thread.join()
    assert error.reason == "tls_failed"
    assert "not trusted" in str(error)
    assert heard in ([], [b""])


def test_tls_with_one_that_speaks_none_fails_in_words(tmp_path: Path) -> None:
    def plain(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listening:

        def once() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(10)
                plain(connection)

        thread = threading.Thread(target=once)
        thread.start()
        port = listening.getsockname()[1]
        error = refusal(sink(tmp_path, f"https://127.0.0.1:{port}/"), firing(SLOW))
        thread.join()
    assert error.reason == "tls_failed"


def test_proxies_of_the_environment_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver() as proxy, receiver() as there:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url())
        asyncio.run(sink(tmp_path, there.url()).send(firing(SLOW)))
        assert (len(there.requests), proxy.requests) == (1, [])


@pytest.mark.parametrize("long", [False, True])
def test_hostile_text_arrives_as_harmless_text(*, long: bool, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with receiver() as there:
        asyncio.run(sink(tmp_path, there.url()).send(firing(hostile(mark, long=long))))
        [(_, body)] = there.requests
        [document] = there.documents
    assert len(body) < 200_000
    assert not mark.exists()
    for text in texts(document):
        assert not any(ord(letter) < 32 and letter not in "\n\t" for letter in text)
        assert "\x9b" not in text
        assert "\u202e" not in text
        text.encode()  # whole characters


def texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for one in pair for text in texts(one)]
    if isinstance(value, list):
        return [text for one in value for text in texts(one)]
    return [value] if isinstance(value, str) else []


def test_two_addresses_are_two_sinks(tmp_path: Path) -> None:
    with receiver() as there:
        urls = f'webhook_urls = ["{there.url("/1")}", "{there.url("/2")}"]'
        made = webhook.create(context(tmp_path, urls))
    assert [one.name for one in made] == ["webhook", "webhook_2"]


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
        print(error.reason, "looked up" in str(error), time.monotonic() - begun < 6)
asyncio.run(once())
assert silent.recv(512)
"""


def test_a_name_server_that_is_silent_is_waited_for_no_longer_than_for_anything(
    tmp_path: Path,
) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes a machine with a name server of its own")
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    (tmp_path / "nsswitch.conf").write_text("hosts: files dns\n")
    (tmp_path / "script.py").write_text(textwrap.dedent(SILENT_DNS))
    script = f"""
    ip link set lo up
    for name in resolv.conf nsswitch.conf; do
      [ -e /etc/$name ] || continue
      mount --bind {tmp_path}/$name $(readlink -f /etc/$name)
    done
    exec {sys.executable} {tmp_path}/script.py {tmp_path}
    """
    done = subprocess.run(
        ["unshare", "--mount", "--net", "sh", "-ec", script],
        cwd=Path(__file__).resolve().parents[3],
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["timed_out", "True", "True"], done.stdout + done.stderr


def test_what_ended_is_told_as_resolved(tmp_path: Path) -> None:
    over = ended(SLOW, SLOW.starts_s + 60)
    with receiver(OK) as there:
        asyncio.run(sink(tmp_path, there.url()).send(Message((), (over,), (), (over,))))
        [document] = there.documents
    assert document["status"] == "resolved"
    assert document["alerts"][0]["endsAt"] == "2026-09-21T14:14:20Z"
