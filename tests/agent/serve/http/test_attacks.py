"""Attacks on the listener: during and after each of them a scrape is answered."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import socket
import threading
from typing import TYPE_CHECKING

import pytest
from starlette.responses import Response
from starlette.routing import Route

from gpud.agent.serve.http.connection import MOST_UNSENT, Connection, ConnectionLimits
from gpud.agent.serve.refusals import Refused
from tests.agent.serve.http.armed import Armed, armed, authority, client
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

    from starlette.requests import Request

TCP_ESTABLISHED = 1
HEALTHY = b"GET /-/healthy HTTP/1.1\r\nhost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def plain() -> Iterator[Armed]:
    with armed() as made:
        yield made


@pytest.fixture(scope="module")
def server_tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ssl.SSLContext]:
    """Settings with a certificate, and a client that trusts it."""
    signer = authority(tmp_path_factory.mktemp("tls"))
    made = signer.signed("server")
    key = made.with_suffix(".key")
    text = f'tls_server_config = {{ cert_file = "{made}", key_file = "{key}" }}\n'
    return text, client(signer.certificate)


@pytest.fixture(scope="module")
def secure(server_tls: tuple[str, ssl.SSLContext]) -> Iterator[Armed]:
    with armed(*server_tls) as made:
        yield made


def answers(listener: Armed) -> None:
    assert listener.scrape() == 200


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # names, not paths


def let_go(listener: Armed, before: int) -> None:
    for kept in listener.kept:
        kept.close()
    listener.kept.clear()
    until(lambda: descriptors() <= before, "the descriptors of before")


@pytest.mark.parametrize(
    ("name", "sent"),
    [("plain", b""), ("plain", b"GET / HTTP/1.1\r\nhost: localhost\r\nx: "), ("secure", b"")],
)
def test_a_thousand_silent_connections_turn_nobody_away(
    request: pytest.FixtureRequest, name: str, sent: bytes
) -> None:
    listener: Armed = request.getfixturevalue(name)
    answers(listener)
    before = descriptors()
    for _ in range(10):
        listener.keep(100, sent, tls=False)
        answers(listener)
    let_go(listener, before)


def test_three_hundred_new_connections_a_second_keep_no_scraper_out(plain: Armed) -> None:
    before = descriptors()
    for _ in range(10):
        plain.keep(60, HEALTHY)
        with plain.connect() as scraper:
            plain.keep(60, HEALTHY)  # others come before it has asked
            scraper.settimeout(30)
            scraper.sendall(HEALTHY)
            assert scraper.recv(65536).startswith(b"HTTP/1.1 200 ")
    let_go(plain, before)


def test_connection_idle_for_longest_makes_room() -> None:
    begun = threading.Event()

    async def long(request: Request) -> Response:
        begun.set()
        while (await request.receive())["type"] != "http.disconnect":
            pass
        return Response()

    limits = ConnectionLimits(connections=16)
    with armed(limits=limits, more=[Route("/long", long)]) as listener:
        listener.keep(1, HEALTHY.replace(b"/-/healthy", b"/long"))
        assert begun.wait(LIMIT_S)
        listener.keep(15)
        listener.kept[1].sendall(HEALTHY)
        assert listener.kept[1].recv(65536).startswith(b"HTTP/1.1 200 ")
        listener.keep(1)
        until(lambda: listener.turned_away == {Refused.TOO_MANY_CONNECTIONS: 8}, "eight of them")
        stay, go = [False], [True]
        assert [closed(one) for one in listener.kept] == 2 * stay + 8 * go + 7 * stay


def slow_reader(listener: Armed) -> socket.socket:
    """Ask for what fills every buffer, and read nothing."""
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.settimeout(30)
    slow.connect(("127.0.0.1", listener.port))
    slow.sendall(b"GET /big HTTP/1.1\r\nhost: localhost\r\n\r\n")
    listener.kept.append(slow)
    return slow


def closed(one: socket.socket) -> bool:
    state = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return state != TCP_ESTABLISHED


def test_client_that_reads_a_byte_at_a_time_is_reset_in_time() -> None:
    with armed(limits=ConnectionLimits(response_s=1.0)) as listener:
        slow = slow_reader(listener)
        received = 0
        while not closed(slow):
            with contextlib.suppress(ConnectionResetError):
                received += len(slow.recv(1))
            answers(listener)
        assert received < 100_000


def test_of_sixty_slow_readers_the_last_ones_stay(plain: Armed) -> None:
    answers(plain)
    before = descriptors()
    many = []
    for number in range(60):
        many.append(slow_reader(plain))
        if number % 20 == 0:
            answers(plain)
    until(lambda: sum(map(closed, many)) == len(many) - MOST_UNSENT, "all but the last ones gone")
    answers(plain)
    assert not any(map(closed, many[-8:]))
    let_go(plain, before)


def test_requests_sent_ahead_get_one_answer(plain: Armed) -> None:
    assert plain.raw(HEALTHY * 500).count(b"HTTP/1.1") == 1
    answers(plain)


def test_silent_and_dripping_connections_end_and_slow_requests_alone_are_counted() -> None:
    """Browsers open connections that they may need later."""
    with armed(limits=ConnectionLimits(request_s=1.0, idle_s=1.0)) as listener:
        for sent in (b"", b"GET / HTTP/1.1\r\n", HEALTHY):
            listener.keep(1, sent)
        with listener.connect() as dripping:

            def over() -> bool:
                with contextlib.suppress(OSError):
                    dripping.sendall(b"a")  # a byte now and then begins no new time
                return closed(dripping)

            until(over, "the end of it", every_s=0.05)
        for slow in listener.kept:
            slow.settimeout(30)
            with contextlib.suppress(ConnectionResetError):
                while slow.recv(65536):
                    pass
        listener.raw(b"x\r\n\r\n")
        until(lambda: Refused.BAD_REQUEST in listener.turned_away, "what was before it, too")
        assert listener.turned_away == {Refused.TOO_SLOW: 2, Refused.BAD_REQUEST: 1}


SEEDS = (
    b"GET /metrics HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\n\r\n",
    b"GET /api/v1/status?a=b HTTP/1.1\r\nHost: 127.0.0.1:9945\r\nConnection: keep-alive\r\n\r\n",
    b"HEAD / HTTP/1.0\r\nhost: [::1]\r\ncontent-length: 0\r\n\r\n",
    b"GET /runbooks/x HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
)


def mutated(chance: random.Random) -> bytes:
    """Spoil a request in one to six places."""
    made = bytearray(chance.choice(SEEDS))
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(len(made))
        match chance.randrange(4):
            case 0:
                made[place] = chance.randrange(256)
            case 1:
                del made[place : place + chance.randrange(8)]
            case 2:
                made[place:place] = chance.randbytes(chance.randrange(8))
            case _:
                made[place:place] = made[: chance.randrange(40)]
        made = made or bytearray(b"\n")
    return bytes(made)


def test_malformed_requests_by_the_hundred_leave_no_trace(plain: Armed) -> None:
    chance = random.Random(1000)
    answers(plain)
    before = descriptors()
    for number in range(300):
        with plain.connect() as one:
            one.sendall(mutated(chance))
        if number % 100 == 0:
            answers(plain)
    answers(plain)
    until(lambda: descriptors() <= before, "the descriptors of before")


def test_what_is_no_tls_is_closed(server_tls: tuple[str, ssl.SSLContext]) -> None:
    text, https = server_tls
    with armed(text, https, ConnectionLimits(request_s=1.0)) as listener:
        for sent in (
            b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n",
            b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10",  # SSL 2
            b"\x16\x03\x00\x00\x2f\x01\x00\x00\x2b\x03\x00" + bytes(40),  # SSL 3
            random.Random(1).randbytes(4096),
            b"\x15\x03\x01\x00\x02\x02\x28",
        ):
            with socket.create_connection(("127.0.0.1", listener.port), timeout=LIMIT_S) as raw:
                raw.sendall(sent)
                received = b""
                with contextlib.suppress(ConnectionResetError):
                    while piece := raw.recv(65536):
                        received += piece
            assert b"HTTP/" not in received
            assert b"gpud_" not in received
            answers(listener)
        until(lambda: listener.turned_away == {Refused.TLS_FAILED: 5}, "each of them counted")


def test_when_descriptors_run_out_the_next_scrape_still_gets_in() -> None:
    import resource

    with armed() as listener:
        clients = [socket.socket() for _ in range(4)]  # the limit is theirs, too
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors() + 60, hard))
            for client in clients:
                listener.keep(40)
                for kept in listener.kept[:30]:
                    kept.close()
                del listener.kept[:30]
                client.connect(("127.0.0.1", listener.port))
                assert listener.scrape(opened=client) == 200
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_who_has_gone_is_gone_without_the_collector(
    server_tls: tuple[str, ssl.SSLContext],
) -> None:
    """It counts objects, and a connection is few of them with OpenSSL's 60 KB behind."""
    with armed(*server_tls) as listener:
        listener.scrape()
        gc.collect()
        gc.disable()
        try:
            for sent in (b"", b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n", b"what\r\n\r\n"):
                listener.keep(4, sent)
                listener.keep(2, sent, tls=False)  # no handshake at all
            slow_reader(listener)
            assert connections() > 0
            for one in listener.kept:
                one.close()
            until(lambda: connections() == 0, "nothing left of them")
        finally:
            gc.enable()


def connections() -> int:
    return sum(isinstance(one, Connection) for one in gc.get_objects())
