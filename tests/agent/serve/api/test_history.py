"""/api/v1/history: what it thins out and how, what it refuses, and what it never holds up."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import httpx
import pytest
from starlette.applications import Starlette
from starlette.datastructures import QueryParams

from gpud.agent.history import charts, retention, rollups
from gpud.agent.history.store import History
from gpud.agent.serve.api import probes
from gpud.agent.serve.api.history import MOST_QUERIES, PATH, Charts, parsed, route
from gpud.agent.serve.http.response import Body
from gpud.core.sample import Flag
from gpud.core.settings import parse
from gpud.core.stats import quantile
from tests import snapshots
from tests.histories import BEGUN_S, DAY_S, HOUR_S, done, failed, hours, opened, run

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.routing import Route

NOW_S = float(BEGUN_S + DAY_S)


def client(folder: Path, *more: Route) -> httpx.AsyncClient:
    routes = [route(Charts(str(folder)), snapshots.full, lambda: NOW_S), *more]
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(Starlette(routes=routes)), base_url="http://gpud"
    )


async def asking(folder: Path, *queries: dict[str, Any]) -> list[httpx.Response]:
    async with client(folder) as asks:
        return await asyncio.gather(*(asks.get(PATH, params=query) for query in queries))


def ask(folder: Path, **query: Any) -> dict[str, Any]:
    snapshot = snapshots.full()
    question = parsed(QueryParams(urlencode(query, doseq=True)), snapshot, now_s=NOW_S)
    document: dict[str, Any] = json.loads(Body.of(charts.read(folder, question, snapshot)).plain)
    assert document["schema_version"] == 1
    return document


def errors(folder: Path, code: int, *queries: dict[str, Any]) -> list[dict[str, str]]:
    answers = asyncio.run(asking(folder, *queries))
    assert {answer.status_code for answer in answers} == {code}
    return [answer.json()["error"] for answer in answers]


class Gate:
    """Holds up every reading of the history until a test opens it, and counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.open, self.readings = threading.Event(), threading.Event(), 0
        read = charts.read

        def gated(*words: Any) -> charts.HistoryAnswer:
            self.readings += 1
            self.reached.set()
            assert self.open.wait(60)
            return read(*words)

        monkeypatch.setattr(charts, "read", gated)


