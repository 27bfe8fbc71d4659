"""/api/v1/probes: what is measured, and the last run with its distribution."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpud.agent.serve.api import probes
from gpud.core.settings import parse
from gpud.core.stats import LATENCY_BOUNDS_S
from tests import snapshots
from tests.agent.serve.http.test_web import ask, served


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    with served(snapshots.full(), [probes.route(snapshots.full, parse(None, {}).schedule)]) as port:
        code, headers, body = ask(port, probes.PATH)
    assert (code, headers["content-type"]) == (200, "application/json")
    return {probe["name"]: probe for probe in json.loads(body)["probes"]}


def test_every_probe_that_was_listed_is_told_with_or_without_a_run(told: dict[str, Any]) -> None:
    assert list(told) == sorted(spec.name for spec in snapshots.SPECS)
    launch = told["launch"]
    assert (launch["description"], launch["pace"], launch["interval_s"]) == (
        "launches",
        "small",
        60,
    )
    assert (launch["unit"], launch["modes"]) == ("seconds", ["submit", "roundtrip"])


def test_the_last_run_names_its_gpu_its_marks_and_its_figures(told: dict[str, Any]) -> None:
    (run,) = told["launch"]["last"]
    assert (run["gpu"], run["uuid"]) == (0, snapshots.DEVICE.uuid)
    assert (run["flags"], run["failure"]) == (["busy", "low"], None)
    assert [one["mode"] for one in run["samples"]] == ["submit", "roundtrip", "pipelined"]
    assert run["samples"][1]["peaks"][0] == {"value": 13e-6, "share": 0.75}
    (on_cpu,) = told["cpu_call"]["last"]
    assert (on_cpu["gpu"], on_cpu["uuid"]) == (None, None)


def test_a_distribution_has_a_bound_less_than_it_has_counts(told: dict[str, Any]) -> None:
    submit, roundtrip, _ = told["launch"]["last"][0]["samples"]
    buckets = submit["buckets"]
    assert buckets["upper_bounds_s"] == list(LATENCY_BOUNDS_S)
    assert len(buckets["counts"]) == len(LATENCY_BOUNDS_S) + 1
    assert sum(buckets["counts"]) == submit["n"]
    assert roundtrip["buckets"] is None


def test_the_curve_of_the_crossover_and_why_a_run_was_left_out_are_there(
    told: dict[str, Any],
) -> None:
    assert [point["n"] for point in told["crossover"]["last"][0]["curve"]] == [192, 256]
    assert told["triad"]["last"][0]["skipped"] == "gpu_busy"


def test_before_anything_is_known_there_is_an_empty_list() -> None:
    settings = parse(None, {})
    with served(snapshots.bare(), [probes.route(snapshots.bare, settings.schedule)]) as port:
        assert json.loads(ask(port, probes.PATH)[2]) == {
            "probes": [],
            "refused": {},
            "schema_version": 1,
        }
