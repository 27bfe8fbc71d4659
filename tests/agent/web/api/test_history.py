"""/api/v1/history: what it thins out and how, what it refuses, and what it never holds up."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.datastructures import QueryParams

from gpud.agent import reader, rolluprows
from gpud.agent.store import History
from gpud.agent.web.api import history as history_api
from gpud.agent.web.api import probes
from gpud.agent.web.api.history import PATH, WAITING, route
from gpud.core.sample import Flag
from gpud.core.settings import parse
from tests import snapshots
from tests.agent.months import BEGUN_S, DAY_S, HOUR_S, done, failed, hours, opened, run

if TYPE_CHECKING:
    from pathlib import Path

NOW_S = float(BEGUN_S + DAY_S)


async def asking(folder: Path, *queries: dict[str, Any]) -> list[httpx.Response]:
    application = Starlette(routes=[route(folder, snapshots.full, lambda: NOW_S)])
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://gpud") as client:
        asked = [client.get(PATH, params=query) for query in queries]
        return await asyncio.gather(*asked)


def ask(folder: Path, **query: Any) -> dict[str, Any]:
    (answer,) = asyncio.run(asking(folder, query))
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    assert document["schema_version"] == 1
    return document


def error(folder: Path, code: int, **query: Any) -> dict[str, str]:
    (answer,) = asyncio.run(asking(folder, query))
    assert answer.status_code == code, answer.text
    said: dict[str, str] = answer.json()["error"]
    return said


class Held:
    """The way to the history, which waits until it is let go and counts who came."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered, self.leave, self.asked = threading.Event(), threading.Event(), 0
        self.real = reader.ask
        monkeypatch.setattr(reader, "ask", self)

    def __call__(self, *words: Any, **named: Any) -> Any:
        self.asked += 1
        self.entered.set()
        self.leave.wait(20)
        return self.real(*words, **named)


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
        done(store, rolluprows.roll_up)
        done(store, lambda open_: rolluprows.forget_runs(open_, raw_days=30))
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
        ({"probe": "launch", "points": "2001"}, "points"),
        ({"probe": ["launch", "event"]}, "probe"),
        ({"probe": "launch", "driver": "1"}, "driver"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_name(
    tmp_path: Path, query: dict[str, Any], parameter: str
) -> None:
    assert error(tmp_path, 400, **query)["parameter"] == parameter


def test_what_neither_the_program_nor_the_history_knows_is_no_empty_answer(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append([run(NOW_S - 400 * DAY_S, gpu="GPU-9", probe="event", modes=("old",))])
    for query, parameter, fix in (
        ({"probe": "lunch"}, "probe", "cpu_call, crossover, event, launch"),
        ({"probe": "launch", "mode": "submits"}, "mode", "roundtrip, submit"),
        ({"probe": "launch", "mode": "old"}, "mode", "roundtrip, submit"),
        ({"probe": "launch", "gpu": "7"}, "gpu", "cpu, 0 (GPU-"),
        ({"probe": "launch", "gpu": "GPU-8"}, "gpu", "GPU-9"),
    ):
        said = error(tmp_path, 404, **query)
        assert (said["parameter"], said["reason"]) == (parameter, f"unknown_{parameter}")
        assert fix in said["fix"]
    for query in ({"probe": "event", "mode": "old"}, {"probe": "launch", "gpu": "GPU-9"}):
        assert ask(tmp_path, **query)["series"] == []


def test_a_history_that_is_not_there_is_a_reason(tmp_path: Path) -> None:
    assert error(tmp_path, 503, probe="launch")["reason"] == "no_history"


def test_a_long_question_holds_up_no_run_that_is_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)

    async def story() -> None:
        history = History(tmp_path, now=str)
        await history.append(run(NOW_S - 1))
        questions = [
            {"probe": "launch", "since": NOW_S - n * HOUR_S} for n in range(2, WAITING + 3)
        ]
        asked = asyncio.create_task(asking(tmp_path, *questions, *questions[:WAITING]))
        await asyncio.to_thread(held.entered.wait, 20)
        for number in range(20):
            await history.append(run(NOW_S - 2 - number))
        assert not asked.done()
        held.leave.set()
        answers = await asked
        await history.close()
        assert sorted(answer.status_code for answer in answers) == [200] * 2 * WAITING + [503]

    asyncio.run(story())


def test_fifty_who_ask_the_same_cost_what_one_does_and_hold_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as store:
        store.append([run(NOW_S - 60)])
    held = Held(monkeypatch)
    routes = [
        route(tmp_path, snapshots.full, lambda: NOW_S),
        probes.route(snapshots.full, parse(None, {}).schedule),
    ]

    async def story() -> None:
        transport = httpx.ASGITransport(Starlette(routes=routes))
        async with httpx.AsyncClient(transport=transport, base_url="http://gpud") as client:
            same = {"probe": "launch", "mode": "submit"}
            many = [asyncio.create_task(client.get(PATH, params=same)) for _ in range(50)]
            await asyncio.to_thread(held.entered.wait, 20)
            assert (await client.get(probes.PATH)).status_code == 200
            assert not any(task.done() for task in many)
            many[0].cancel()  # who hangs up takes nobody's answer away
            held.leave.set()
            answers = await asyncio.gather(*many[1:])
            again = await client.get(PATH, params=same)
        assert {answer.status_code for answer in answers} == {200}
        assert {answer.content for answer in [*answers, again]} == {again.content}

    asyncio.run(story())
    assert held.asked == 1


def test_an_answer_that_failed_is_not_kept(tmp_path: Path) -> None:
    async def story() -> list[int]:
        application = Starlette(routes=[route(tmp_path, snapshots.full, lambda: NOW_S)])
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://gpud") as client:
            before = await client.get(PATH, params={"probe": "launch"})
            with opened(tmp_path) as store:
                store.append([run(NOW_S - 60)])
            after = await client.get(PATH, params={"probe": "launch"})
        return [before.status_code, after.status_code]

    assert asyncio.run(story()) == [503, 200]


def test_what_is_kept_is_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_api, "KEPT_BYTES", 2000)
    with opened(tmp_path) as store:
        store.append([run(NOW_S - 60.0 * n, 1e-5 * (1 + n / 1e3)) for n in range(1, 1440)])
    shared = history_api._Shared(tmp_path)
    known = history_api.Known({"launch": ("submit",)}, {})

    async def story() -> None:
        for points in (100, 200, 400):
            query = QueryParams(f"probe=launch&points={points}")
            await shared.answer(history_api.parsed(query, known, now_s=NOW_S), known)
            await asyncio.sleep(0)  # the answer is put away

    asyncio.run(story())
    assert len(shared._kept) == 1