def test_runs_are_thinned_out_and_their_ends_are_kept(tmp_path: Path) -> None:
    figures = [1e-5] * 58 + [9e-5, 1e-6]
    with opened(tmp_path) as store:
        store.append([run(BEGUN_S + 60.0 * n, figure) for n, figure in enumerate(figures)])
        store.append([run(BEGUN_S + 30.0, 5.0, flags=(Flag.BUSY,)), failed(BEGUN_S + 31.0)])
        store.append([run(BEGUN_S + 32.0, gpu="GPU-2", modes=("graph",))])
    found = ask(tmp_path, probe="launch", since=BEGUN_S, until=BEGUN_S + HOUR_S, points=2)
    assert (found["source"], found["step_s"]) == ("runs", HOUR_S / 2)
    first, second = found["series"]
    assert (second["gpu"], second["mode"]) == ("GPU-2", "graph")
    assert (first["gpu"], first["mode"], first["unit"]) == ("GPU-1", "submit", "seconds")
    assert first["at_s"] == [BEGUN_S, BEGUN_S + HOUR_S // 2]
    assert (first["n"], first["marked"]) == ([30, 30], [1, 0])
    assert first["maximum"] == [1e-5, 9e-5], "a marked run is counted, and that is all"
    assert (first["median"], first["minimum"]) == ([1e-5, 1e-5], [1e-5, 1e-6])
    assert first["drivers"] == [["572.16"], ["572.16"]]
    assert len({len(column) for column in first.values() if isinstance(column, list)}) == 1


@pytest.mark.parametrize("count", [1, 2, 3, 8, 11])
def test_quantiles_of_a_step_are_those_of_its_medians(tmp_path: Path, count: int) -> None:
    medians = [1e-5 * 1.7**n for n in range(count)]
    with opened(tmp_path) as store:
        store.append([run(NOW_S - 60 - n, figure) for n, figure in enumerate(medians)])
    (series,) = ask(tmp_path, probe="launch", points=1)["series"]
    for name, share in (("median", 0.5), ("p10", 0.1), ("p90", 0.9)):
        assert series[name] == [pytest.approx(quantile(medians, share), rel=1e-5)]


def test_a_step_of_marked_runs_only_has_counts_and_no_figure(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append([run(NOW_S - 60, flags=(Flag.LOW,))])
    (series,) = ask(tmp_path, probe="launch")["series"]
    assert (series["n"], series["marked"]) == ([0], [1])
    for name in ("median", "p10", "p90", "minimum", "maximum"):
        assert series[name] == [None]


def test_steps_without_a_run_are_left_out_and_the_holes_can_be_told(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append([run(NOW_S - DAY_S / 2), run(NOW_S - 60)])
    found = ask(tmp_path, probe="launch")
    (series,) = found["series"]
    early, late = series["at_s"]
    assert late - early > found["step_s"]
    assert all(at_s % found["step_s"] == 0 for at_s in series["at_s"])


def test_what_is_asked_a_moment_later_has_the_same_steps_and_the_same_tag(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append([run(NOW_S - 60.0 * number) for number in range(1, 1440)])
    first, second = asyncio.run(
        asking(
            tmp_path,
            {"probe": "launch", "since": NOW_S - DAY_S - 0.3, "until": NOW_S - 0.3},
            {"probe": "launch", "since": NOW_S - DAY_S - 0.1},
        )
    )
    assert first.json() == second.json()
    assert first.headers["etag"] == second.headers["etag"]
    assert len(first.json()["series"][0]["at_s"]) == DAY_S / first.json()["step_s"]


def test_a_grid_of_whole_seconds_is_kept_as_it_is_asked_for(tmp_path: Path) -> None:
    step_s, end_s = 231, BEGUN_S // 231 * 231 + 231 * 400
    with opened(tmp_path) as store:
        store.append([run(end_s - 60.0 * number) for number in range(1, 600)])
    whole = ask(tmp_path, probe="launch", since=end_s - 100 * step_s, until=end_s, points=100)
    assert whole["step_s"] == step_s
    last = ask(tmp_path, probe="launch", since=end_s - step_s, until=end_s, points=1)
    assert (last["since_s"], last["until_s"], last["step_s"]) == (end_s - step_s, end_s, step_s)
    (part,), (series,) = last["series"], whole["series"]
    assert [part["at_s"], part["median"]] == [series["at_s"][-1:], series["median"][-1:]]


def test_figures_are_told_to_six_digits(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append([run(NOW_S - 60, 1.23456789e-5)])
    assert ask(tmp_path, probe="launch")["series"][0]["median"] == [1.23457e-5]


def test_a_long_range_comes_from_hours_and_the_runs_after_them(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append(hours(40 * 24, since_s=NOW_S - 40 * DAY_S, each=2))
        done(store, rollups.roll_up)
        done(store, lambda open_: retention.forget_runs(open_, 30))
    midnight_s = NOW_S // DAY_S * DAY_S
    asked = {"since": midnight_s - 32 * DAY_S, "until": midnight_s}
    found = ask(tmp_path, probe="launch", points=32, **asked)
    assert (found["source"], found["step_s"]) == ("hours", DAY_S)
    (series,) = found["series"]
    assert series["n"] == [48] * 32


def test_modes_and_gpus_may_be_chosen(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append([run(NOW_S - 9, modes=("submit", "graph")), run(NOW_S - 8, gpu="GPU-2")])
    for query, expected in (
        ({}, 3),
        ({"mode": "submit"}, 2),
        ({"mode": ["submit", "graph"]}, 3),
        ({"mode": "submit,graph"}, 3),
        ({"gpu": ["GPU-1", "GPU-2"]}, 3),
        ({"gpu": "0"}, 0),
        ({"gpu": "GPU-2"}, 1),
        ({"gpu": "cpu"}, 0),
        ({"mode": "graph", "gpu": "GPU-2"}, 0),
        ({"probe": "triad"}, 0),
    ):
        assert len(ask(tmp_path, **{"probe": "launch", **query})["series"]) == expected, query


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ({}, "probe"),
        ({"probe": ""}, "probe"),
        ({"probe": "launch", "since": "yesterday"}, "since"),
        ({"probe": "launch", "since": "2", "until": "1"}, "since"),
        ({"probe": "launch", "since": "0"}, "since"),
        ({"probe": "launch", "points": "0"}, "points"),
        ({"probe": "launch", "mode": ["a"] * 33}, "mode"),
        ({"probe": "launch", "mode": ",".join("a" * 33)}, "mode"),
        ({"probe": "launch", "mode": "submit,"}, "mode"),
        ({"probe": "launch", "points": "2001"}, "points"),
        ({"probe": ["launch", "event"]}, "probe"),
        ({"probe": "launch", "driver": "1"}, "driver"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_name(
    tmp_path: Path, query: dict[str, Any], parameter: str
) -> None:
    (said,) = errors(tmp_path, 400, query)
    assert said["parameter"] == parameter


def test_what_neither_the_program_nor_the_history_knows_is_no_empty_answer(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append([run(NOW_S - 400 * DAY_S, gpu="GPU-9", probe="event", modes=("old",))])
    expected = (
        ({"probe": "lunch"}, "probe", "cpu_call, crossover, event, launch"),
        ({"probe": "launch", "mode": "submits"}, "mode", "roundtrip, submit"),
        ({"probe": "launch", "mode": "old"}, "mode", "roundtrip, submit"),
        ({"probe": "launch", "gpu": "7"}, "gpu", "cpu, 0 (GPU-"),
        ({"probe": "launch", "gpu": "GPU-8"}, "gpu", "GPU-9"),
    )
    found = errors(tmp_path, 404, *(query for query, _, _ in expected))
    for said, (_, parameter, fix) in zip(found, expected, strict=True):
        assert (said["parameter"], said["reason"]) == (parameter, f"unknown_{parameter}")
        assert fix in said["fix"]
    for query in ({"probe": "event", "mode": "old"}, {"probe": "launch", "gpu": "GPU-9"}):
        assert ask(tmp_path, **query)["series"] == []


def test_a_history_that_is_not_there_is_a_reason(tmp_path: Path) -> None:
    (said,) = errors(tmp_path, 503, {"probe": "launch"})
    assert said["reason"] == "no_history"


def test_a_long_question_holds_up_no_run_that_is_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)

    async def story() -> None:
        history = History(tmp_path)
        await history.append(run(NOW_S - 1))
        questions: list[dict[str, Any]] = [
            {"probe": "launch", "since": NOW_S - n * HOUR_S} for n in range(2, MOST_QUERIES + 3)
        ]
        async with client(tmp_path) as asks:
            asked = [
                asyncio.create_task(asks.get(PATH, params=query))
                for query in [*questions, *questions[:MOST_QUERIES]]
            ]
            await asyncio.to_thread(gate.reached.wait, 60)
            for number in range(20):
                await history.append(run(NOW_S - 2 - number))
            assert sum(one.done() for one in asked) == 1, "the one that is told to come again"
            gate.open.set()
            answers = await asyncio.gather(*asked)
        await history.close()
        assert sorted(answer.status_code for answer in answers) == [200] * 2 * MOST_QUERIES + [503]

    asyncio.run(story())


def test_fifty_who_ask_the_same_cost_what_one_does_and_hold_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as store:
        store.append([run(NOW_S - 60)])
    gate = Gate(monkeypatch)

    async def story() -> None:
        other = probes.route(snapshots.full, parse(None, {}).schedule)
        async with client(tmp_path, other) as asks:
            same = {"probe": "launch", "mode": "submit"}
            many = [asyncio.create_task(asks.get(PATH, params=same)) for _ in range(50)]
            await asyncio.to_thread(gate.reached.wait, 60)
            assert (await asks.get(probes.PATH)).status_code == 200
            assert not any(task.done() for task in many)
            many[0].cancel()  # who hangs up takes nobody's answer away
            gate.open.set()
            answers = await asyncio.gather(*many[1:])
            again = await asks.get(PATH, params=same)
        assert {answer.status_code for answer in answers} == {200}
        assert {answer.content for answer in [*answers, again]} == {again.content}

    asyncio.run(story())
    assert gate.readings == 1


def test_damaged_figures_and_fields_are_no_figures(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append([run(NOW_S - 60, 1e-5), run(NOW_S - 61, 2e-5), run(NOW_S - 62, 3e-5)])
        spoilt = "UPDATE samples SET median = ?, maximum = ? WHERE median = ?"
        store.write(lambda rows: rows.execute(spoilt, ("x", 9e999, 2e-5)))
        store.write(lambda rows: rows.execute(spoilt, (9e999, "x", 3e-5)))
    (series,) = ask(tmp_path, probe="launch", points=1)["series"]
    assert (series["n"], series["median"], series["maximum"]) == ([3], [1e-5], [1e-5])


def test_an_answer_that_failed_is_not_kept(tmp_path: Path) -> None:
    async def story() -> list[int]:
        async with client(tmp_path) as asks:
            before = await asks.get(PATH, params={"probe": "launch"})
            with opened(tmp_path) as store:
                store.append([run(NOW_S - 60)])
            after = await asks.get(PATH, params={"probe": "launch"})
        return [before.status_code, after.status_code]

    assert asyncio.run(story()) == [503, 200]
