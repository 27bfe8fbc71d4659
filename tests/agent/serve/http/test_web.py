"""The HTTP surface, asked as a client asks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest

from gpud.agent.serve.http.access import AccessControl, RefusalCounter
from gpud.agent.serve.http.app import app
from gpud.agent.serve.http.listener import bind, serve
from gpud.agent.serve.metrics.collector import SnapshotCollector
from gpud.core.errors import ListenError
from gpud.core.settings import parse
from tests import snapshots

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from starlette.routing import Route

    from gpud.agent.state.snapshot import Snapshot


@contextlib.contextmanager
def served(snapshot: Snapshot, more: Sequence[Route] = ()) -> Iterator[int]:
    """Serve one snapshot from a thread with a loop of its own; gives the port."""
    settings = parse(None, {})
    collector = SnapshotCollector(lambda: snapshot, settings, lambda: snapshots.NOW)
    inner = app(lambda: snapshot, settings, collector, lambda: snapshots.NOW, more)
    application = AccessControl(inner, settings.http, RefusalCounter())
    listener = bind("127.0.0.1", 0)
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    thread = threading.Thread(
        target=lambda: loop.run_until_complete(serve(application, listener, stop))
    )
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=10)
        listener.close()
        loop.close()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with served(snapshots.full()) as number:
        yield number


def ask(
    port: int, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        method=method,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


def test_a_plain_client_gets_the_text_format(port: int) -> None:
    code, headers, body = ask(port, "/metrics")
    assert (code, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b"gpud_build_info{" in body


def test_the_status_document_says_why_something_is_wrong(port: int) -> None:
    _, _, body = ask(port, "/api/v1/status")
    document = json.loads(body)
    assert document["schema_version"] == 1
    assert document["state"] == "failed"
    assert document["health"]["probes"]["reason"] == "verification_failed"
    assert {
        s["mode"] for p in document["probes"] if p["probe"] == "launch" for s in p["samples"]
    } == {
        "submit",
        "roundtrip",
        "pipelined",
    }


def test_the_whole_curve_of_the_crossover_is_in_the_status_document(port: int) -> None:
    document = json.loads(ask(port, "/api/v1/status")[2])
    (found,) = (probe for probe in document["probes"] if probe["probe"] == "crossover")
    assert found["curve"] == [
        {"n": 192, "cpu_s": 1.5e-4, "gpu_s": 2.2e-4},
        {"n": 256, "cpu_s": 3.1e-4, "gpu_s": 2.4e-4},
    ]


def test_a_reading_is_a_value_or_a_reason(port: int) -> None:
    readings = json.loads(ask(port, "/api/v1/status")[2])["telemetry"]["readings"]
    withheld = [r for r in readings if r["field"] == "utilization_memory_ratio"]
    assert [(r["value"], r["absent"]) for r in withheld] == [(None, "unsupported")]
    assert all((r["value"] is None) != (r["absent"] is None) for r in readings)


def test_a_foreign_host_header_is_refused(port: int) -> None:
    code, _, body = ask(port, "/api/v1/status", host="attacker.example")
    assert code == 421
    assert b"gpud_" not in body


@pytest.mark.parametrize("host", ["localhost:9945", "127.0.0.1", "[::1]:9945"])
def test_loopback_names_are_served(port: int, host: str) -> None:
    assert ask(port, "/-/healthy", host=host)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed_over_http(port: int, method: str) -> None:
    for path in ("/", "/metrics", "/api/v1/status", "/-/healthy"):
        assert ask(port, path, method=method)[0] == 405


def test_an_unknown_path_is_answered_in_plain_words(port: int) -> None:
    code, _, body = ask(port, "/nothing")
    assert (code, body) == (404, b"there is no '/nothing'; try / or /metrics\n")


def test_not_ready_before_the_first_probe_has_ended_but_alive(port: int) -> None:
    assert ask(port, "/-/ready")[0] == 200
    with served(snapshots.bare()) as number:
        assert ask(number, "/-/ready")[0] == 503
        assert ask(number, "/-/healthy")[0] == 200


def test_an_answer_on_a_kept_connection_is_sent_at_once() -> None:
    """asyncio turns Nagle's algorithm off where the listener says that it speaks TCP."""
    with bind("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_a_taken_port_is_named_with_who_has_it() -> None:
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        number = squatter.getsockname()[1]
        with pytest.raises(
            ListenError, match=rf"127.0.0.1:{number} is taken by \S+ \(process \d+\)"
        ) as caught:
            bind("127.0.0.1", number)
    assert caught.value.reason == "address_in_use"


def test_address_of_another_machine_is_reported_as_one_that_cannot_be_used() -> None:
    with pytest.raises(ListenError, match=r"cannot listen on 192\.0\.2\.1") as caught:
        bind("192.0.2.1", 0)
    assert caught.value.reason == "cannot_listen"
