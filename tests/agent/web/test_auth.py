"""Passwords: who is let in, what it costs, and what may be set at all."""

from __future__ import annotations

import asyncio
import base64
import time
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import PlainTextResponse

from gpud.agent.web import auth
from gpud.agent.web.access import Access, Terms
from gpud.agent.web.auth import Checker, Outcome, credentials
from gpud.agent.web.guard import Guard
from gpud.core import masking
from gpud.core.errors import ConfigError
from gpud.core.settings import parse
from tests.agent.web.armed import HASHED, PASSPHRASE, Armed, armed, basic

if TYPE_CHECKING:
    from collections.abc import Iterator

USERS = {"alice": HASHED}
LONG = "$2b$04$4229C3EMExrphg6PTLrAkOtjwGSqcUKMXkKS2HfFVDRkJI9lKLuIu"
"""Of 72 letters a, made by a library that cuts off what follows."""


@pytest.fixture(scope="module")
def locked() -> Iterator[Armed]:
    with armed(f'basic_auth_users = {{ alice = "{HASHED}", "jörg" = "{HASHED}" }}') as made:
        yield made


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (basic("alice", PASSPHRASE), 200),
        (basic("alice", PASSPHRASE).replace("Basic", "bAsIc"), 200),
        (basic("jörg", PASSPHRASE), 200),
        ("", 401),
        (basic("alice", ""), 401),
        (basic("alice", PASSPHRASE + "x"), 401),
        (basic("alice", PASSPHRASE.upper()), 401),
        (basic("Alice", PASSPHRASE), 401),
        (basic("", PASSPHRASE), 401),
        (basic("mallory", PASSPHRASE), 401),
        (basic("mallory", "unknown"), 401),  # the password of the hash nobody has
        (basic("alice", HASHED), 401),
        (basic("alice", "a" * 1000), 401),
        (basic("alice", "\x00"), 401),
        ("Bearer " + PASSPHRASE.replace(" ", ""), 401),
        ("Basic", 401),
        ("Basic !!!", 401),
        ("Basic " + base64.b64encode(b"alice").decode(), 401),
        ("Basic " + base64.b64encode(b"\xff\xfe:x").decode(), 401),
    ],
)
def test_only_who_knows_name_and_password_is_let_in(
    locked: Armed, authorization: str, status: int
) -> None:
    assert locked.scrape(authorization) == status


