"""Passwords: who is let in, what it costs, and what may be set at all."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING

import bcrypt
import pytest

from gpud import settings_files
from gpud.agent.serve.http.access import QUEUE, Passwords
from gpud.agent.serve.refusals import Refused
from gpud.core.errors import ConfigError
from gpud.core.settings import parse
from tests.agent.serve.http.armed import HASHED, PASSPHRASE, Armed, armed, basic

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG = "$2b$04$4229C3EMExrphg6PTLrAkOtjwGSqcUKMXkKS2HfFVDRkJI9lKLuIu"
"""Of 72 letters a, made by a library that cuts off what follows."""


@pytest.fixture(scope="module")
def locked() -> Iterator[Armed]:
    users = f'alice = "{HASHED}", "jörg" = "{HASHED}", bob = "{LONG}"'
    with armed(f"basic_auth_users = {{ {users} }}") as made:
        yield made


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (basic("alice", PASSPHRASE), 200),
        (basic("alice", PASSPHRASE).replace("Basic", "bAsIc"), 200),
        (basic("jörg", PASSPHRASE), 200),
        # as htpasswd compares, which cuts off what follows 72 bytes
        *(
            (basic("bob", "a" * count), status)
            for count, status in ((72, 200), (90, 200), (71, 401))
        ),
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
    twice = 2 * f"authorization: {basic('alice', PASSPHRASE)}\r\n"
    paths = ("/", "/metrics", "/-/healthy", "/-/ready", "/api/v1/status", "/static/x", "/x")
    for path, line in (*((path, "") for path in paths), ("/", twice)):
        answer = locked.raw(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n{line}\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 401")
        assert b'www-authenticate: Basic realm="gpud", charset="UTF-8"' in answer
        assert b"x-content-type-options: nosniff" in answer


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The hashes that are compared, in order."""
    compared: list[bytes] = []
    compare = bcrypt.checkpw

    def spying(password: bytes, hashed: bytes) -> bool:
        compared.append(hashed)
        return compare(password, hashed)

    monkeypatch.setattr(bcrypt, "checkpw", spying)
    return compared


def test_a_right_password_is_compared_once_and_a_wrong_one_each_time(checks: list[bytes]) -> None:
    """A name nobody has costs what the costliest name costs."""

    async def story() -> None:
        users = Passwords({"alice": HASHED, "bob": HASHED.replace("$04$", "$05$")})
        for _ in range(20):
            assert await users.check(basic("alice", PASSPHRASE)) is None
        assert len(checks) == 1
        for _ in range(2):
            assert await users.check(basic("alice", "wrong")) is Refused.UNAUTHORIZED
        assert len(checks) == 3
        assert await users.check(basic("mallory", "wrong")) is Refused.UNAUTHORIZED
        assert [hashed[:7] for hashed in checks] == [b"$2b$04$"] * 3 + [b"$2b$05$"]

    asyncio.run(story())


def test_a_flood_waits_in_a_queue_of_limited_length_and_one_is_checked_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running, most = 0, 0

    async def story() -> None:
        async def count(*_: object) -> bool:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return False

        users = Passwords({"alice": HASHED})
        assert await users.check(basic("alice", PASSPHRASE)) is None
        monkeypatch.setattr(asyncio, "to_thread", count)
        flood = [asyncio.create_task(users.check(basic("alice", f"{n}"))) for n in range(200)]
        await asyncio.sleep(0)
        assert await users.check(basic("alice", PASSPHRASE)) is None, "it is not checked again"
        outcomes = await asyncio.gather(*flood)
        assert outcomes.count(Refused.TOO_MANY_PASSWORDS) == 200 - QUEUE
        assert outcomes.count(Refused.UNAUTHORIZED) == QUEUE

    asyncio.run(story())
    assert most == 1


