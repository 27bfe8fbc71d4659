"""Requests that nobody who means well sends, byte by byte: what is answered, and what is not."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import pytest

from gpud.agent.serve.http import access, service
from gpud.agent.serve.refusals import ANSWERS, Refused
from tests.agent.serve.http.armed import HASHED, PASSPHRASE, Armed, armed, basic
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import Receive, Scope, Send


@pytest.fixture(scope="module")
def plain() -> Iterator[Armed]:
    with armed() as made:
        yield made


SMUGGLED = (
    b"GET / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n"
    b"0\r\n\r\nGET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n"
)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"x: y\r\n" * 65 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 20_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"x: " + b"y" * 40_000, 431),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\n\r\n", 421),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: evil.example\r\n\r\n", 421),
        (b"GET / HTTP/1.1\r\nhost: localhost.evil.example:9945\r\n\r\n", 421),
        (b"GET http://evil.example/ HTTP/1.1\r\nhost: localhost\r\n\r\n", 400),
        (b"GET http://localhost/ HTTP/1.1\r\nhost: evil.example\r\n\r\n", 400),
        (b"CONNECT localhost:22 HTTP/1.1\r\nhost: localhost\r\n\r\n", 400),
        (b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\nhello", 413),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0, 5\r\n\r\nhello", 400),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (SMUGGLED, 400),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding : chunked\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\n folded\r\n\r\n", 421),
        (b"GET  / HTTP/1.1\r\nhost: localhost\r\n\r\n", 400),
        (b"\x00\x01\x02\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"POST /metrics HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n", 405),
        (b"DELETE / HTTP/1.1\r\nhost: localhost\r\n\r\n", 405),
    ],
)  # fmt: skip
def test_what_is_no_request_of_ours_is_refused_with_all_headers(
    plain: Armed, request_bytes: bytes, status: int
) -> None:
    before_s = int(time.time())
    answer = plain.raw(request_bytes)
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    (date,) = (line.removeprefix(b"date: ") for line in lines if line.startswith(b"date: "))
    assert before_s <= parsedate_to_datetime(date.decode()).timestamp() <= time.time()
    assert int(lines[0].split(b" ")[1]) == status
    assert b"gpud_" not in body
    assert b"HTTP/1.1" not in body  # one answer, whatever was smuggled behind it
    for name, _ in access.HEADERS:
        assert any(line.startswith(name + b": ") for line in lines), name
    assert status != 405 or {b"allow: get, head", b"allow: head, get"} & set(lines)
    assert plain.scrape() == 200


PATHS = (
    "/static/../../../../etc/passwd",
    "/static/..%2f..%2f..%2fetc%2fpasswd",
    "/static/%252e%252e%252fetc%252fpasswd",
    "/static/..\\..\\etc\\passwd",
    "/static//etc/passwd",
    "/static/main.js%00.css",
    "/static/",
    "/static/vendor/../../app.py",
    "//etc/passwd",
    "/%2e%2e/%2e%2e/etc/passwd",
    "/runbooks/..%2f..%2f..%2fetc%2fpasswd",
    "/runbooks/%2fetc%2fpasswd",
    "/runbooks/%00",
    "/api/v1/%2e%2e/%2e%2e/etc/passwd",
)


def test_no_path_leaves_what_is_served(plain: Armed) -> None:
    for path in PATHS:
        answer = plain.raw(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 400")), path
        assert b"root:" not in answer
        assert b"import " not in answer


STATUS = b"GET /api/v1/status HTTP/1.1\r\n"
HOST = b"host: localhost\r\n"
AT_THE_DOOR = {
    Refused.BAD_REQUEST: STATUS + HOST + HOST + b"\r\n",
    Refused.UNAUTHORIZED: STATUS + HOST + b"\r\n",
    Refused.FOREIGN_PAGE: STATUS + HOST + b"origin: http://evil.example\r\n\r\n",
    Refused.BODY_TOO_LARGE: STATUS + HOST + b"content-length: 5\r\n\r\nhello",
    Refused.TARGET_TOO_LONG: STATUS.replace(b"status", b"probes?" + b"a" * 9000) + HOST + b"\r\n",
    Refused.FOREIGN_HOST: STATUS + b"host: evil.example\r\n\r\n",
    Refused.HEADERS_TOO_LARGE: STATUS + HOST + b"x: " + b"y" * 40_000,
}


def test_every_refusal_is_counted_by_its_reason_which_a_program_reads(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The API answers in JSON, everything else in a line, and a HEAD has the head alone."""
    with armed(f'basic_auth_users = {{ alice = "{HASHED}" }}') as listener:
        for reason, request in AT_THE_DOOR.items():
            answer = ANSWERS[reason]
            head, _, body = listener.raw(request).partition(b"\r\n\r\n")
            assert b"content-type: application/json\r\n" in head + b"\r\n"
            assert int(head.split(b" ")[1]) == answer.status
            assert json.loads(body)["error"] == {
                "reason": reason.value,
                "detail": answer.detail,
                "fix": answer.fix,
                "parameter": None,
            }
            line = listener.raw(request.replace(b"/api/v1/", b"/apis/v1/"))
            assert line.partition(b"\r\n\r\n")[2].decode() == f"{answer.detail}; {answer.fix}\n"
            head, _, body = listener.raw(request.replace(b"GET ", b"HEAD ")).partition(b"\r\n\r\n")
            assert (int(head.split(b" ")[1]), body) == (answer.status, b"")
        expected = Counter(dict.fromkeys(AT_THE_DOOR, 3))
        until(lambda: listener.turned_away == expected, "all of them counted")
        allowed = f"authorization: {basic('alice', PASSPHRASE)}\r\n\r\n"
        listener.raw(STATUS + HOST + allowed.encode())
        listener.raw(AT_THE_DOOR[Refused.UNAUTHORIZED])
        expected[Refused.UNAUTHORIZED] += 1
        until(lambda: listener.turned_away == expected, "the next one alone")
    assert caplog.text == ""  # a traceback for each would fill the log