def test_nothing_at_all_is_served_to_strangers(locked: Armed) -> None:
    for path in ("/", "/metrics", "/-/healthy", "/-/ready", "/api/v1/status", "/static/x", "/x"):
        answer = locked.raw(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 401")
        assert b'www-authenticate: Basic realm="gpud", charset="UTF-8"' in answer
        assert b"x-content-type-options: nosniff" in answer


def test_two_authorizations_are_none(locked: Armed) -> None:
    line = f"authorization: {basic('alice', PASSPHRASE)}\r\n"
    request = f"GET / HTTP/1.1\r\nhost: localhost\r\n{line}{line}\r\n"
    assert locked.raw(request.encode()).startswith(b"HTTP/1.1 401")


def test_a_password_of_more_than_72_bytes_is_compared_as_htpasswd_does() -> None:
    async def story() -> list[Outcome]:
        checker, users = Checker(), {"bob": LONG}
        return [
            await checker.check(basic("bob", "a" * count), users, "peer") for count in (72, 90, 71)
        ]

    assert asyncio.run(story()) == [Outcome.KNOWN, Outcome.KNOWN, Outcome.UNKNOWN]


def test_what_was_checked_once_is_not_checked_again() -> None:
    async def story() -> None:
        checker, users = Checker(), {"alice": _costly(9)}
        for password, outcome in ((PASSPHRASE, Outcome.KNOWN), ("wrong", Outcome.UNKNOWN)):
            assert await checker.check(basic("alice", password), users, "peer") is outcome
            began = time.thread_time()
            for _ in range(100):
                assert await checker.check(basic("alice", password), users, "peer") is outcome
            assert time.thread_time() - began < 1.0  # a hundred checks take four
        changed = {"alice": HASHED.replace("IWw", "JWw")}
        header = basic("alice", PASSPHRASE)
        assert await checker.check(header, changed, "peer") is Outcome.UNKNOWN

    asyncio.run(story())


def _costly(cost: int) -> str:
    import bcrypt

    return bcrypt.hashpw(PASSPHRASE.encode(), bcrypt.gensalt(cost)).decode()


def test_a_flood_waits_in_a_bounded_queue_and_one_peer_leaves_room_for_others() -> None:
    async def story() -> None:
        checker = Checker()
        flood = [
            asyncio.create_task(checker.check(basic("alice", f"wrong {n}"), USERS, "attacker"))
            for n in range(200)
        ]
        await asyncio.sleep(0)
        assert await checker.check(basic("alice", PASSPHRASE), USERS, "scraper") is Outcome.KNOWN
        outcomes = await asyncio.gather(*flood)
        assert outcomes.count(Outcome.UNKNOWN) == auth.MOST_WAITING_PER_PEER
        assert outcomes.count(Outcome.BUSY) == 200 - auth.MOST_WAITING_PER_PEER

    asyncio.run(story())


def test_a_whole_network_of_ipv6_is_one_peer() -> None:
    """Whoever has one address of it has them all."""
    inner = PlainTextResponse("in")
    access = Access(Terms(names=frozenset({"localhost"}), users=USERS))
    guard = Guard(inner, access)

    async def asked(address: str, password: str) -> int:
        told: list[int] = []
        fields = {"host": "localhost", "authorization": basic("alice", password)}
        scope = {
            "type": "http",
            "path": "/",
            "client": (address, 4711),
            "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
        }

        async def send(message: Any) -> None:
            told.append(message.get("status", 0))

        await guard(scope, None, send)  # type: ignore[arg-type]  # nothing is received
        return told[0]

    async def story() -> None:
        flood = [
            asyncio.create_task(asked(f"2001:db8::{number:x}", f"wrong {number}"))
            for number in range(1, 40)
        ]
        await asyncio.sleep(0)
        assert await asked("2001:db8:0:1::1", PASSPHRASE) == 200
        assert sorted(await asyncio.gather(*flood))[: auth.MOST_WAITING_PER_PEER + 1] == [
            *[401] * auth.MOST_WAITING_PER_PEER,
            429,
        ]

    asyncio.run(story())


def test_a_flood_of_failures_takes_a_share_of_one_core_and_no_more() -> None:
    async def story() -> float:
        checker, users = Checker(), {"alice": _costly(7)}
        began, busy = time.monotonic(), time.process_time()
        for number in range(6):
            await checker.check(basic("alice", f"wrong {number}"), users, "peer")
        return (time.process_time() - busy) / (time.monotonic() - began)

    assert asyncio.run(story()) < 0.5  # a fifth, and what the test itself does


def test_a_name_nobody_has_costs_what_a_name_costs() -> None:
    def cost(name: str, users: dict[str, str]) -> float:
        async def once() -> float:
            checker = Checker()
            began = time.process_time()
            await checker.check(basic(name, "wrong"), users, "peer")
            return time.process_time() - began

        return min(asyncio.run(once()) for _ in range(3))

    users = {"alice": _costly(7)}
    assert 0.5 < cost("mallory", users) / cost("alice", users) < 2


@hypothesis.settings(max_examples=40)
@given(st.text(max_size=40))
def test_no_header_ends_in_anything_but_credentials_or_none(text: str) -> None:
    for header in (text, f"Basic {text}", f"Basic {base64.b64encode(text.encode()).decode()}"):
        found = credentials(header)
        assert found is None or (":" not in found[0] and len(found[1]) <= auth.LONGEST)


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(f"[http]\n{text}".encode(), {})
    return str(caught.value)


TLS = '[http.tls_server_config]\ncert_file = "/c"\nkey_file = "/k"\n'
USER = f'basic_auth_users = {{ alice = "{HASHED}" }}\n'
VERIFY = 'client_auth_type = "RequireAndVerifyClientCert"\nclient_ca_file = "/a"\n'
OUTSIDE = ("0.0.0.0", "[::]", "192.168.0.7", "lab1", "[fe80::1]")  # noqa: S104  # refused


@pytest.mark.parametrize("host", OUTSIDE)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "nobody is asked who he is"),
        (TLS, "nobody is asked who he is"),
        (TLS + VERIFY.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven"), "nobody"),
        (USER, "in the clear"),
        ("allow_plaintext_auth = true\n", "nobody is asked who he is"),
    ],
    ids=["nothing", "TLS alone", "certificates if given", "no TLS", "nobody in the clear"],
)
def test_strangers_are_never_let_in_by_a_setting(host: str, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match="can be reached from outside") as caught:
        parse(f'[http]\nlisten = "{host}:9945"\n{text}'.encode(), {})
    assert words in str(caught.value)
    assert (caught.value.fix or "").startswith("set ")