TLS = '[http.tls_server_config]\ncert_file = "/c"\nkey_file = "/k"\n'
USER = f'basic_auth_users = {{ alice = "{HASHED}" }}\n'
VERIFY = 'client_auth_type = "RequireAndVerifyClientCert"\nclient_ca_file = "/a"\n'


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("", "nobody is asked who he is"),
        (TLS, "nobody is asked who he is"),
        (TLS + VERIFY.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven"), "nobody"),
        (USER, "in the clear"),
        ("allow_plaintext_auth = true\n", "nobody is asked who he is"),
        (USER + TLS, None),
        (TLS + VERIFY, None),
        (USER + "allow_plaintext_auth = true\n", None),
    ],
    ids=[
        *("nothing", "TLS alone", "certificates if given", "no TLS", "nobody in the clear"),
        *("a password", "certificates", "a password in the clear"),
    ],
)
def test_strangers_are_never_let_in_by_a_setting(text: str, refused: str | None) -> None:
    for host in ("0.0.0.0", "[::]", "192.168.0.7", "lab1", "[fe80::1]"):  # noqa: S104  # refused
        section = f'[http]\nlisten = "{host}:9945"\n{text}'.encode()
        if refused is None:
            assert parse(section, {}).http.port == 9945
            continue
        with pytest.raises(ConfigError, match="can be reached from outside") as caught:
            parse(section, {})
        assert refused in str(caught.value)
        assert (caught.value.fix or "").startswith("set ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('basic_auth_users = { alice = "secret" }', "has no bcrypt hash"),
        (f'basic_auth_users = {{ "a:b" = "{HASHED}" }}', "no user name"),
        (f'basic_auth_users = {{ "" = "{HASHED}" }}', "no user name"),
        (f'basic_auth_users = {{ alice = "{HASHED.replace("$04$", "$31$")}" }}', "must be 4 to 14"),
        ("basic_auth_users = { alice = 5 }", "basic_auth_users"),
        ('hosts = ["a:1"]', "leave the port out"),
        ('[http.tls_server_config]\ncert_file = "/c"', "belong together"),
        ('[http.tls_server_config]\ncert_file = "c"\nkey_file = "k"', "absolute path"),
        (f'{TLS}client_auth_type = "RequestClientCert"', "not 'RequestClientCert'"),
        (f'{TLS}client_auth_type = "RequireAnyClientCert"', "not 'RequireAnyClientCert'"),
        (f'{TLS}client_auth_type = "Require"', 'must be "NoClientCert" or'),
        (f'{TLS}client_auth_type = "RequireAndVerifyClientCert"', "client_ca_file and"),
        (f'{TLS}client_ca_file = "/a"', "client_ca_file and client_auth_type belong together"),
        (f'{TLS}client_allowed_sans = ["a"]', "client_allowed_sans is no longer a setting"),
        (f'{TLS}min_version = "TLS13"', "min_version is no longer a setting"),
        (f'{TLS}cipher_suites = ["x"]', "cipher_suites is no longer a setting"),
        (f"[http.tls_server_config]\n{VERIFY}", "needs cert_file and key_file"),
        (f'{TLS}cert = "x"', "unknown key http.tls_server_config.cert; did you mean"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"[http]\n{text}".encode(), {})
    message = str(caught.value)
    assert words in message
    assert HASHED[8:] not in message
    assert "secret" not in message


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("http.basic_auth_users", {"alice": HASHED}, {"alice": "<hidden>"}),
        ("alerts.webhook_urls", ("https://hooks.example/T0/B0/x",), ["<hidden>"]),
        ("alerts.webhook_urls", ("http://u:p@h:1/",), ["<hidden>"]),
        ("alerts.webhook_urls", ("http://[::1]:9?token=x",), ["<hidden>"]),
        ("alerts.webhook_urls", ("http://h:1/",), ["http://h:1/"]),
        ("alerts.apprise_urls", ("ntfy://topic", "x"), ["<hidden>", "<hidden>"]),
        ("http.hosts", ("a",), ["a"]),
        ("http.listen", "x:1", "x:1"),
    ],
)
def test_settings_are_shown_without_their_secrets(key: str, value: object, shown: object) -> None:
    assert settings_files.shown(key, value) == shown
