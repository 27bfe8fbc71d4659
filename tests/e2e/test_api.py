"""The API of the whole program, with a GPU: as described in every answer, while it measures."""

from __future__ import annotations

import json

from tests.agent.serve.api.described import Described
from tests.agent.serve.http.armed import ask
from tests.e2e.program import Program, cuda, nvml, only, program
from tests.waiting import until

QUESTIONS = (
    "/api/v1/status",
    "/api/v1/probes",
    "/api/v1/history?probe=launch&gpu=0",
    "/api/v1/events",
    "/api/v1/alerts?since=0",
    "/api/v1/openapi.json",
    "/metrics",
    "/-/healthy",
)


def differences(gpud: Program, described: Described, codes: set[int]) -> list[str]:
    found: list[str] = []
    for question in QUESTIONS:
        code, headers, body = ask(gpud.port, question)
        assert code in codes, (question, body)
        found += described.differences(question.partition("?")[0], code, headers, body)
    return found


def test_every_answer_is_as_described_from_the_first_moment_on() -> None:
    probes = only("cpu_call", "launch")
    with program(probes=probes, schedule={"small_interval_s": 0.5}) as gpud:
        gpud.settings |= {"cuda": cuda(gpud.home), "nvml": nvml(gpud.home)}
        gpud.start()
        gpud.status_when(lambda d: d["schema_version"] == 1, "an answer")
        described = Described(json.loads(gpud.get("/api/v1/openapi.json")))
        no_gpu_no_history_yet = {404, 503}
        assert differences(gpud, described, {200, *no_gpu_no_history_yet}) == []
        gpud.status_when(lambda d: d["counters"]["runs"].get("launch", 0) >= 2, "two runs")
        assert differences(gpud, described, {200}) == []
        told = json.loads(gpud.get("/api/v1/probes"))["probes"]
        (launch,) = (probe for probe in told if probe["name"] == "launch")
        (run,) = launch["last"]
        (submit,) = (sample for sample in run["samples"] if sample["mode"] == "submit")
        assert sum(submit["buckets"]["counts"]) == submit["n"]
        past = f"/api/v1/history?probe=launch&gpu={run['uuid']}"
        series = until(  # an answer is kept for some seconds
            lambda: json.loads(gpud.get(past))["series"], "runs in the history"
        )
        assert {one["gpu"] for one in series} == {run["uuid"]}
