"""Certificate and key of the listener: files in, a TLS context that works out.

The agent serves with it; ``gpud config check`` checks it before. A handshake in memory proves that
certificate and key work together, and shows the content of the certificate, which ``ssl`` offers
for a peer's certificate only.
"""

from __future__ import annotations

import contextlib
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpud import regular_file
from gpud.core.errors import KeyPairError

if TYPE_CHECKING:
    from gpud.core.http_settings import TlsServerConfig

LARGEST: Final = 1024 * 1024
ROUNDS: Final = 6
"""Of a handshake in memory; TLS 1.2 takes four."""
NO_CHECK_TIME: Final = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME, which ``ssl`` does not name: an expired one is to be read too."""

CIPHERS: Final = ":".join(
    f"ECDHE-{key}-{cipher}"
    for cipher in ("AES128-GCM-SHA256", "AES256-GCM-SHA384", "CHACHA20-POLY1305")
    for key in ("ECDSA", "RSA")
)
"""Of TLS 1.2: only those with forward secrecy and authenticated encryption."""
NAMES: Final = frozenset({"DNS", "IP Address"})
"""Kinds of subject alternative names that a machine is asked for by."""
VERIFY: Final = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A TLS context that works, and the content of its certificate."""

    context: ssl.SSLContext
    expires_s: float  # Unix time
    names: frozenset[str]  # of machines and addresses, in small letters
    key_exposed: bool  # everybody on the machine may read the key


def load(tls: TlsServerConfig) -> KeyPair:
    """Read the files, make the context and try it. Blocks: the files may lie anywhere.

    Errors: ``KeyPairError`` naming the setting and the file, and what to do.
    """
    certificate = _text("cert_file", tls.cert_file)
    key = _text("key_file", tls.key_file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # a client could make us compute for ever
    context.set_alpn_protocols(["http/1.1"])
    context.set_ciphers(CIPHERS)
    _fill(context, tls, key)
    content = _tried(context, tls, certificate)
    context.verify_mode = VERIFY[tls.client_auth_type]
    if tls.client_ca_file:
        _text("client_ca_file", tls.client_ca_file)
        try:
            context.load_verify_locations(cafile=tls.client_ca_file)
        except (ssl.SSLError, OSError) as error:
            raise KeyPairError(
                f"client_ca_file {tls.client_ca_file} holds no certificate in PEM form",
                fix="put the certificate of the authority that signs the clients' there",
            ) from error
    return KeyPair(
        context,
        expires_s=ssl.cert_time_to_seconds(content["notAfter"]),
        names=frozenset(
            name.lower() for kind, name in content.get("subjectAltName", ()) if kind in NAMES
        ),
        key_exposed=bool(Path(tls.key_file).stat().st_mode & stat.S_IROTH),
    )


def _text(setting: str, path: str) -> str:
    """Read a file whole; a pipe in its place keeps nobody waiting."""
    try:
        return regular_file.read(path, LARGEST).decode("ascii", "replace")
    except regular_file.NotRegularError as error:
        raise KeyPairError(f"{setting} {path} is no plain file") from error
    except PermissionError as error:
        raise KeyPairError(
            f"{setting} {path} cannot be read: {error.strerror}",
            fix=f"sudo chgrp gpud {path} && sudo chmod 640 {path}, and let gpud enter its folder",
            unreadable=True,
        ) from error
    except OSError as error:
        raise KeyPairError(
            f"{setting} {path} cannot be read: {error.strerror}",
            fix=f"put the file there, or correct {setting} in [http.tls_server_config]",
        ) from error


def _fill(context: ssl.SSLContext, tls: TlsServerConfig, key: str) -> None:
    def locked() -> str:  # without this OpenSSL asks on the terminal
        raise KeyPairError(
            f"key_file {tls.key_file} is locked with a passphrase, and nobody is there to type it",
            fix="unlock it: openssl pkey -in LOCKED -out KEY, readable by gpud alone",
        )

    try:
        context.load_cert_chain(tls.cert_file, tls.key_file, password=locked)
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = str(getattr(error, "reason", "") or "")
        pair = f"cert_file {tls.cert_file} and key_file {tls.key_file}"
        if reason in {"KEY_VALUES_MISMATCH", "NO_CERTIFICATE_ASSIGNED"}:  # the latter: RSA and EC
            words = f"{pair} do not belong together"
        elif "PRIVATE KEY-----" not in key:
            words = f"key_file {tls.key_file} holds no private key in PEM form"
        else:
            words = f"{pair} cannot be used: {reason.replace('_', ' ').lower() or 'no PEM'}"
        raise KeyPairError(
            words, fix="put certificate and key of one pair there, as PEM"
        ) from error


def _tried(server: ssl.SSLContext, tls: TlsServerConfig, certificate: str) -> dict[str, Any]:
    """Shake hands with ourselves, trusting this one certificate; gives what it says."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VerifyFlags(NO_CHECK_TIME)
    try:
        client.load_verify_locations(cadata=certificate)
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends = (
            client.wrap_bio(to_client, to_server),
            server.wrap_bio(to_server, to_client, server_side=True),
        )
        for _ in range(ROUNDS):
            for end in ends:
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()
        content = ends[0].getpeercert()
    except (ssl.SSLError, ValueError) as error:
        words = str(getattr(error, "verify_message", "") or getattr(error, "reason", "") or error)
        raise KeyPairError(
            f"cert_file {tls.cert_file} does not serve with these settings: "
            f"{words.replace('_', ' ').lower()}",
            fix="use a certificate for servers with an EC or RSA key",
        ) from error
    if not content:
        raise KeyPairError(f"cert_file {tls.cert_file} cannot be read back")
    return content
