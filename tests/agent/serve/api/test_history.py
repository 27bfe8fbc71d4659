"""/api/v1/history: how runs are reduced to steps, and that a long query delays nothing else."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from gpud.agent.history import charts, retention
from gpud.agent.history.store import History
from gpud.agent.history.telemetry import write_minutes
from gpud.agent.serve.api.history import MOST_QUERIES
from gpud.core.sample import Flag
from gpud.core.stats import quantile
from tests.agent.serve.api.everything import client, state_folder
from tests.histories import BEGUN_S, DAY_S, HOUR_S, done, failed, hours, opened, run, telemetry

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from gpud.agent.history.records import Run
    from gpud.agent.history.telemetry import TelemetryRow


NOW_S = float(BEGUN_S + DAY_S)
HISTORY, TELEMETRY = "/api/v1/history", "/api/v1/telemetry"


def write(home: Path, *runs: Run) -> None:
    with opened(state_folder(home)) as store:
        store.append(runs)


def write_telemetry(home: Path, *minutes: TelemetryRow) -> None:
    with opened(state_folder(home)) as store:
        store.write(write_minutes, minutes)


def answers(home: Path, path: str, *queries: dict[str, Any]) -> list[httpx.Response]:
    async def asking() -> list[httpx.Response]:
        async with client(home, now_s=NOW_S) as asks:
            return await asyncio.gather(*(asks.get(path, params=query) for query in queries))

    return asyncio.run(asking())


def ask(home: Path, path: str = HISTORY, /, **query: Any) -> dict[str, Any]:
    (answer,) = answers(home, path, query)
    document: dict[str, Any] = answer.json()
    assert (answer.status_code, document["schema_version"]) == (200, 1)
    return document


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


def test_runs_are_reduced_to_steps_that_keep_their_ends(tmp_path: Path) -> None:
    figures = [1e-5] * 58 + [9e-5, 1e-6]
    write(
        tmp_path,
        *(run(BEGUN_S + 60.0 * n, figure) for n, figure in enumerate(figures)),
        run(BEGUN_S + 30.0, 5.0, flags=(Flag.BUSY,)),
        failed(BEGUN_S + 31.0),
        run(BEGUN_S + 32.0, gpu="GPU-2", modes=("graph",)),
    )
    document = ask(tmp_path, probe="launch", since=BEGUN_S, until=BEGUN_S + HOUR_S, points=2)
    assert (document["source"], document["step_s"]) == ("runs", HOUR_S / 2)
    first, second = document["series"]
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
    medians = [1.23456789e-5 * 1.7**n for n in range(count)]
    write(tmp_path, *(run(NOW_S - 60 - n, figure) for n, figure in enumerate(medians)))
    (series,) = ask(tmp_path, probe="launch", points=1)["series"]
    for name, share in (("median", 0.5), ("p10", 0.1), ("p90", 0.9)):
        assert series[name] == [float(f"{quantile(medians, share):.6g}")]


def test_steps_without_a_run_are_absent_and_one_of_marked_runs_only_has_no_figure(
    tmp_path: Path,
) -> None:
    write(tmp_path, run(NOW_S - DAY_S / 2), run(NOW_S - 60, flags=(Flag.LOW,)))
    document = ask(tmp_path, probe="launch")
    (series,) = document["series"]
    early, late = series["at_s"]
    assert late - early > document["step_s"]
    assert early % document["step_s"] == late % document["step_s"] == 0
    assert (series["n"], series["marked"]) == ([1, 0], [0, 1])
    for name in ("median", "p10", "p90", "minimum", "maximum"):
        assert series[name][1] is None


def test_same_query_a_moment_later_has_the_same_steps_and_tag(tmp_path: Path) -> None:
    write(tmp_path, *(run(NOW_S - 60.0 * number) for number in range(1, 1440)))
    earlier = {"probe": "launch", "since": NOW_S - DAY_S - 0.3, "until": NOW_S - 0.3}
    later = {"probe": "launch", "since": NOW_S - DAY_S - 0.1}
    first, second = answers(tmp_path, HISTORY, earlier, later)
    assert first.json() == second.json()
    assert first.headers["etag"] == second.headers["etag"]
    assert len(first.json()["series"][0]["at_s"]) == DAY_S / first.json()["step_s"]


def test_long_range_comes_from_hours_and_the_runs_after_them(tmp_path: Path) -> None:
    with opened(state_folder(tmp_path)) as store:
        store.append(hours(40 * 24, since_s=NOW_S - 40 * DAY_S, each=2))
        done(store, retention.roll_up)
        done(store, lambda open_: retention.forget_runs(open_, 30))
    midnight_s = NOW_S // DAY_S * DAY_S
    query = {"since": midnight_s - 32 * DAY_S, "until": midnight_s}
    document = ask(tmp_path, probe="launch", points=32, **query)
    assert (document["source"], document["step_s"]) == ("hours", DAY_S)
    (series,) = document["series"]
    assert series["n"] == [48] * 32
    deleted = {"since": midnight_s - 35 * DAY_S, "until": midnight_s - 35 * DAY_S + HOUR_S}
    document = ask(tmp_path, probe="launch", **deleted)
    assert (document["source"], document["step_s"]) == ("hours", HOUR_S)
    (series,) = document["series"]
    assert series["n"] == [2], "runs of that hour are deleted"


def test_modes_and_gpus_are_selected(tmp_path: Path) -> None:
    write(tmp_path, run(NOW_S - 9, modes=("submit", "graph")), run(NOW_S - 8, gpu="GPU-2"))
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


def test_name_that_nothing_bears_is_a_404_with_the_names_there_are(tmp_path: Path) -> None:
    write(tmp_path, run(NOW_S - 400 * DAY_S, gpu="GPU-9", probe="event", modes=("old",)))
    expected = (
        ({"probe": "lunch"}, "probe", "cpu_call, crossover, event, launch"),
        ({"probe": "launch", "mode": "submits"}, "mode", "roundtrip, submit"),
        ({"probe": "launch", "mode": "old"}, "mode", "roundtrip, submit"),
        ({"probe": "launch", "gpu": "7"}, "gpu", "cpu, 0 (GPU-"),
        ({"probe": "launch", "gpu": "GPU-8"}, "gpu", "GPU-9"),
    )
    refusals = answers(tmp_path, HISTORY, *(query for query, _, _ in expected))
    for refusal, (_, parameter, fix) in zip(refusals, expected, strict=True):
        error = refusal.json()["error"]
        assert (refusal.status_code, error["parameter"]) == (404, parameter)
        assert error["reason"] == f"unknown_{parameter}"
        assert fix in error["fix"]
    for query in ({"probe": "event", "mode": "old"}, {"probe": "launch", "gpu": "GPU-9"}):
        assert ask(tmp_path, **query)["series"] == []


def test_damaged_figures_are_null(tmp_path: Path) -> None:
    with opened(state_folder(tmp_path)) as store:
        store.append([run(NOW_S - 60, 1e-5), run(NOW_S - 61, 2e-5), run(NOW_S - 62, 3e-5)])
        spoilt = "UPDATE samples SET median = ?, maximum = ? WHERE median = ?"
        store.write(lambda rows: rows.execute(spoilt, ("x", 9e999, 2e-5)))
        store.write(lambda rows: rows.execute(spoilt, (9e999, "x", 3e-5)))
    (series,) = ask(tmp_path, probe="launch", points=1)["series"]
    assert (series["n"], series["median"], series["maximum"]) == ([3], [1e-5], [1e-5])


def test_long_query_delays_no_write_and_a_seventeenth_is_told_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)

    async def story() -> None:
        history = History(state_folder(tmp_path))
        await history.append(run(NOW_S - 1))
        queries: list[dict[str, Any]] = [
            {"probe": "launch", "since": NOW_S - n * HOUR_S} for n in range(2, MOST_QUERIES + 3)
        ]
        async with client(tmp_path, now_s=NOW_S) as asks:
            tasks = [
                asyncio.create_task(asks.get(HISTORY, params=query))
                for query in [*queries, *queries[:MOST_QUERIES]]
            ]
            await asyncio.to_thread(gate.reached.wait, 60)
            for number in range(20):
                await history.append(run(NOW_S - 2 - number))
            assert sum(task.done() for task in tasks) == 1, "the one that is to come again"
            gate.open.set()
            codes = [answer.status_code for answer in await asyncio.gather(*tasks)]
        await history.close()
        assert sorted(codes) == [200] * 2 * MOST_QUERIES + [503]

    asyncio.run(story())


def test_fifty_equal_queries_are_read_once_and_delay_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, run(NOW_S - 60))
    gate = Gate(monkeypatch)

    async def story() -> None:
        async with client(tmp_path, now_s=NOW_S) as asks:
            same = {"probe": "launch", "mode": "submit"}
            tasks = [asyncio.create_task(asks.get(HISTORY, params=same)) for _ in range(50)]
            await asyncio.to_thread(gate.reached.wait, 60)
            assert (await asks.get("/api/v1/probes")).status_code == 200
            assert not any(task.done() for task in tasks)
            tasks[0].cancel()  # a client that hangs up takes no other's answer away
            gate.open.set()
            answered = await asyncio.gather(*tasks[1:])
            again = await asks.get(HISTORY, params=same)
        assert {answer.status_code for answer in answered} == {200}
        assert {answer.content for answer in [*answered, again]} == {again.content}

    asyncio.run(story())
    assert gate.readings == 1


def test_failed_answer_is_not_cached(tmp_path: Path) -> None:
    async def story() -> None:
        async with client(tmp_path, now_s=NOW_S) as asks:
            before = await asks.get(HISTORY, params={"probe": "launch"})
            assert (before.status_code, before.json()["error"]["reason"]) == (503, "no_history")
            write(tmp_path, run(NOW_S - 60))
            assert (await asks.get(HISTORY, params={"probe": "launch"})).status_code == 200

    asyncio.run(story())


def test_minutes_are_reduced_to_steps_that_keep_their_ends(tmp_path: Path) -> None:
    write_telemetry(
        tmp_path,
        *(telemetry(BEGUN_S + 60 * n, 50.0 + n, throttle_thermal_ratio=n / 60) for n in range(60)),
        telemetry(BEGUN_S, 40.0, gpu="GPU-2", power_watts=9.0),
    )
    document = ask(tmp_path, TELEMETRY, since=BEGUN_S, until=BEGUN_S + HOUR_S, points=2)
    assert (document["source"], document["step_s"]) == ("minutes", HOUR_S / 2)
    first, second = document["gpus"]
    assert (first["gpu"], first["n"]) == ("GPU-1", [180, 180])
    assert first["at_s"] == [BEGUN_S, BEGUN_S + HOUR_S // 2]
    assert first["figures"] == {
        "temperature_celsius": {
            "mean": [64.5, 94.5],
            "minimum": [50.0, 80.0],
            "maximum": [79.0, 109.0],
        }
    }
    assert first["throttle"] == {"thermal": [0.241667, 0.741667]}
    assert second["gpu"] == "GPU-2"
    assert second["throttle"] is None, "no reasons were given"


def test_step_that_lacks_a_value_has_null_and_none_is_shorter_than_a_minute(tmp_path: Path) -> None:
    write_telemetry(
        tmp_path,
        telemetry(NOW_S - DAY_S / 2, None),
        *(telemetry(NOW_S - 60 * n, throttle_thermal_ratio=0.0) for n in range(1, 31)),
    )
    document = ask(tmp_path, TELEMETRY)
    (gpu,) = document["gpus"]
    assert gpu["throttle"] == {}, "reasons were given, and none was in force"
    assert gpu["at_s"][1] - gpu["at_s"][0] > document["step_s"], "a step without samples is absent"
    assert gpu["figures"]["temperature_celsius"]["mean"][:2] == [None, 60.0]
    document = ask(tmp_path, TELEMETRY, since=NOW_S - HOUR_S / 2, points=2000)
    assert document["step_s"] == 60
    assert len(document["gpus"][0]["at_s"]) == 30


def test_long_range_comes_from_the_hours(tmp_path: Path) -> None:
    midnight_s = NOW_S // DAY_S * DAY_S
    write_telemetry(
        tmp_path, *(telemetry(midnight_s - 600 * n, 50.0 + n % 6) for n in range(1, 6 * 24 * 9))
    )
    document = ask(tmp_path, TELEMETRY, since=midnight_s - 8 * DAY_S, until=midnight_s, points=8)
    assert (document["source"], document["step_s"]) == ("hours", DAY_S)
    (gpu,) = document["gpus"]
    assert gpu["n"] == [6 * 6 * 24] * 8
    assert gpu["figures"]["temperature_celsius"]["mean"] == [52.5] * 8


def test_gpus_are_selected_and_an_unknown_one_is_a_404(tmp_path: Path) -> None:
    write_telemetry(tmp_path, telemetry(NOW_S - 60), telemetry(NOW_S - 60, gpu="GPU-2"))
    for query, expected in (({}, 2), ({"gpu": "GPU-2"}, 1), ({"gpu": "0"}, 0), ({"gpu": "cpu"}, 0)):
        assert len(ask(tmp_path, TELEMETRY, **query)["gpus"]) == expected, query
    wrong = ({"gpu": "GPU-9"}, {"probe": "launch"})
    refused = [
        (r.status_code, r.json()["error"]["reason"]) for r in answers(tmp_path, TELEMETRY, *wrong)
    ]
    assert refused == [(404, "unknown_gpu"), (400, "unknown_parameter")]
