"""TLS, client certificates, and terms that follow the files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpud import keypair
from gpud.agent.web import renewal
from gpud.agent.web.access import Access, Terms, asks_for, terms
from gpud.core.errors import ConfigError, KeyPairError
from gpud.core.events import CertificateRead, HealthSet
from gpud.core.http_settings import Http, TlsServerConfig
from gpud.core.settings import Settings, parse
from tests.agent.web.armed import HASHED, Authority, armed, authority, client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gpud.core.events import Event

VERIFY = "RequireAndVerifyClientCert"


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(signer: Authority) -> Path:
    return signer.signed("server", sans="DNS:lab1.example,DNS:*.wild.example,IP:127.0.0.1")


def files(made: Path, **more: object) -> TlsServerConfig:
    return TlsServerConfig(cert_file=str(made), key_file=str(made.with_suffix(".key")), **more)  # type: ignore[arg-type]


def section(tls: TlsServerConfig) -> str:
    """Write the settings as a TOML file has them."""
    default = TlsServerConfig()
    lines = ["[http.tls_server_config]"]
    for name in TlsServerConfig.__slots__:
        value = getattr(tls, name)
        if value != getattr(default, name):
            lines.append(f"{name} = {list(value) if isinstance(value, tuple) else value!r}")
    return "\n".join(lines)


def test_the_certificate_is_known_before_anybody_connects(server: Path) -> None:
    pair = keypair.load(files(server))
    assert pair.names == {"lab1.example", "*.wild.example", "127.0.0.1"}
    assert 89 * 86400 < pair.expires_s - time.time() < 91 * 86400
    assert not pair.key_exposed
    server.with_suffix(".key").chmod(0o644)
    try:
        assert keypair.load(files(server)).key_exposed
    finally:
        server.with_suffix(".key").chmod(0o640)


def test_a_certificate_may_have_names_of_every_kind(signer: Authority) -> None:
    sans = "DNS:Lab1.example,email:root@lab1.example,URI:spiffe://lab1,RID:1.2.3,dirName:own"
    own = signer.folder / "own.cnf"
    own.write_text("[req]\ndistinguished_name=own\n[own]\nCN=lab1\n")
    made = signer.signed("kinds", "-days", "90", "-config", str(own), sans=sans)
    assert keypair.load(files(made)).names == {"lab1.example"}


def test_an_expired_certificate_is_read_and_told_of(signer: Authority) -> None:
    made = signer.expired("old")
    assert keypair.load(files(made)).expires_s < time.time()


def _piped(_: Path, key: Path) -> None:
    key.unlink()
    os.mkfifo(key)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda _, k: k.unlink(), "key_file .*: No such file"),
        (lambda c, _: c.write_text("nothing"), "cannot be used"),
        (lambda _, k: k.write_text("nothing"), "holds no private key"),
        (_piped, "no plain file"),
        (lambda c, _: c.write_bytes(c.read_bytes()[:300]), "cannot be used"),
    ],
    ids=["gone", "no certificate", "no key", "a pipe", "half of it"],
)
def test_files_that_cannot_be_used_are_named(
    signer: Authority, spoil: Callable[[Path, Path], object], words: str
) -> None:
    made = signer.signed("spoiled")
    spoil(made, made.with_suffix(".key"))
    with pytest.raises(KeyPairError, match=words) as caught:
        keypair.load(files(made))
    assert str(signer.folder) in str(caught.value)
    made.with_suffix(".key").unlink(missing_ok=True)


def test_a_pair_that_does_not_belong_together_is_said(signer: Authority, server: Path) -> None:
    other = signer.signed("other")
    tls = replace(files(server), key_file=str(other.with_suffix(".key")))
    with pytest.raises(KeyPairError, match="do not belong together"):
        keypair.load(tls)


def test_a_locked_key_is_not_asked_for_on_the_terminal(signer: Authority) -> None:
    from tests.agent.web.armed import openssl

    made = signer.signed("locked")
    key = made.with_suffix(".key")
    openssl("pkey", "-in", str(key), "-aes128", "-passout", "pass:abcd", "-out", str(key) + "2")
    (signer.folder / "locked.key2").rename(key)
    with pytest.raises(KeyPairError, match="passphrase"):
        keypair.load(files(made))


def test_ciphers_that_do_not_suit_the_key_are_refused(server: Path) -> None:
    rsa = files(server, cipher_suites=("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",))
    with pytest.raises(KeyPairError, match="no shared cipher"):
        keypair.load(replace(rsa, max_version="TLS12"))
    keypair.load(files(server, cipher_suites=("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",)))


@pytest.mark.parametrize("suite", ["ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA384"])
def test_without_a_choice_only_suites_with_forward_secrecy_and_authentication_are_spoken(
    signer: Authority, server: Path, suite: str
) -> None:
    offered = keypair.load(files(server)).context.get_ciphers()
    of_tls12 = {one["name"] for one in offered if one["protocol"] == "TLSv1.2"}
    assert of_tls12 == set(keypair.OPENSSL_NAMES.values())
    with armed(section(files(server)), client(signer.certificate)) as listener:
        assert listener.https is not None
        listener.https.check_hostname = False
        listener.https.maximum_version = ssl.TLSVersion.TLSv1_2
        with listener.connect() as one:
            assert isinstance(one, ssl.SSLSocket)
            assert one.version() == "TLSv1.2"
        listener.https.set_ciphers(suite)
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            listener.connect()


@pytest.mark.parametrize("version", ["TLS12", "TLS13"])
def test_only_the_chosen_versions_are_spoken(signer: Authority, server: Path, version: str) -> None:
    tls = section(files(server, min_version=version, max_version=version))
    with armed(tls, client(signer.certificate)) as listener:
        assert listener.https is not None
        listener.https.check_hostname = False
        with listener.connect() as one:
            assert isinstance(one, ssl.SSLSocket)
            assert one.version() == {"TLS12": "TLSv1.2", "TLS13": "TLSv1.3"}[version]
        other = client(signer.certificate)
        other.check_hostname = False
        if version == "TLS12":
            other.minimum_version = ssl.TLSVersion.TLSv1_3
        else:
            other.maximum_version = ssl.TLSVersion.TLSv1_2
        listener.https = other
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            listener.connect()


def asked(port: int, https: ssl.SSLContext) -> bytes:
    """Ask once; what comes, b"" from who sends away."""
    with contextlib.suppress(ssl.SSLError, ConnectionResetError, BrokenPipeError):
        raw = socket.create_connection(("127.0.0.1", port), timeout=20)
        with raw, https.wrap_socket(raw, server_hostname="127.0.0.1") as one:
            one.sendall(b"GET /-/healthy HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
            received = b""
            while piece := one.recv(65536):
                received += piece
            return received
    return b""


@pytest.mark.parametrize("version", ["TLS12", "TLS13"])
def test_only_certificates_of_the_authority_are_let_in(
    signer: Authority, server: Path, tmp_path: Path, version: str
) -> None:
    tls = files(
        server,
        client_auth_type=VERIFY,
        client_ca_file=str(signer.certificate),
        client_allowed_sans=("prometheus.example", "spiffe://lab/scraper"),
        max_version=version,
    )
    stranger = authority(tmp_path / "stranger")
    good = signer.signed("good", sans="DNS:prometheus.example")
    uri = signer.signed("uri", sans="URI:spiffe://lab/scraper")
    wrong = signer.signed("wrong", sans="DNS:grafana.example")
    old = signer.expired("past", "DNS:prometheus.example")
    foreign = stranger.signed("foreign", sans="DNS:prometheus.example")
    server_only = signer.signed(
        "web", "-addext", "extendedKeyUsage=serverAuth", sans="DNS:prometheus.example"
    )
    with armed(section(tls)) as listener:
        for certificate in (good, uri):
            assert asked(listener.port, client(signer.certificate, certificate)).startswith(
                b"HTTP/1.1 200"
            )
        assert asked(listener.port, client(signer.certificate)) == b""
        for certificate in (wrong, old, foreign, server_only):
            assert asked(listener.port, client(signer.certificate, certificate)) == b""
        assert asked(listener.port, client(signer.certificate, good)).startswith(b"HTTP/1.1 200")


def test_the_names_of_the_certificate_are_answered_and_no_others(server: Path) -> None:
    known = terms(Http(hosts=("Proxy.example",), tls_server_config=files(server))).names
    for name in (
        "lab1.example:9945",
        "LAB1.example.",
        "a.wild.example",
        "proxy.example",
        "[::1]:1",
    ):
        assert asks_for(name, known), name
    for name in (
        "",
        "example",
        "wild.example",
        "a.b.wild.example",
        ".wild.example",
        "evil",
        "[::2]",
    ):
        assert not asks_for(name, known), name


class Files:
    """A settings file and a certificate that may change, and what is said of them."""

    def __init__(self, folder: Path, signer: Authority) -> None:
        self.signer = signer
        self.config = folder / "gpud.toml"
        self.told: list[Event] = []
        self.write("")
        self.settings = self.read()
        self.renewal = renewal.Renewal(
            self.settings,
            renewal.Source(self.config, self.read),
            self.told.append,
            every_s=0.02,
        )
        self.renewal.listening = True

    def write(self, text: str, *, of: str = "live") -> None:
        tls = files(self.signer.folder / f"{of}.pem")
        self.config.write_text(f"[http]\n{text}\n{section(tls)}\n")

    def read(self) -> Settings:
        return parse(self.config.read_bytes(), {}, origin=str(self.config))

    def health(self) -> HealthSet:
        return [event for event in self.told if isinstance(event, HealthSet)][-1]


@pytest.fixture
def watched(
    tmp_path: Path, signer: Authority
) -> Iterator[tuple[Files, Callable[[Callable[[Access], object]], None]]]:
    """Files, and a way to follow them until something holds of the access."""
    signer.signed("live")
    made = Files(tmp_path, signer)
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    access = loop.run_until_complete(made.renewal.first(stop))
    assert access is not None
    keeping = loop.create_task(made.renewal.keep(access, stop))

    async def follow(holds: Callable[[Access], object]) -> None:
        async with asyncio.timeout(60):
            while not holds(access):
                assert not keeping.done()
                await asyncio.sleep(0.01)

    yield made, lambda holds: loop.run_until_complete(follow(holds))
    stop.set()
    loop.run_until_complete(keeping)
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


Watched = tuple[Files, "Callable[[Callable[[Access], object]], None]"]


def test_users_and_certificates_are_taken_from_the_files_as_they_change(watched: Watched) -> None:
    made, follow = watched
    follow(lambda _: made.told and made.health().level == 0)
    before = [event for event in made.told if isinstance(event, CertificateRead)][-1].expires_s
    made.write(f'basic_auth_users = {{ alice = "{HASHED}" }}')
    follow(lambda access: "alice" in access.terms.users)
    made.signer.signed("live", "-days", "300")
    follow(
        lambda access: before is not None and access.terms.pair.expires_s > before + 200 * 86400  # type: ignore[union-attr]
    )
    told = [event.expires_s for event in made.told if isinstance(event, CertificateRead)]
    assert len(told) == 2


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda made: made.config.write_text("[http"), "settings_unusable"),
        (lambda made: made.config.write_text("[http]\nlisen = 1"), "settings_unusable"),
        (lambda made: made.config.unlink(), "settings_unusable"),
        (lambda made: made.config.write_text(""), "settings_unusable"),
        (lambda made: made.config.write_text("[http]\n"), "settings_unusable"),
        (lambda made: (made.signer.folder / "live.pem").write_text("x"), "key_pair_unusable"),
        (lambda made: made.write("", of="nothing"), "key_pair_unusable"),
    ],
    ids=["no TOML", "a typo", "gone", "empty", "half of it", "no certificate", "no files"],
)
def test_a_broken_file_keeps_what_held_and_is_named(
    watched: Watched, spoil: Callable[[Files], object], reason: str
) -> None:
    made, follow = watched
    seen: list[Access] = []

    def well(access: Access) -> bool:
        seen.append(access)
        return bool(made.told) and made.health().level == 0

    follow(well)
    held = seen[0].terms
    spoil(made)
    follow(lambda _: made.health().reason == reason)
    assert seen[0].terms is held
    assert made.health().level == 1
    named = (str(made.config), ".pem", "cert_file")
    assert any(one in str(made.health().detail) for one in named)
    assert made.health().fix
    made.signer.signed("live")
    made.write("")
    follow(lambda _: made.health().level == 0)


def test_two_weeks_before_its_end_a_certificate_is_told_of(watched: Watched) -> None:
    made, follow = watched
    made.signer.signed("live", "-days", "13")
    follow(lambda _: made.told and made.health().reason == "certificate_expires")
    made.signer.expired("live")
    follow(lambda _: made.health().reason == "certificate_expired")
    assert "live.pem" in str(made.health().detail)
    made.signer.signed("live")
    (made.signer.folder / "live.key").chmod(0o644)
    follow(lambda _: made.health().reason == "key_exposed")


def test_a_mode_that_is_put_right_is_seen(watched: Watched) -> None:
    made, follow = watched
    key = made.signer.folder / "live.key"
    key.chmod(0o644)
    follow(lambda _: made.told and made.health().reason == "key_exposed")
    key.chmod(0o640)  # the fix that it names
    follow(lambda _: made.health().level == 0)


def test_what_is_put_there_while_the_files_are_read_is_taken_next(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, follow = watched
    follow(lambda _: made.told and made.health().level == 0)
    again = [lambda: made.signer.signed("live", "-days", "300")]

    def slow(http: Http) -> Terms:
        read = terms(http)
        if again:
            again.pop()()
        return read

    monkeypatch.setattr(renewal, "terms", slow)
    made.signer.signed("live", "-days", "200")
    follow(lambda access: access.terms.pair.expires_s > time.time() + 290 * 86400)  # type: ignore[union-attr]


def test_looking_goes_on_after_a_failure_nobody_thought_of(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, follow = watched
    follow(lambda _: made.told and made.health().level == 0)

    def broken(_: Http) -> Terms:
        raise AttributeError("no such thing")

    with monkeypatch.context() as spoilt:
        spoilt.setattr(renewal, "terms", broken)
        made.write(f'basic_auth_users = {{ alice = "{HASHED}" }}')
        follow(lambda _: made.health().level == 1)
    made.write(f'basic_auth_users = {{ bob = "{HASHED}" }}')
    follow(lambda access: "bob" in access.terms.users and made.health().level == 0)


def test_an_address_others_reach_never_loses_its_lock_to_an_edited_file(
    tmp_path: Path, signer: Authority
) -> None:
    signer.signed("live")
    made = Files(tmp_path, signer)
    made.write(f'listen = "0.0.0.0:9945"\nbasic_auth_users = {{ alice = "{HASHED}" }}')
    kept = renewal.Renewal(made.read(), renewal.Source(made.config, made.read), made.told.append)
    made.write("")  # alone this is fine: it listens on the loopback address
    with pytest.raises(ConfigError, match="can be reached from outside"):
        kept._reread()


def test_while_the_first_certificate_cannot_be_used_it_is_said_and_looked_at_again(
    tmp_path: Path, signer: Authority
) -> None:
    signer.signed("live")
    made = Files(tmp_path, signer)
    key = signer.folder / "live.key"
    right = key.read_bytes()
    key.write_text("nothing")
    told = asyncio.Event()

    def post(event: Event) -> None:
        made.told.append(event)
        told.set()

    async def story() -> None:
        source = renewal.Source(made.config, made.read)
        watching = renewal.Renewal(made.settings, source, post, every_s=0.02)
        waiting = asyncio.create_task(watching.first(asyncio.Event()))
        async with asyncio.timeout(60):
            await told.wait()
            assert (made.health().level, made.health().reason) == (2, "key_pair_unusable")
            key.write_bytes(right)
            assert await waiting is not None

    asyncio.run(story())


def test_a_connection_made_on_other_terms_is_not_kept(signer: Authority, server: Path) -> None:
    with armed(section(files(server)), client(signer.certificate)) as listener:
        assert listener.https is not None
        listener.https.check_hostname = False
        with listener.connect() as one:
            one.sendall(b"GET /-/healthy HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert one.recv(65536)
            listener.loop.call_soon_threadsafe(listener.access.renew, listener.access.terms)
            one.settimeout(30)
            while one.recv(65536):
                pass
        assert listener.scrape() == 200
