"""On what terms somebody is let in: made whole from the settings, exchanged in one assignment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpud import keypair
from gpud.agent.web.tally import Tally

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from gpud.core.http_settings import Http

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104  # recognised, not bound


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for the next connection and the next request."""

    names: frozenset[str]  # that a request may ask for, without port, in small letters
    users: Mapping[str, str]  # bcrypt hash by name; empty: nobody is asked
    headers: tuple[tuple[bytes, bytes], ...] = ()  # beside gpud's own, or in their place
    pair: keypair.KeyPair | None = None  # None: no TLS
    client_names: frozenset[str] = frozenset()  # one of them must be in a client's certificate

    @property
    def context(self) -> ssl.SSLContext | None:
        """What answers a handshake."""
        return None if self.pair is None else self.pair.context


def terms(http: Http) -> Terms:
    """Make the terms. Blocks where there is TLS: files are read.

    Errors: ``KeyPairError`` when the files of ``[http.tls_server_config]`` cannot be used.
    """
    tls = http.tls_server_config
    pair = keypair.load(tls) if tls.enabled else None
    own = {http.host} - WILDCARDS
    asked = {*own, *http.hosts, *(pair.names if pair is not None else ())}
    return Terms(
        names=LOOPBACK | {_bracketed(name.lower()) for name in asked},
        users=dict(http.basic_auth_users),
        headers=tuple(
            (name.lower().encode(), value.encode())
            for name, value in http.http_server_config.headers.items()
        ),
        pair=pair,
        client_names=frozenset(tls.client_allowed_sans),
    )


def asks_for(host: str, known: frozenset[str]) -> bool:
    """Say whether a Host header (port and all) names this server; ``*.lab`` stands for one label.

    A page of a stranger whose name suddenly resolves to this machine asks under that name: DNS
    rebinding ends here.
    """
    bare, colon, port = host.rpartition(":")
    name = (bare if colon and port.isdigit() else host).lower().removesuffix(".")
    first, dot, rest = name.partition(".")
    return name in known or (bool(first and dot) and f"*.{rest}" in known)


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name and not name.startswith("[") else name


class Access:
    """The terms in force, who wants to hear when they change, and how many were turned away."""

    def __init__(self, first: Terms) -> None:
        self.terms = first
        self.tally = Tally()
        self._told: list[Callable[[], None]] = []

    def renew(self, terms: Terms) -> None:
        """Put other terms in force for everybody, at once."""
        self.terms = terms
        for tell in self._told:
            tell()

    def on_renewal(self, tell: Callable[[], None]) -> None:
        """Have ``tell`` called after each change."""
        self._told.append(tell)
