"""Nothing over TCP does what the socket does: each request of it is a 404 or a 405."""

from __future__ import annotations

import typing
import urllib.error
import urllib.request

import pytest

from gpud.requests import ApiRequest
from tests.e2e.program import Program, only, program

NAMES = [kind.__struct_config__.tag for kind in typing.get_args(ApiRequest)]
ACTS = [name for name in NAMES if name not in {"history", "telemetry"}]
PLACES = ["/api/v1/{}", "/{}", "/-/{}", "/api/v1/alerts/{}", "/api/v1/baseline/{}"]


@pytest.fixture(scope="module")
def gpud() -> typing.Iterator[Program]:
    with program(probes=only("cpu_call")) as made:
        made.start()
        made.status_when(lambda d: d["probes"], "figures")
        yield made


def code(gpud: Program, method: str, path: str) -> int:
    request = urllib.request.Request(  # our own address
        f"http://127.0.0.1:{gpud.port}{path}", method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_socket_has_these_acts() -> None:
    assert set(ACTS) == {"ack", "accept", "reset", "forget", "probe", "top", "contexts"}


@pytest.mark.parametrize("act", ACTS)
def test_no_act_exists_over_tcp(gpud: Program, act: str) -> None:
    for place in PLACES:
        assert code(gpud, "POST", place.format(act)) == 404
        assert code(gpud, "GET", place.format(act)) == 404
