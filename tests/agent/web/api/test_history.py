"""/api/v1/history: what it thins out and how, what it refuses, and what it never holds up."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from starlette.applications import Starlette

from gpud.agent import reader, rolluprows
from gpud.agent.store import History
from gpud.agent.web.api.history import PATH, WAITING, route
from gpud.core.sample import Flag
from tests.agent.months import BEGUN_S, DAY_S, HOUR_S, done, failed, hours, opened, run

if TYPE_CHECKING:
    from pathlib import Path

NOW_S = float(BEGUN_S + DAY_S)


async def asking(folder: Path, *queries: dict[str, Any]) -> list[httpx.Response]:
    application = Starlette(routes=[route(folder, lambda: NOW_S)])
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
    early, late = first["points"]
    assert (early["at_s"], early["n"], early["marked"]) == (BEGUN_S, 30, 1)
    assert early["maximum"] == 1e-5, "a marked run is counted, and that is all"
    assert (late["median"], late["minimum"], late["maximum"]) == (1e-5, 1e-6, 9e-5)
    assert late["drivers"] == ["572.16"]


def test_a_step_of_marked_runs_only_has_counts_and_no_figure(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append([run(NOW_S - 60, flags=(Flag.LOW,))])
    (series,) = ask(tmp_path, probe="launch")["series"]
    (point,) = series["points"]
    assert (point["n"], point["marked"]) == (0, 1)
    assert "median" not in point


def test_a_long_range_comes_from_hours_and_the_runs_after_them(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append(hours(40 * 24, since_s=NOW_S - 40 * DAY_S, each=2))
        done(store, rolluprows.roll_up)
        done(store, lambda open_: rolluprows.forget_runs(open_, raw_days=30))
    found = ask(tmp_path, probe="launch", since=NOW_S - 40 * DAY_S, points=40)
    assert found["source"] == "hours"
    (series,) = found["series"]
    assert [point["n"] for point in series["points"]] == [48] * 40


def test_one_mode_and_one_gpu_may_be_chosen(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append([run(NOW_S - 9, modes=("submit", "graph")), run(NOW_S - 8, gpu="GPU-2")])
    for query, expected in (
        ({}, 3),
        ({"mode": "submit"}, 2),
        ({"gpu": "GPU-2"}, 1),
        ({"gpu": "cpu"}, 0),
        ({"mode": "graph", "gpu": "GPU-2"}, 0),
        ({"probe": "event"}, 0),
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
        ({"probe": "launch", "points": "2001"}, "points"),
        ({"probe": ["launch", "event"]}, "probe"),
        ({"probe": "launch", "driver": "1"}, "driver"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_name(
    tmp_path: Path, query: dict[str, Any], parameter: str
) -> None:
    assert error(tmp_path, 400, **query)["parameter"] == parameter


def test_a_history_that_is_not_there_is_a_reason(tmp_path: Path) -> None:
    assert error(tmp_path, 503, probe="launch")["reason"] == "no_history"


def test_a_long_question_holds_up_no_run_that_is_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, leave = threading.Event(), threading.Event()
    real = reader.ask

    def held(*words: Any, **named: Any) -> Any:
        entered.set()
        leave.wait(20)
        return real(*words, **named)

    monkeypatch.setattr(reader, "ask", held)

    async def story() -> None:
        history = History(tmp_path, now=str)
        await history.append(run(NOW_S - 1))
        asked = asyncio.create_task(asking(tmp_path, *([{"probe": "launch"}] * (WAITING + 1))))
        await asyncio.to_thread(entered.wait, 20)
        for number in range(20):
            await history.append(run(NOW_S - 2 - number))
        assert not asked.done()
        leave.set()
        answers = await asked
        await history.close()
        assert sorted(answer.status_code for answer in answers) == [200] * WAITING + [503]

    asyncio.run(story())
