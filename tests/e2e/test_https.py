"""TLS and a password, seen from outside: Prometheus scrapes, the terminal needs neither."""

from __future__ import annotations

import json
import os
import pwd
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests.agent.serve.http.armed import HASHED, PASSPHRASE, Authority, authority, client
from tests.e2e.program import Program, only, program
from tests.e2e.scraping import number, prometheus
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("tls"))


def guarded(gpud: Program, signer: Authority) -> tuple[Path, Path]:
    """Give the program a certificate where its agent can read it, and one user."""
    made = signer.signed("server")
    there = gpud.home / "server.pem"
    there.write_bytes(made.read_bytes())
    key = gpud.home / "server.key"
    key.write_bytes(made.with_suffix(".key").read_bytes())
    key.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(key, pwd.getpwnam("nobody").pw_uid, 0)
    gpud.settings |= {
        "http.tls_server_config": {"cert_file": str(there), "key_file": str(key)},
        "http.basic_auth_users": {"prometheus": HASHED},
        "agent": {"user": "nobody"} if os.geteuid() == 0 else {},
    }
    return there, key


def report(gpud: Program) -> dict[str, Any]:
    try:
        result: dict[str, Any] = json.loads((gpud.run_dir / "agent.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return result


def test_prometheus_scrapes_over_tls_with_a_password_and_the_terminal_needs_none(
    signer: Authority, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text(PASSPHRASE)
    job = (
        f"scheme: https, tls_config: {{ca_file: {signer.certificate}}}, "
        f"basic_auth: {{username: prometheus, password_file: {tmp_path}/password}}"
    )
    with program(probes=only("cpu_call")) as gpud:
        guarded(gpud, signer)
        gpud.start()
        until(lambda: "http" in report(gpud).get("health", {}), "a listener")
        with prometheus(gpud.port, tmp_path, job=job) as port:
            until(lambda: number(port, "up{job='gpud'}") == 1, "a scrape", every_s=0.2)
            expiry = "gpud_http_certificate_expiry_timestamp_seconds - time()"
            until(lambda: number(port, expiry) > 80 * 86400, "its certificate", every_s=0.2)
            with client(signer.certificate).wrap_socket(
                socket.create_connection(("127.0.0.1", gpud.port)),
                server_hostname="localhost",
            ) as raw:
                raw.sendall(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
                assert raw.recv(65536).startswith(b"HTTP/1.1 401")
            refused = "gpud_http_refused_total{reason='unauthorized'}"
            until(lambda: number(port, refused) == 1, "who was turned away", every_s=0.2)
        for words in (("status",), ("status", "--json"), ("alerts",), ("doctor", "--json")):
            ran = gpud.cli(*words)
            assert ran.returncode in {0, 1}, ran.stderr


def test_a_key_that_cannot_be_read_stops_http_and_nothing_else_until_it_can(
    signer: Authority, tmp_path: Path
) -> None:
    with program(probes=only("cpu_call")) as gpud:
        _, key = guarded(gpud, signer)
        right = key.read_bytes()
        key.write_text("nothing")
        gpud.start()
        http = until(lambda: report(gpud).get("health", {}).get("http"), "a word on http")
        assert (http["level"], http["reason"]) == (2, "key_pair_unusable")
        assert str(key) in http["detail"]
        pid = gpud.agent_pid()
        until(lambda: report(gpud)["health"].get("probes"), "a probe all the same")
        key.write_bytes(right)
        until(lambda: report(gpud)["health"]["http"]["level"] == 0, "http again")
        assert gpud.agent_pid() == pid
