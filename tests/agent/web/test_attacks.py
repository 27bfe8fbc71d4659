"""What strangers do to a listener: after each of it the next scrape answers at once."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import socket
import ssl
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud.agent.web import room
from gpud.agent.web.connection import Connection
from gpud.core.refusals import Refused
from tests.agent.web.armed import Armed, armed, authority, basic, client
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

SILENT = 1000
TCP_CLOSE = 7


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


@pytest.fixture(params=["plain", "secure"])
def listener(request: pytest.FixtureRequest) -> Armed:
    found: Armed = request.getfixturevalue(request.param)
    return found


def answers(listener: Armed, authorization: str = "") -> None:
    assert listener.scrape(authorization) == 200


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # names, not paths


def let_go(listener: Armed, before: int) -> None:
    for kept in listener.kept:
        kept.close()
    listener.kept.clear()
    until(lambda: descriptors() <= before, "the descriptors of before")


@pytest.mark.parametrize("sent", [b"", b"GET /metr", b"GET / HTTP/1.1\r\nhost: localhost\r\nx: "])
def test_a_thousand_silent_connections_turn_nobody_away(plain: Armed, sent: bytes) -> None:
    answers(plain)
    before = descriptors()
    for _ in range(10):
        plain.keep(SILENT // 10, sent)
        answers(plain)
    let_go(plain, before)


@pytest.mark.parametrize(
    ("count", "tls", "sent"),
    [
        (SILENT, False, b""),
        (SILENT // 6, True, b""),
        (SILENT // 6, False, b"\x16\x03\x01\x40\x00\x01"),
    ],
    ids=["no handshake", "after the handshake", "half a hello"],
)
def test_silent_connections_to_the_tls_port_turn_nobody_away(
    secure: Armed, count: int, sent: bytes, *, tls: bool
) -> None:
    answers(secure)
    before = descriptors()
    for _ in range(5):
        secure.keep(count // 5, sent, tls=tls)
        answers(secure)
    let_go(secure, before)


def test_who_was_let_in_is_kept_while_strangers_make_room_for_each_other(plain: Armed) -> None:
    answers(plain)
    before = descriptors()
    with contextlib.closing(HTTPConnection("127.0.0.1", plain.port, timeout=30)) as kept:
        kept.connect()
        kept.auto_open = 0  # it must be this connection
        for strangers in (SILENT // 2, 0):
            kept.request("GET", "/-/healthy")
            answer = kept.getresponse()
            assert (answer.status, answer.read()) == (200, b"gpud is alive\n")
            plain.keep(strangers)
    let_go(plain, before)


def test_who_has_just_come_does_not_go_while_others_only_keep_their_places() -> None:
    asked = b"GET /-/healthy HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with armed("max_connections_per_peer = 32") as listener:
        listener.keep(32, asked)
        for _ in range(8):
            with listener.connect() as scraper:
                listener.keep(4, asked)  # others come while it has not asked yet
                scraper.settimeout(30)
                scraper.sendall(asked)
                assert scraper.recv(65536).startswith(b"HTTP/1.1 200 ")
                listener.keep(1, asked)


def slow_reader(listener: Armed) -> socket.socket:
    """Ask for what fills every buffer, and read nothing."""
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.settimeout(30)
    slow.connect(("127.0.0.1", listener.port))
    slow.sendall(b"GET /big HTTP/1.1\r\nhost: localhost\r\n\r\n")
    listener.kept.append(slow)
    return slow


def sent_away(one: socket.socket) -> bool:
    state = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return state == TCP_CLOSE


def test_who_reads_a_byte_at_a_time_goes_in_time() -> None:
    with armed("write_timeout_s = 1.0") as listener:
        slow = slow_reader(listener)
        received = 0
        while not sent_away(slow):
            with contextlib.suppress(ConnectionResetError):
                received += len(slow.recv(1))
            answers(listener)
        assert received < 100_000


def test_of_many_who_read_nothing_those_who_began_first_go(plain: Armed) -> None:
    answers(plain)
    before = descriptors()
    many = [slow_reader(plain) for _ in range(3 * room.MOST_STALLED)]
    answers(plain)
    until(lambda: sum(map(sent_away, many)) == 2 * room.MOST_STALLED, "all but the last ones gone")
    answers(plain)
    assert not any(map(sent_away, many[-8:]))
    let_go(plain, before)


def test_who_asks_ahead_gets_one_answer(plain: Armed) -> None:
    request = b"GET /-/healthy HTTP/1.1\r\nhost: localhost\r\n\r\n"
    assert plain.raw(request * 500).count(b"HTTP/1.1") == 1
    answers(plain)


def test_who_takes_his_time_with_a_request_is_sent_away() -> None:
    with armed("read_header_timeout_s = 1.0\nidle_timeout_s = 1.0") as listener:
        for sent in (
            b"",
            b"GET / HTTP/1.1\r\n",
            b"GET /-/healthy HTTP/1.1\r\nhost: localhost\r\n\r\n",
        ):
            with listener.connect() as slow:
                slow.sendall(sent)
                slow.settimeout(20)
                while slow.recv(65536):
                    pass
        dripping = listener.connect()
        with pytest.raises(OSError):  # noqa: PT011, PT012  # each byte does not begin anew
            while True:
                dripping.sendall(b"a")
                dripping.settimeout(0.1)
                try:
                    assert dripping.recv(1) != b""
                except TimeoutError:
                    continue
                except AssertionError as ended:
                    raise OSError from ended
        dripping.close()


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


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_malformed_requests_by_the_thousand_leave_no_trace(plain: Armed, count: int) -> None:
    chance = random.Random(count)
    answers(plain)
    before = descriptors()
    for number in range(count):
        with plain.connect() as one:
            one.sendall(mutated(chance))
        if number % 250 == 0:
            answers(plain)
    answers(plain)
    until(lambda: descriptors() <= before, "the descriptors of before")


def test_who_makes_room_for_others_is_counted() -> None:
    with armed("max_connections_per_peer = 8") as listener:
        listener.keep(9)
        until(lambda: listener.turned_away == {Refused.TOO_MANY_CONNECTIONS: 8}, "eight of nine")


def test_who_is_slow_is_counted_and_who_says_nothing_is_not() -> None:
    """Browsers open connections that they may need later."""
    with armed("read_header_timeout_s = 1.0") as listener:
        listener.keep(1)
        listener.keep(1, b"GET / HTTP/1.1\r\n")
        for kept in listener.kept:
            kept.settimeout(30)
            assert kept.recv(1) == b""
        listener.raw(b"x\r\n\r\n")
        until(lambda: Refused.BAD_REQUEST in listener.turned_away, "what was before it, too")
        assert listener.turned_away == {Refused.TOO_SLOW: 1, Refused.BAD_REQUEST: 1}


def test_what_is_no_tls_is_sent_away(server_tls: tuple[str, ssl.SSLContext]) -> None:
    text, https = server_tls
    with armed(f"{text}read_header_timeout_s = 1.0", https) as listener:
        for sent in (
            b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n",
            b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10",  # SSL 2
            b"\x16\x03\x00\x00\x2f\x01\x00\x00\x2b\x03\x00" + bytes(40),  # SSL 3
            random.Random(1).randbytes(4096),
            b"\x15\x03\x01\x00\x02\x02\x28",
        ):
            with socket.create_connection(("127.0.0.1", listener.port), timeout=30) as raw:
                raw.sendall(sent)
                received = b""
                with contextlib.suppress(ConnectionResetError):
                    while piece := raw.recv(65536):
                        received += piece
            assert b"HTTP/" not in received
            assert b"gpud_" not in received
            answers(listener)
        until(lambda: listener.turned_away == {Refused.TLS_FAILED: 5}, "each of them counted")


def test_old_tls_and_plain_clients_are_refused(secure: Armed) -> None:
    assert secure.https is not None
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with (
        socket.create_connection(("127.0.0.1", secure.port), timeout=10) as raw,
        pytest.raises((ssl.SSLError, ConnectionResetError)),
    ):
        old.wrap_socket(raw)
    answers(secure)


def test_memory_is_what_it_was_after_all_of_it(plain: Armed) -> None:
    def rss() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    answers(plain)
    closed = descriptors()
    plain.keep(SILENT, b"GET / HTTP/1.1\r\nx: " + b"y" * 4000)  # what a first time costs
    let_go(plain, closed)
    before = rss()
    for _ in range(2):
        plain.keep(SILENT, b"GET / HTTP/1.1\r\nx: " + b"y" * 4000)
        answers(plain)
        for kept in plain.kept:
            kept.close()
        plain.kept.clear()
    assert rss() - before < 16 * 1024 * 1024


def test_when_descriptors_run_out_the_next_scrape_still_gets_in() -> None:
    import resource

    with armed("max_connections = 256\nmax_connections_per_peer = 256") as listener:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            # The clients live here too: half of what is left is theirs.
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors() + 60, hard))
            for _ in range(4):
                listener.keep(40)
                for kept in listener.kept[:30]:
                    kept.close()
                del listener.kept[:30]
                answers(listener)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_flood_of_wrong_passwords_turns_nobody_away_who_is_known() -> None:
    from tests.agent.web.armed import HASHED, PASSPHRASE

    with armed(f'basic_auth_users = {{ alice = "{HASHED}" }}') as listener:
        answers(listener, basic("alice", PASSPHRASE))
        request = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: {}\r\n\r\n"
        for number in range(100):
            one = listener.connect()
            one.sendall(request.format(basic("alice", f"wrong {number}")).encode())
            listener.kept.append(one)
            if number % 20 == 0:
                answers(listener, basic("alice", PASSPHRASE))
        answers(listener, basic("alice", PASSPHRASE))
        for one in listener.kept:
            one.settimeout(30)
            assert one.recv(65536).split(b" ")[1] in {b"401", b"429"}


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
