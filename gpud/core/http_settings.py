"""Settings of the listener: its address, users and certificate; and bounds of every setting.

The names and values of ``tls_server_config`` and ``basic_auth_users`` are those of Prometheus's
exporter-toolkit. An address that others reach without authentication is refused.
"""

import math
import re
from typing import Any, Final, Literal, TypeAlias

import msgspec

from gpud.core.errors import ConfigError

HIGHEST_PORT = 65535
VERIFIED: Final = "RequireAndVerifyClientCert"
HASH: Final = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
COSTS: Final = range(4, 15)
"""Of bcrypt: each step doubles the time of a check; 14 takes more than a second of a core."""

ClientAuth: TypeAlias = Literal[
    "NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"
]


def between(owner: Any, *names: str, low: float, high: float = math.inf) -> None:  # noqa: ANN401
    """Refuse values outside ``low..high``; a NaN fails every comparison and so is refused too."""
    for name in names:
        value = getattr(owner, name)
        if not (low <= value <= high and math.isfinite(value)):
            limit = f"at least {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
            raise ValueError(f"{name} must be {limit}, not {value}")


def absolute(owner: Any, *names: str, empty: bool = False) -> None:  # noqa: ANN401
    """Refuse relative paths, as ``absolute_path``."""
    for name in names:
        absolute_path(name, getattr(owner, name), empty=empty)


def absolute_path(name: str, path: str, *, empty: bool = False) -> None:
    """Refuse a relative path: what it means would depend on where gpud was started."""
    if not path.startswith("/") and not (empty and not path):
        raise ValueError(f"{name} must be an absolute path, not {path or 'empty'}")


def loopback(host: str) -> bool:
    """Say whether only this machine reaches ``host``; no name but localhost is looked up."""
    if host in {"localhost", "127.0.0.1"}:
        return True
    import ipaddress  # takes 1.5 ms

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _address(text: str) -> bool:
    import ipaddress

    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


class TlsServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The certificate, and whether clients must show one; empty: no TLS."""

    cert_file: str = ""
    key_file: str = ""
    client_auth_type: ClientAuth = "NoClientCert"
    client_ca_file: str = ""

    def __post_init__(self) -> None:
        """Reject settings that do not go together."""
        absolute(self, "cert_file", "key_file", "client_ca_file", empty=True)
        if bool(self.cert_file) != bool(self.key_file):
            raise ValueError("cert_file and key_file belong together; set both or none")
        if (self.client_auth_type == "NoClientCert") == bool(self.client_ca_file):
            raise ValueError(
                f"client_ca_file and client_auth_type belong together: set {VERIFIED} and the file"
            )
        if self.client_ca_file and not self.enabled:
            raise ValueError(
                f"client_auth_type {self.client_auth_type} needs cert_file and key_file"
            )

    @property
    def enabled(self) -> bool:
        """Whether TLS is spoken."""
        return bool(self.cert_file)


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The one listener; nothing over HTTP changes state."""

    listen: str = "127.0.0.1:9945"
    hosts: tuple[str, ...] = ()  # further names it is asked for under
    basic_auth_users: dict[str, str] = {}  # name: bcrypt hash
    allow_plaintext_auth: bool = False  # where the network itself encrypts, as WireGuard does
    tls_server_config: TlsServerConfig = TlsServerConfig()

    def __post_init__(self) -> None:
        """Reject an address that is not HOST:PORT, and impossible names of users and machines."""
        host, colon, port = self.listen.rpartition(":")
        number = int(port) if re.fullmatch(r"[0-9]{1,5}", port) else HIGHEST_PORT + 1
        if not (colon and host and number <= HIGHEST_PORT):
            raise ValueError(f"listen must be HOST:PORT, such as 127.0.0.1:9945, not {self.listen}")
        for name in self.hosts:
            if not (re.fullmatch(r"[A-Za-z0-9._-]+", name) or _address(name.strip("[]"))):
                raise ValueError(f"hosts: {name!a} is no name of a machine; leave the port out")
        for name, hashed in self.basic_auth_users.items():
            self._check_user(name, hashed)

    @staticmethod
    def _check_user(name: str, hashed: str) -> None:
        """Reject a name that no header can carry, and a hash that is none; it is not quoted."""
        if not name or ":" in name or not name.isprintable():
            raise ValueError(f"basic_auth_users: {name!a} is no user name: no colon, not empty")
        match = HASH.fullmatch(hashed)
        if match is None:
            raise ValueError(
                f"basic_auth_users: {name!a} has no bcrypt hash; see gpud config hash-password"
            )
        if int(match[1]) not in COSTS:
            raise ValueError(
                f"basic_auth_users: the cost of {name!a} must be {COSTS[0]} to {COSTS[-1]}, "
                f"not {int(match[1])}"
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
        """The address of the page; a listener on all addresses is reached as localhost."""
        everywhere = self.host in {"", "::"} or self.host == "0.0.0.0"  # noqa: S104  # only asked
        host = "localhost" if everywhere else self.host
        host = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls_server_config.enabled else 'http'}://{host}:{self.port}"