@pytest.mark.parametrize("host", OUTSIDE)
@pytest.mark.parametrize(
    "text", [USER + TLS, TLS + VERIFY, USER + TLS + VERIFY, USER + "allow_plaintext_auth = true\n"]
)
def test_an_address_others_reach_is_taken_where_they_are_asked(host: str, text: str) -> None:
    assert parse(f'[http]\nlisten = "{host}:9945"\n{text}'.encode(), {}).http.port == 9945


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('basic_auth_users = { alice = "secret" }', "has no bcrypt hash"),
        (f'basic_auth_users = {{ "a:b" = "{HASHED}" }}', "no user name"),
        (f'basic_auth_users = {{ "" = "{HASHED}" }}', "no user name"),
        (f'basic_auth_users = {{ alice = "{HASHED.replace("$04$", "$31$")}" }}', "must be 4 to 14"),
        ("basic_auth_users = { alice = 5 }", "basic_auth_users"),
        ('hosts = ["a:1"]', "leave the port out"),
        ("max_connections = 1", "max_connections must be"),
        ("write_timeout_s = inf", "write_timeout_s must be"),
        ('[http.tls_server_config]\ncert_file = "/c"', "belong together"),
        ('[http.tls_server_config]\ncert_file = "c"\nkey_file = "k"', "absolute path"),
        (f'{TLS}client_auth_type = "RequestClientCert"', "takes any certificate unseen"),
        (f'{TLS}client_auth_type = "RequireAnyClientCert"', "takes any certificate unseen"),
        (f'{TLS}client_auth_type = "Require"', 'must be "NoClientCert" or'),
        (f'{TLS}client_auth_type = "RequireAndVerifyClientCert"', "client_ca_file and"),
        (f'{TLS}client_ca_file = "/a"', "client_ca_file and client_auth_type belong together"),
        (f'{TLS}client_allowed_sans = ["a"]', "client_allowed_sans needs"),
        (f'{TLS}min_version = "TLS10"', 'must be "TLS12" or "TLS13"'),
        (f'{TLS}max_version = "TLS12"\nmin_version = "TLS13"', "min_version is above"),
        (f'{TLS}cipher_suites = ["TLS_RSA_WITH_RC4_128_SHA"]', "cipher_suites"),
        (f"[http.tls_server_config]\n{VERIFY}", "needs cert_file and key_file"),
        (f'{TLS}cert = "x"', "unknown key http.tls_server_config.cert; did you mean"),
        ('[http.http_server_config.headers]\nServer = "x"', "only Content-Security-Policy"),
        ('[http.http_server_config.headers]\nX-Frame-Options = "x"', "must be deny or sameorigin"),
        ('[http.http_server_config.headers]\nX-XSS-Protection = "a\\r\\nb: c"', "none a header"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(text: str, words: str) -> None:
    said = refusal(text)
    assert words in said
    assert HASHED[8:] not in said
    assert "secret" not in said


def test_a_header_that_is_set_replaces_gpuds_own() -> None:
    text = (
        '[http.http_server_config.headers]\nX-Frame-Options = "sameorigin"\n'
        'Strict-Transport-Security = "max-age=600"'
    )
    with armed(text) as listener:
        answer = listener.raw(b"GET /x HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    assert b"\r\nx-frame-options: sameorigin\r\n" in answer
    assert b"DENY" not in answer
    assert b"\r\nstrict-transport-security: max-age=600\r\n" in answer


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("http.basic_auth_users", {"alice": HASHED}, {"alice": "<hidden>"}),
        ("alerts.webhook_urls", ("https://hooks.example/T0/B0/x",), ["https://hooks.example/<hidden>"]),
        ("alerts.webhook_urls", ("http://u:p@h:1/",), ["http://<hidden>@h:1"]),
        ("alerts.webhook_urls", ("http://[::1]:9?token=x",), ["http://[::1]:9/<hidden>"]),
        ("alerts.webhook_urls", ("http://[::",), ["http://<hidden>"]),
        ("alerts.apprise_urls", ("ntfy://topic", "x"), ["ntfy://<hidden>", "<hidden>"]),
        ("http.hosts", ("a",), ["a"]),
        ("http.listen", "x:1", "x:1"),
    ],
)  # fmt: skip
def test_settings_are_shown_without_their_secrets(key: str, value: object, shown: object) -> None:
    assert masking.shown(key, value) == shown
