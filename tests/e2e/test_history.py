"""The history of the whole program: asked while it writes, and one of a newer gpud beside it."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.program import Program, only, program
from tests.waiting import until


def history(gpud: Program, *words: str) -> str:
    ran = gpud.cli("history", *words)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def rows(gpud: Program) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = json.loads(history(gpud, "--json"))["rows"]
    return result


def test_what_the_page_shows_is_in_the_history_of_this_agent_and_the_next() -> None:
    with program(probes=only("cpu_call"), schedule={"small_interval_s": 0.3}) as gpud:
        gpud.start()
        gpud.status_when(lambda d: d["counters"]["runs"].get("cpu_call", 0) >= 3, "three runs")
        while_it_runs = rows(gpud)
        assert len(while_it_runs) >= 3
        assert {(row["probe"], row["unit"]) for row in while_it_runs} == {("cpu_call", "seconds")}
        series = json.loads(gpud.get("/api/v1/history?probe=cpu_call"))["series"]
        assert [(item["gpu"], item["mode"]) for item in series] == [(None, "call")]
        assert sum(series[0]["n"] + series[0]["marked"]) >= 3
        bytes_told = until(lambda: gpud.value("gpud_store_bytes"), "the size of the history")
        assert bytes_told > 4096
        gpud.stop()
        gpud.start()
        gpud.status_when(lambda d: d["counters"]["runs"].get("cpu_call"), "a run of the next life")
        after = rows(gpud)
        assert after[: len(while_it_runs)] == while_it_runs
        assert len(history(gpud, "export").splitlines()) > len(after)
