"""Check of gpud's port: gpud, another process or another distribution listens on it."""

from __future__ import annotations

from dataclasses import replace

from gpud import portholder
from gpud.core.errors import KeyPairError
from gpud.core.health import Health, Level
from gpud.core.http_settings import VERIFIED, Http
from gpud.doctor.finding import Finding, advice, ok, problem, unknown
from gpud.doctor.machine import Machine

TITLE = "port"
ORDER = 190
SUMMARY = "gpud's address is served by gpud, or free; else who holds it"


def look(machine: Machine) -> Finding:
    """Read the kernel's table of listeners; no connection is made."""
    http = machine.settings.http
    if http.port == 0:
        return ok("port 0: the kernel chooses one at each start")
    if machine.root is None:
        return _certificate_error(machine) or _free(machine)
    health = machine.health("http")
    if health is None:  # it may listen before it says so
        evidence = f"{http.listen}: the agent has not said yet whether it listens there"
        return unknown(evidence, "ask again in a moment")
    if health.level is Level.OK:
        return ok(f"{machine.agent.url or http.url}, served by gpud's agent{_credentials(http)}")
    make = problem if health.level is Level.FAILED else advice
    evidence = _detail(machine, health) or f"{http.listen} cannot be had"
    return make(evidence, health.fix or _another_port(http.port))


def _detail(machine: Machine, health: Health) -> str | None:
    """Return why the listener fails; root sees more processes than the agent."""
    http = {"reason": health.reason, "detail": health.detail}
    document = {"url": machine.agent.url, "health": {"http": http}}
    detail: str | None = portholder.with_listener(document, machine.at("/"))["health"]["http"][
        "detail"
    ]
    return detail


def _free(machine: Machine) -> Finding:
    http = machine.settings.http
    listener = portholder.listener_of(http.port, machine.at("/"))
    if listener is None:
        return ok(f"{http.listen} is free")
    evidence = f"{http.listen} is held by {listener}, and gpud is not running"
    return problem(evidence, _another_port(http.port))


def _credentials(http: Http) -> str:
    required = ["a password"] if http.basic_auth_users else []
    if http.tls_server_config.client_auth_type == VERIFIED:
        required.append("a certificate")
    return f"; it asks for {' and '.join(required)}" if required else ""


def _certificate_error(machine: Machine) -> Finding | None:
    """Say what keeps the agent from speaking TLS; None if nothing does, or we may not look."""
    tls = machine.settings.http.tls_server_config
    if not tls.enabled:
        return None
    from gpud import keypair

    def at(path: str) -> str:
        return path and str(machine.at(path))

    certificate, key, authority = at(tls.cert_file), at(tls.key_file), at(tls.client_ca_file)
    try:
        keypair.load(replace(tls, cert_file=certificate, key_file=key, client_ca_file=authority))
    except KeyPairError as error:
        if not error.unreadable:
            return problem(str(error), error.fix or "gpud config check says more")
    return None


def _another_port(port: int) -> str:
    return f'stop it, or choose another: [http] listen = "127.0.0.1:{port + 1 & 0xFFFF or 9946}"'