def test_a_page_of_somebody_else_is_given_nothing(plain: Armed) -> None:
    def status_of(*lines: str) -> int:
        text = "".join(f"{line}\r\n" for line in lines)
        answer = plain.raw(f"GET /api/v1/status HTTP/1.1\r\nhost: localhost\r\n{text}\r\n".encode())
        return int(answer.split(b" ")[1])

    assert status_of("sec-fetch-site: same-origin", "sec-fetch-mode: cors") == 200
    assert (
        status_of("sec-fetch-site: none", "sec-fetch-mode: navigate", "sec-fetch-dest: document")
        == 200
    )
    link = ("sec-fetch-site: cross-site", "sec-fetch-mode: navigate", "sec-fetch-dest: document")
    assert status_of(*link) == 200
    assert status_of("origin: http://localhost") == 200
    for hostile in (
        ("sec-fetch-site: cross-site", "sec-fetch-mode: no-cors", "sec-fetch-dest: script"),
        ("sec-fetch-site: same-site", "sec-fetch-mode: cors", "sec-fetch-dest: empty"),
        ("sec-fetch-site: cross-site", "sec-fetch-mode: navigate", "sec-fetch-dest: iframe"),
        ("origin: http://evil.example",),
        ("origin: http://localhost:3000",),
        ("origin: null",),
    ):
        assert status_of(*hostile) == 403


def test_request_that_the_agents_end_cancels_is_no_error_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    status_of, stop = asyncio.Event(), asyncio.Event()

    async def silent(scope: Scope, receive: Receive, send: Send) -> None:
        status_of.set()
        await asyncio.Event().wait()

    async def story() -> None:
        with service.bind("127.0.0.1", 0) as listener:
            serving = asyncio.create_task(service.serve(silent, listener, stop))
            _, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await asyncio.wait_for(status_of.wait(), 30)
            stop.set()
            await asyncio.wait_for(serving, 30)
            writer.close()

    asyncio.run(story())
    assert [record.exc_text or record.exc_info for record in caplog.records] == []
