"""Who listens on gpud's port: gpud, another process, or another distribution."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpud import portholder
from gpud.core.errors import KeyPairError
from gpud.core.http_settings import VERIFIED
from gpud.doctor.finding import Finding, advice, ok, problem, unknown

if TYPE_CHECKING:
    from gpud.core.http_settings import Http
    from gpud.doctor.machine import Machine

TITLE = "port"
ORDER = 190
SUMMARY = "gpud's address is served by gpud, or free; else who holds it"
FAILED = 2


def look(machine: Machine) -> Finding:
    """Read the kernel's table of listeners; no connection is made."""
    http = machine.settings.http
    if http.port == 0:
        return ok("port 0: the kernel chooses one at each start")
    served = machine.health("http")
    if machine.root is not None and served:
        if served.get("level"):
            fix = str(served.get("fix") or _elsewhere(http.port))
            make = problem if served.get("level") == FAILED else advice
            said = _detail(machine)
            return make(str(said or f"{http.listen} cannot be had"), fix)
        return ok(f"{machine.agent.get('url') or http.url}, served by gpud's agent{_terms(http)}")
    if machine.root is not None:  # it may listen before it says so
        words = "the agent has not said yet whether it listens there"
        return unknown(f"{http.listen}: {words}", "ask again in a moment")
    return _unusable(machine) or _free(machine)


def _detail(machine: Machine) -> str | None:
    """Return why the listener fails; root sees more processes than the agent."""
    document = portholder.with_listener(machine.agent, machine.at("/"))
    detail: str | None = document["health"]["http"].get("detail")
    return detail


def _free(machine: Machine) -> Finding:
    http = machine.settings.http
    listener = portholder.listener_of(http.port, machine.at("/"))
    if listener is None:
        return ok(f"{http.listen} is free")
    return problem(
        f"{http.listen} is held by {listener}, and gpud is not running",
        _elsewhere(http.port),
    )


def _terms(http: Http) -> str:
    asked = ["a password"] if http.basic_auth_users else []
    if http.tls_server_config.client_auth_type == VERIFIED:
        asked.append("a certificate")
    return f"; it asks for {' and '.join(asked)}" if asked else ""


def _unusable(machine: Machine) -> Finding | None:
    """Say what keeps the agent from speaking TLS; None where nothing does, or we may not look."""
    tls = machine.settings.http.tls_server_config
    if not tls.enabled:
        return None
    from gpud import keypair

    def at(path: str) -> str:
        return path and str(machine.at(path))

    try:
        keypair.load(
            replace(
                tls,
                cert_file=at(tls.cert_file),
                key_file=at(tls.key_file),
                client_ca_file=at(tls.client_ca_file),
            )
        )
    except KeyPairError as error:
        if error.unreadable:
            return None
        return problem(str(error), error.fix or "gpud config check says more")
    return None


def _elsewhere(port: int) -> str:
    return f'stop it, or choose another: [http] listen = "127.0.0.1:{port + 1 & 0xFFFF or 9946}"'
