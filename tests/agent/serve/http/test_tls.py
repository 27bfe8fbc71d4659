"""TLS: what is accepted of files and clients, and a renewed certificate without a restart."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import time
from typing import TYPE_CHECKING

import pytest

from gpud import keypair
from gpud.agent.serve.http import service
from gpud.agent.serve.http.access import AccessControl, RefusalCounter
from gpud.agent.serve.http.certificate import Certificate
from gpud.agent.serve.http.service import HttpService
from gpud.agent.state.board import Board
from gpud.core.errors import KeyPairError
from gpud.core.http_settings import HttpSettings, TlsServerConfig
from tests.agent.serve.http.armed import Armed, Authority, armed, authority, client, openssl
from tests.snapshots import bare
from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.types import Receive, Scope, Send

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
    """Write the settings in TOML."""
    default = TlsServerConfig()
    lines = ["[http.tls_server_config]"]
    for name in TlsServerConfig.__struct_fields__:
        value = getattr(tls, name)
        if value != getattr(default, name):
            lines.append(f"{name} = {list(value) if isinstance(value, tuple) else value!r}")
    return "\n".join(lines)


def test_certificate_has_its_names_and_its_end(signer: Authority, server: Path) -> None:
    pair = keypair.load(files(server))
    assert pair.names == {"lab1.example", "*.wild.example", "127.0.0.1"}
    assert 89 * 86400 < pair.expires_s - time.time() < 91 * 86400
    sans = "DNS:Lab1.example,email:root@lab1.example,URI:spiffe://lab1,RID:1.2.3,dirName:own"
    own = signer.folder / "own.cnf"
    own.write_text("[req]\ndistinguished_name=own\n[own]\nCN=lab1\n")
    made = signer.signed("kinds", "-days", "90", "-config", str(own), sans=sans)
    assert keypair.load(files(made)).names == {"lab1.example"}, "other kinds of names are skipped"


def _piped(_: Path, key: Path) -> None:
    key.unlink()
    os.mkfifo(key)


def _of_another(certificate: Path, key: Path) -> None:
    key.write_bytes((certificate.parent / "server.key").read_bytes())


def _locked(_: Path, key: Path) -> None:
    locked = key.with_suffix(".locked")
    openssl("pkey", "-in", str(key), "-aes128", "-passout", "pass:abcd", "-out", str(locked))
    locked.rename(key)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda _, k: k.unlink(), "key_file .*: No such file"),
        (lambda c, _: c.write_text("nothing"), "cannot be used"),
        (lambda _, k: k.write_text("nothing"), "holds no private key"),
        (_piped, "no plain file"),
        (lambda c, _: c.write_bytes(c.read_bytes()[:300]), "cannot be used"),
        (_of_another, "do not belong together"),
        (_locked, "passphrase"),  # it is not asked for on the terminal
    ],
    ids=["gone", "no certificate", "no key", "a pipe", "half of it", "of another", "locked"],
)
def test_files_that_cannot_be_used_are_named(
    signer: Authority, server: Path, spoil: Callable[[Path, Path], object], words: str
) -> None:
    made = signer.signed("spoiled")
    assert server.parent == made.parent
    spoil(made, made.with_suffix(".key"))
    with pytest.raises(KeyPairError, match=words) as caught:
        keypair.load(files(made))
    assert str(signer.folder) in str(caught.value)
    made.with_suffix(".key").unlink(missing_ok=True)


@pytest.mark.parametrize("suite", ["ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA384"])
def test_only_suites_with_forward_secrecy_and_authentication_are_spoken(
    signer: Authority, server: Path, suite: str
) -> None:
    context = keypair.load(files(server)).context
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    offered = context.get_ciphers()
    of_tls12 = {connection["name"] for connection in offered if connection["protocol"] == "TLSv1.2"}
    assert of_tls12 == set(keypair.CIPHERS.split(":"))
    with armed(section(files(server)), client(signer.certificate)) as listener:
        assert listener.https is not None
        listener.https.check_hostname = False
        listener.https.maximum_version = ssl.TLSVersion.TLSv1_2
        with listener.connect() as connection:
            assert isinstance(connection, ssl.SSLSocket)
            assert connection.version() == "TLSv1.2"
        listener.https.set_ciphers(suite)
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            listener.connect()


def answer_to(port: int, https: ssl.SSLContext) -> bytes:
    """Ask once; what comes, b"" from who sends away."""
    with contextlib.suppress(ssl.SSLError, ConnectionResetError, BrokenPipeError):
        raw = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
        with raw, https.wrap_socket(raw, server_hostname="127.0.0.1") as connection:
            connection.sendall(
                b"GET /-/healthy HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
            )
            received = b""
            while piece := connection.recv(65536):
                received += piece
            return received
    return b""


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_only_certificates_of_the_authority_are_let_in(
    signer: Authority, server: Path, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    tls = files(server, client_auth_type=VERIFY, client_ca_file=str(signer.certificate))
    stranger = authority(tmp_path / "stranger")
    good = signer.signed("good", sans="DNS:prometheus.example")
    old = signer.expired("past", "DNS:prometheus.example")
    foreign = stranger.signed("foreign", sans="DNS:prometheus.example")
    server_only = signer.signed(
        "web", "-addext", "extendedKeyUsage=serverAuth", sans="DNS:prometheus.example"
    )

    def answer(certificate: Path | None) -> bytes:
        https = client(signer.certificate, certificate)
        https.maximum_version = version
        return answer_to(listener.port, https)

    with armed(section(tls)) as listener:
        assert answer(good).startswith(b"HTTP/1.1 200")
        for certificate in (None, old, foreign, server_only):
            assert answer(certificate) == b""
        # A renewed certificate, and clients are asked for theirs as before.
        signer.signed("server", sans="IP:127.0.0.1")
        assert listener.certificate is not None
        listener.certificate.check()
        assert answer(good).startswith(b"HTTP/1.1 200")
        assert answer(foreign) == b""


def test_the_names_of_the_certificate_are_answered_and_no_others(signer: Authority) -> None:
    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError

    made = signer.signed("named", sans="DNS:lab1.example,DNS:*.wild.example,IP:127.0.0.1")
    http = HttpSettings(hosts=("Proxy.example",), tls_server_config=files(made))
    access = AccessControl(inner, http, RefusalCounter(), Certificate(http.tls_server_config))
    for name in (
        "lab1.example:9945",
        "LAB1.example.",
        "a.wild.example",
        "proxy.example",
        "[::1]:1",
    ):
        assert access.serves(name), name
    for name in ("", "example", "wild.example", "a.b.wild.example", ".wild.example", "[::2]"):
        assert not access.serves(name), name


def served_certificate(listener: Armed) -> bytes | None:
    with listener.connect() as connection:
        assert isinstance(connection, ssl.SSLSocket)
        return connection.getpeercert(binary_form=True)


def test_renewed_certificate_is_served_and_a_broken_one_changes_nothing(
    signer: Authority, tmp_path: Path
) -> None:
    made = signer.signed("live")
    with armed(section(files(made)), client(signer.certificate)) as listener:
        certificate = listener.certificate
        assert certificate is not None
        assert certificate.check().level == 0
        first = served_certificate(listener)
        made.write_text("nothing")
        health = certificate.check()
        assert (health.level, health.reason) == (1, "key_pair_unusable")
        assert str(made) in str(health.detail)
        assert health.fix
        assert certificate.check().level == 1, "it is reported until it is mended"
        assert served_certificate(listener) == first
        signer.signed("live", "-days", "300")
        assert certificate.check().level == 0
        assert certificate.expires_s > time.time() + 290 * 86400
        assert served_certificate(listener) != first
        assert listener.scrape() == 200


def test_expiry_and_a_key_for_everybody_are_reported(signer: Authority) -> None:
    made = signer.signed("watched", "-days", "13")
    certificate = Certificate(files(made))
    assert certificate.check().reason == "certificate_expires"
    signer.expired("watched")
    health = certificate.check()
    assert (health.level, health.reason) == (1, "certificate_expired")
    assert "watched.pem" in str(health.detail)
    signer.signed("watched")
    key = made.with_suffix(".key")
    key.chmod(0o644)
    assert certificate.check().reason == "key_exposed"
    key.chmod(0o640)  # the fix that it names
    assert certificate.check().level == 0


def test_service_waits_for_a_certificate_and_then_for_its_address(
    signer: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "RETRY_S", 0.02)
    made = signer.signed("later")
    key = made.with_suffix(".key")
    right = key.read_bytes()
    key.write_text("nothing")
    squatter = socket.create_server(("127.0.0.1", 0))
    http = HttpSettings(
        listen=f"127.0.0.1:{squatter.getsockname()[1]}", tls_server_config=files(made)
    )

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError

    async def story() -> None:
        stop, board = asyncio.Event(), Board(bare())

        async def reason(expected: str | None) -> None:
            async with asyncio.timeout(60):
                while "http" not in board.read().health or (
                    board.read().health["http"].reason != expected
                ):
                    await board.changed.wait()
                    board.changed.clear()

        running = asyncio.create_task(HttpService(inner, http, board, stop).run())
        await reason("key_pair_unusable")
        assert board.read().health["http"].level == 2
        key.write_bytes(right)
        await reason("address_in_use")
        squatter.close()
        await reason(None)
        while board.read().http.certificate_expires_s is None:
            await board.changed.wait()
            board.changed.clear()
        stop.set()
        await running

    asyncio.run(story())
