"""Answers of the API: what each endpoint selects, refuses and says when the history is missing."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from msgspec import structs
from starlette.applications import Starlette
from starlette.routing import Route

from gpud.agent.alerts import state as alertstate
from gpud.agent.history import records
from gpud.agent.history.queries import MOST_EVENTS
from gpud.agent.history.records import Entry
from gpud.agent.history.store import History
from gpud.agent.serve.api import endpoints
from gpud.core.clock import Instant
from gpud.core.settings import parse
from gpud.core.stats import LATENCY_BOUNDS_S
from tests import snapshots
from tests.agent.serve.api.everything import ask_api, everything, state_folder
from tests.agent.serve.http.armed import ask, served
from tests.events import altered
from tests.histories import opened
from tests.snapshots import SLOWER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response

    from gpud.core.alerts import Alert

HOSTILE = "x\n\x1b[31m<script>$(reboot)"
FIRST_S = 1_700_000_000.0
PATHS = (
    "/api/v1/openapi.json",
    "/api/v1/probes",
    "/api/v1/history?probe=launch&until=1900000000&since=1890000000",
    "/api/v1/events",
    "/api/v1/alerts?since=0",
    "/api/v1/status",
)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with everything(tmp_path_factory.mktemp("home")) as number:
        yield number


# --- every answer --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
def test_answer_has_tag_gzip_and_head_of_the_same_content(port: int, path: str) -> None:
    _, headers, body = ask(port, path)
    assert (headers["vary"], headers["cache-control"]) == ("accept-encoding", "no-cache")
    _, packed, small = ask(port, path, accept_encoding="br;q=1.0, gzip;q=0.8, *;q=0.1")
    assert ("content-encoding" in packed) == (len(body) >= 1000)
    _, head, nothing = ask(port, path, method="HEAD")
    assert (head["content-type"], nothing) == ("application/json", b"")
    if path == "/api/v1/status":  # it has a moment in it
        return
    assert (head["etag"], head["content-length"]) == (headers["etag"], str(len(body)))
    for tag in (headers["etag"], f'"other", W/{headers["etag"]}', "*"):
        assert ask(port, path, if_none_match=tag)[::2] == (304, b"")
    assert ask(port, path, if_none_match='"other"')[2] == body
    if "content-encoding" in packed:
        assert gzip.decompress(small) == body
        assert packed["etag"] != headers["etag"]
        assert ask(port, path, if_none_match=headers["etag"], accept_encoding="gzip")[0] == 304


def test_status_is_encoded_once_a_second(tmp_path: Path) -> None:
    snapshot, history = snapshots.full(), History(tmp_path)
    moments = [Instant(1.7e9 + after_s, 100.0 + after_s) for after_s in (0.0, 0.9, 1.0)]
    clock = iter(moments)
    routes = endpoints.routes(lambda: snapshot, history, parse(None, {}), lambda: next(clock))

    async def written() -> list[float]:
        transport = httpx.ASGITransport(Starlette(routes=routes))
        async with httpx.AsyncClient(transport=transport, base_url="http://gpud") as client:
            return [(await client.get("/api/v1/status")).json()["written_s"] for _ in moments]

    assert asyncio.run(written()) == [1.7e9, 1.7e9, 1.7e9 + 1]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_nothing_can_be_changed_over_http(port: int, method: str) -> None:
    for path in ("/", "/metrics", "/-/healthy", "/runbooks/GpudDown", *PATHS):
        code, headers, body = ask(port, path, method=method)
        assert (code, set(headers["allow"].split(", "))) == (405, {"GET", "HEAD"})
        if path in PATHS:
            error = json.loads(body)["error"]
            assert (error["reason"], error["fix"]) == ("method_not_allowed", "use GET or HEAD")
        else:  # a person's line
            assert body.endswith(b"; use GET or HEAD\n")


@pytest.mark.parametrize(
    "path", ["/api/v1/nothing", "/api/v2/status", "/api/v1/status/", "/api/", "/api/%1b[31m"]
)
def test_unknown_path_is_refused_as_json(port: int, path: str) -> None:
    code, headers, body = ask(port, path)
    assert (code, headers["content-type"]) == (404, "application/json")
    assert json.loads(body)["error"]["reason"] == "no_such_path"
    assert b"\x1b" not in body
    assert ask(port, "/nothing")[2].endswith(b"; try / or /metrics\n")


def test_failure_of_gpud_is_answered_without_its_message() -> None:
    async def fails(_: Request) -> Response:
        raise RuntimeError("/srv/secret")

    with served(snapshots.bare(), [Route("/api/v1/broken", fails)]) as number:
        code, headers, body = ask(number, "/api/v1/broken")
    assert (code, headers["content-type"]) == (500, "application/json")
    assert json.loads(body)["error"]["reason"] == "internal"
    assert b"secret" not in body


@pytest.mark.parametrize(
    ("path", "query", "parameter", "fix"),
    [
        ("events", {"since": "yesterday"}, "since", "Unix seconds"),
        ("events", {"since": "2023-11-14T22:13:20"}, "since", "2023-11-14T22:13:20Z"),
        ("events", {"until": "nan"}, "until", "Unix seconds"),
        ("events", {"until": "1e999"}, "until", "Unix seconds"),
        ("events", {"until": ""}, "until", "Unix seconds"),
        ("events", {"since": "2", "until": "1"}, "since", "exchange"),
        ("events", {"kind": "drivers"}, "kind", "driver_version"),
        ("events", {"kind": ""}, "kind", "driver_version"),
        ("events", {"limit": "0"}, "limit", "1 to 1000"),
        ("events", {"limit": "1001"}, "limit", "1 to 1000"),
        ("events", {"limit": "-1"}, "limit", "1 to 1000"),
        ("events", {"limit": "²"}, "limit", "1 to 1000"),
        ("events", {"limit": "9" * 5000}, "limit", "1 to 1000"),
        ("events", {"limit": ["1", "2"]}, "limit", "once"),
        ("events", {"form": "\x1b[31m"}, "form", "since"),
        ("status", {"callback": "evil"}, "callback", "leave it out"),
        ("probes", {"callback": "evil"}, "callback", "leave it out"),
        ("alerts", {"until": "3"}, "until", "since"),
        ("alerts", {"since": "soon"}, "since", "Unix seconds"),
        ("history", {}, "probe", "probe=launch"),
        ("history", {"probe": ""}, "probe", "its name"),
        ("history", {"probe": "launch", "since": "2", "until": "1"}, "since", "exchange"),
        ("history", {"probe": "launch", "since": "0"}, "since", "less"),
        ("history", {"probe": "launch", "points": "2001"}, "points", "1 to 2000"),
        ("history", {"probe": "launch", "mode": ["a"] * 33}, "mode", "32"),
        ("history", {"probe": "launch", "mode": ",".join("a" * 33)}, "mode", "32"),
        ("history", {"probe": "launch", "mode": "submit,"}, "mode", "modes"),
        ("history", {"probe": ["launch", "event"]}, "probe", "once"),
    ],
)
def test_unusable_value_is_refused_with_its_parameter_and_the_fix(
    tmp_path: Path, path: str, query: dict[str, Any], parameter: str, fix: str
) -> None:
    code, document = ask_api(tmp_path, path, **query)
    error = document["error"]
    assert (code, document["schema_version"], error["parameter"]) == (400, 1, parameter)
    assert fix in error["fix"]
    assert len(error["detail"]) < 200
    assert ("is missing" in error["detail"]) is (parameter not in query)
    assert "\x1b" not in error["detail"]


# --- /api/v1/events ------------------------------------------------------------------------------


def entry(number: int, kind: str = "driver_version") -> Entry:
    return Entry(FIRST_S + number, kind, {"old": str(number), "new": str(number + 1)})


def write_events(home: Path, *entries: Entry) -> None:
    with opened(state_folder(home)) as store:
        store.write(records.write_events, entries)


def events(home: Path, **query: Any) -> list[str]:
    code, document = ask_api(home, "events", **query)
    assert (code, document["schema_version"]) == (200, 1)
    return [event["old"] for event in document["events"]]


def test_events_are_selected_by_time_kind_and_number_newest_first(tmp_path: Path) -> None:
    write_events(tmp_path, *(entry(i, "kernel" if i % 2 else "gpus") for i in range(6)))
    newest = ask_api(tmp_path, "events")[1]["events"][0]
    assert newest == {"old": "5", "new": "6", "kind": "kernel", "at_s": FIRST_S + 5}
    query: dict[str, Any]
    for query, expected in (
        ({"since": str(FIRST_S + 4)}, ["5", "4"]),
        ({"until": str(FIRST_S + 2)}, ["1", "0"]),
        ({"since": "2023-11-14T22:13:24Z"}, ["5", "4"]),
        ({"since": "2023-11-15T00:13:24+02:00"}, ["5", "4"]),
        ({"kind": "kernel"}, ["5", "3", "1"]),
        ({"kind": "kernel,gpus"}, ["5", "4", "3", "2", "1", "0"]),
        ({"kind": ["gpus", "kernel"], "limit": "2"}, ["5", "4"]),
        ({"kind": "boot_id"}, []),
        ({"kind": "baseline_accepted,baseline_reset,alert_acknowledged"}, []),
    ):
        assert events(tmp_path, **query) == expected, query


def test_more_says_whether_the_limit_cut_events_off(tmp_path: Path) -> None:
    def more(**query: Any) -> bool:
        return bool(ask_api(tmp_path, "events", **query)[1]["more"])

    write_events(tmp_path, *(entry(i) for i in range(MOST_EVENTS)))
    assert more()
    assert not more(limit=MOST_EVENTS)
    write_events(tmp_path, entry(MOST_EVENTS))
    assert more(limit=MOST_EVENTS)


def test_history_that_cannot_be_read_is_a_503_with_its_reason(tmp_path: Path) -> None:
    code, document = ask_api(tmp_path, "events")
    assert (code, document["error"]["reason"]) == (503, "no_directory")
    assert document["error"]["fix"].startswith("mkdir")
    snapshot = altered(snapshots.bare(), alerts=(SLOWER,))
    code, document = ask_api(tmp_path, "alerts", snapshot)
    assert (code, len(document["alerts"])) == (200, 1), "what fires needs no history"
    assert ask_api(tmp_path, "alerts", snapshot, since="0")[0] == 503


# --- /api/v1/alerts ------------------------------------------------------------------------------


def ended(begin_s: float, end_s: float, **values: Any) -> Alert:
    return structs.replace(SLOWER, starts_s=begin_s, updated_s=end_s, ends_s=end_s, **values)


def write_alerts(home: Path, *alerts: Alert) -> None:
    with opened(state_folder(home)) as store:
        store.write(lambda connection: alertstate.put(connection, alerts))


def moments(answer: tuple[int, dict[str, Any]]) -> list[tuple[float, float | None]]:
    return [(alert["starts_s"], alert["ends_s"]) for alert in answer[1]["alerts"]]


def test_alerts_are_what_fires_and_with_since_also_what_ended(tmp_path: Path) -> None:
    write_alerts(tmp_path, ended(100.0, 200.0), ended(300.0, 400.0), SLOWER)
    quiet = snapshots.bare()
    assert ask_api(tmp_path, "alerts", quiet)[1] == {
        "alerts": [],
        "more": False,
        "schema_version": 1,
    }
    firing = altered(quiet, alerts=(SLOWER, ended(300.0, 400.0)))
    (alert,) = ask_api(tmp_path, "alerts", firing)[1]["alerts"]
    assert (alert["fingerprint"], alert["runbook"], alert["firing"]) == (
        SLOWER.fingerprint,
        "/runbooks/GpudDriverRegression",
        True,
    )
    assert alert["evidence"][0]["stream"]["mode"] == "submit"
    current = (SLOWER.starts_s, None)
    for since, past in (
        ("0", [(300.0, 400.0), (100.0, 200.0)]),
        ("350", [(300.0, 400.0)]),
        ("1970-01-01T00:08:00Z", []),
    ):
        assert moments(ask_api(tmp_path, "alerts", firing, since=since)) == [current, *past]


def test_limit_of_alerts_skips_what_began_first(tmp_path: Path) -> None:
    write_alerts(tmp_path, *(ended(float(number), 900.0) for number in range(9)))
    quiet = snapshots.bare()
    code, document = ask_api(tmp_path, "alerts", quiet, since="0", limit="2")
    assert (code, document["more"]) == (200, True)
    assert [alert["starts_s"] for alert in document["alerts"]] == [8.0, 7.0]
    assert ask_api(tmp_path, "alerts", quiet, since="0", limit="9")[1]["more"] is False


def test_damaged_rows_of_alerts_are_skipped_and_hostile_text_stays_json(tmp_path: Path) -> None:
    write_alerts(tmp_path, ended(100.0, 200.0, summary=HOSTILE, labels={"x": HOSTILE}))
    damaged = [("a", 1.0, "[1]"), ("b", 2.0, "{"), ("c", 3.0, b"\xff"), ("d", 4.0, '{"x": 1e999}')]
    insert = "INSERT INTO alerts VALUES (?, ?, 1.0, NULL, ?)"
    with opened(state_folder(tmp_path)) as store:
        store.write(lambda connection: connection.executemany(insert, damaged))
    alerts = ask_api(tmp_path, "alerts", snapshots.bare(), since="0")[1]["alerts"]
    assert [alert["summary"] for alert in alerts] == [HOSTILE]


# --- /api/v1/probes ------------------------------------------------------------------------------


def test_probes_are_listed_with_their_last_run(tmp_path: Path) -> None:
    probes = {probe["name"]: probe for probe in ask_api(tmp_path, "probes")[1]["probes"]}
    assert list(probes) == sorted(spec.name for spec in snapshots.SPECS)
    launch = probes["launch"]
    fields = ("description", "pace", "interval_s", "unit", "modes")
    assert [launch[name] for name in fields] == [
        *("launches", "small", 60, "seconds"),
        ["submit", "roundtrip"],
    ]
    (run,) = launch["last"]
    assert (run["gpu"], run["uuid"]) == (0, snapshots.DEVICE.uuid)
    assert (run["flags"], run["failure"]) == (["busy", "low"], None)
    submit, roundtrip, _ = run["samples"]
    assert roundtrip["peaks"][0] == {"value": 13e-6, "share": 0.75}
    assert submit["buckets"]["upper_bounds_s"] == list(LATENCY_BOUNDS_S)
    assert len(submit["buckets"]["counts"]) == len(LATENCY_BOUNDS_S) + 1
    assert sum(submit["buckets"]["counts"]) == submit["n"]
    assert roundtrip["buckets"] is None
    (on_cpu,) = probes["cpu_call"]["last"]
    assert (on_cpu["gpu"], on_cpu["uuid"]) == (None, None)
    assert [point["n"] for point in probes["crossover"]["last"][0]["curve"]] == [192, 256]
    assert probes["triad"]["last"][0]["skipped"] == "gpu_busy"
    unlisted = {"probes": [], "refused": {}, "schema_version": 1}
    assert ask_api(tmp_path, "probes", snapshots.bare())[1] == unlisted
