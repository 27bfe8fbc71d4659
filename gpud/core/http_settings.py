"""Settings of the listener: who may reach it, and what one client may take of it.

The names, values and defaults of ``tls_server_config``, ``http_server_config`` and
``basic_auth_users`` are those of Prometheus's exporter-toolkit. Terms that would let strangers in
are no settings: they are refused here, before anything listens.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from gpud.core.bounds import absolute, between
from gpud.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

HIGHEST_PORT = 65535
VERIFIED: Final = "RequireAndVerifyClientCert"
HASH: Final = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
COSTS: Final = range(4, 15)
"""Of bcrypt: each step doubles the time of a check; 14 takes more than a second of a core."""

Version: TypeAlias = Literal["TLS12", "TLS13"]
ClientAuth: TypeAlias = Literal[
    "NoClientCert",
    "RequestClientCert",
    "RequireAnyClientCert",
    "VerifyClientCertIfGiven",
    "RequireAndVerifyClientCert",
]
CipherSuite: TypeAlias = Literal[
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
]
"""Those of TLS 1.2 that are still good; those of 1.3 are not a matter of choice."""

SETTABLE: Final[Mapping[str, tuple[str, ...]]] = {
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}
"""Headers a person may set, and the values they take where those are certain ones."""


def loopback(host: str) -> bool:
    """Say whether only this machine reaches ``host``; no name but localhost is looked up."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsServerConfig:
    """The certificate, and what is asked of clients; empty: no TLS."""

    cert_file: str = ""
    key_file: str = ""
    client_auth_type: ClientAuth = "NoClientCert"
    client_ca_file: str = ""
    client_allowed_sans: tuple[str, ...] = ()
    min_version: Version = "TLS12"
    max_version: Version = "TLS13"
    cipher_suites: tuple[CipherSuite, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what does not go together, and what OpenSSL cannot be asked for."""
        absolute(self, "cert_file", "key_file", "client_ca_file", empty=True)
        if bool(self.cert_file) != bool(self.key_file):
            raise ValueError("cert_file and key_file belong together; set both or none")
        asked = self.client_auth_type
        if asked in {"RequestClientCert", "RequireAnyClientCert"}:
            raise ValueError(
                f"client_auth_type {asked} takes any certificate unseen, which proves nothing, and "
                f"OpenSSL verifies what it is given; use {VERIFIED}"
            )
        if (asked == "NoClientCert") == bool(self.client_ca_file):
            raise ValueError(
                f"client_ca_file and client_auth_type belong together: set {VERIFIED} and the file"
            )
        if self.client_allowed_sans and asked != VERIFIED:
            raise ValueError(f"client_allowed_sans needs client_auth_type {VERIFIED}")
        if asked != "NoClientCert" and not self.enabled:
            raise ValueError(f"client_auth_type {asked} needs cert_file and key_file")
        if self.min_version > self.max_version:
            raise ValueError("min_version is above max_version")
        if self.cipher_suites and self.min_version == "TLS13":
            raise ValueError(
                "cipher_suites are those of TLS 1.2, and min_version allows none of it"
            )

    @property
    def enabled(self) -> bool:
        """Whether TLS is spoken."""
        return bool(self.cert_file)

    @property
    def files(self) -> tuple[str, ...]:
        """Every file that is named."""
        named = (self.cert_file, self.key_file, self.client_ca_file)
        return tuple(path for path in named if path)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServerConfig:
    """Headers of every answer, beside or in place of gpud's own."""

    headers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse other headers than the toolkit's five, and what would end a header."""
        for name, value in self.headers.items():
            if name not in SETTABLE:
                raise ValueError(f"headers: only {', '.join(SETTABLE)} can be set, not {name!a}")
            if SETTABLE[name] and value not in SETTABLE[name]:
                raise ValueError(f"headers: {name} must be {' or '.join(SETTABLE[name])}")
            if not (value.isascii() and value.isprintable() and value.strip() == value != ""):
                raise ValueError(f"headers: the value of {name} is none a header can have")


@dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    """The one listener; nothing over HTTP changes state."""

    listen: str = "127.0.0.1:9945"
    hosts: tuple[str, ...] = ()  # further names it is asked for under
    basic_auth_users: dict[str, str] = field(default_factory=dict)  # name: bcrypt hash
    allow_plaintext_auth: bool = False  # where the network itself encrypts, as WireGuard does
    max_connections: int = 256
    max_connections_per_peer: int = 128
    read_header_timeout_s: float = 10.0  # of a request, and of the TLS handshake
    idle_timeout_s: float = 65.0  # above Prometheus's scrape interval: one connection is kept
    write_timeout_s: float = 30.0  # of a whole answer
    tls_server_config: TlsServerConfig = field(default_factory=TlsServerConfig)
    http_server_config: HttpServerConfig = field(default_factory=HttpServerConfig)

    def __post_init__(self) -> None:
        """Refuse an address that is not HOST:PORT, and what no user or machine is called."""
        host, colon, port = self.listen.rpartition(":")
        number = int(port) if re.fullmatch(r"[0-9]{1,5}", port) else HIGHEST_PORT + 1
        if not (colon and host and number <= HIGHEST_PORT):
            raise ValueError(f"listen must be HOST:PORT, such as 127.0.0.1:9945, not {self.listen}")
        between(self, "max_connections", low=16, high=4096)
        between(self, "max_connections_per_peer", low=4, high=4096)
        between(self, "read_header_timeout_s", "idle_timeout_s", low=1, high=3600)
        between(self, "write_timeout_s", low=1, high=3600)
        for name in self.hosts:
            if not (re.fullmatch(r"[A-Za-z0-9._-]+", name) or _address(name.strip("[]"))):
                raise ValueError(f"hosts: {name!a} is no name of a machine; leave the port out")
        for name, hashed in self.basic_auth_users.items():
            self._check_user(name, hashed)

    @staticmethod
    def _check_user(name: str, hashed: str) -> None:
        """Refuse a name no header can carry and a hash that is none; the hash is not quoted."""
        if not name or ":" in name or not name.isprintable():
            raise ValueError(f"basic_auth_users: {name!a} is no user name: no colon, not empty")
        found = HASH.fullmatch(hashed)
        if found is None:
            raise ValueError(
                f"basic_auth_users: {name!a} has no bcrypt hash; see gpud config hash-password"
            )
        if int(found[1]) not in COSTS:
            raise ValueError(
                f"basic_auth_users: the cost of {name!a} must be {COSTS[0]} to {COSTS[-1]}, "
                f"not {int(found[1])}"
            )

    def check_access(self) -> None:
        """Reject an address that others reach without authentication or with it in the clear.

        Apart from the other checks: the users may stand in secrets.toml, which not everybody reads.
        Errors: ``ConfigError`` with a fix.
        """
        if loopback(self.host):
            return
        begin = f"listen: {self.host} can be reached from outside, and"
        secure = "cert_file and key_file in [http.tls_server_config]"
        if self.basic_auth_users and not (
            self.tls_server_config.enabled or self.allow_plaintext_auth
        ):
            raise ConfigError(
                f"{begin} passwords would cross the network in the clear",
                fix=f"set {secure}, or allow_plaintext_auth = true where the network encrypts",
            )
        if not (self.basic_auth_users or self.tls_server_config.client_auth_type == VERIFIED):
            raise ConfigError(
                f"{begin} nobody is asked who he is",
                fix=f"set basic_auth_users (gpud config hash-password) and {secure}, "
                "or use 127.0.0.1, [::1] or localhost",
            )

    @property
    def host(self) -> str:
        """The address without port and without the brackets of IPv6."""
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The TCP port; 0 lets the kernel choose."""
        return int(self.listen.rpartition(":")[2])

    @property
    def url(self) -> str:
        """The address of the page, as far as the settings know it.

        Who listens everywhere is reached on this machine too; 0.0.0.0 is nothing to open.
        """
        everywhere = self.host in {"", "::"} or self.host == "0.0.0.0"  # noqa: S104  # only asked
        host = "localhost" if everywhere else self.host
        host = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls_server_config.enabled else 'http'}://{host}:{self.port}"
