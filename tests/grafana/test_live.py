"""Every expression of dashboards and rules, asked of a Prometheus that scrapes a live gpud."""

from __future__ import annotations

import math
import os
import re
import shutil
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.driven import NEW
from tests.grafana import dashboards
from tests.grafana.world import LAB, LABS, MACHINES, SLOWER, WINDOW, World, world

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("dockerd") is None, reason="needs root and a dockerd"
    ),
]

OVER_S: Final = 40.0
INTERVALS: Final = {"__rate_interval": WINDOW, "__range": "2m"}
ALL: Final = ".*"
OF_ONE: Final = {"job": ALL, "gpu": ALL, "probe": ALL, "mode": "submit", "instance": LAB}
OF_ALL: Final = {"job": ALL, "instance": ALL, "model": ALL, "driver": ALL}
VIEWS: Final = {
    "machine": ("machine", OF_ONE),
    "fleet, by a latency": ("fleet", OF_ALL | {"probe": "launch", "mode": "submit"}),
    "fleet, by a throughput": ("fleet", OF_ALL | {"probe": "triad", "mode": "triad"}),
}
OF_FLEETS: Final = {
    "Silent machines A": "all are scraped",
    "Drivers of each GPU model D": "a machine that is scraped as several has no spread",
    **dict.fromkeys(("Known faults by build A", "Known faults by build B"), "none was seen"),
}
EMPTY: Final[dict[str, dict[str, str]]] = {
    "machine": {
        "Runs B": "no run was skipped",
        "Runs C": "no run failed",
        "annotation Machine paused": "it did not sleep",
    },
    "fleet, by a latency": OF_FLEETS,
    "fleet, by a throughput": OF_FLEETS,
}
"""By view: the expressions, by title and letter, that may have nothing here, and why."""
COMPARED: Final = re.compile(r" (?:==|>=|<=|>|<) (?:bool )?\d+(?:\.\d+)?(?: \* \d+)?")
SILENT: Final = {
    "GpudDockerDown critical": "dockerd has an owner",
    "GpudProbeStale info": "no probe of containers runs",
    "GpudThroughputRegression warning": "latencies became worse, and no rate",
    **dict.fromkeys(("GpudXid critical", "GpudXid warning"), "the card's Xid is a program's"),
    **dict.fromkeys(
        ("GpudProbeFailing warning", "instance_probe:gpud_probe_failures_per_run:ratio_rate1h"),
        "no run failed",
    ),
    **dict.fromkeys(
        (
            "host_build:gpud_known_issue_info:max",
            "build:gpud_known_issue_info:hosts7d",
            "GpudKnownIssueSpread warning",
        ),
        "no known fault was seen",
    ),
}
"""Rules that may have nothing here, and why."""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("world")) as made:
        yield made


def numbers(series: list[dict[str, Any]]) -> list[float]:
    """Every value that is one, of vectors and matrices alike."""
    points = [point for each in series for point in each.get("values", [each.get("value")])]
    return [value for value in (float(point[1]) for point in points) if not math.isnan(value)]


def asked_of(view: str) -> list[tuple[str, str, bool]]:
    """Each expression of a view: where, filled in, and whether it is of now alone."""
    name, values = VIEWS[view]
    return [
        (asked.where, dashboards.filled(asked.expression, values | INTERVALS), asked.at_once)
        for asked in dashboards.every(dashboards.committed()[name])
    ]


def of_stream(series: list[dict[str, Any]], probe: str, mode: str) -> list[dict[str, Any]]:
    wanted = {"probe": probe, "mode": mode}
    return [each for each in series if each["metric"] | wanted == each["metric"]]


def by_title(view: str, title: str, live: World) -> list[list[dict[str, Any]]]:
    """What each query of one panel gives now."""
    panel = re.compile(re.escape(title) + "( [A-H])?")
    answers = [live.ask(text) for where, text, _ in asked_of(view) if panel.fullmatch(where)]
    assert answers
    return answers


@pytest.mark.parametrize("view", sorted(VIEWS))
def test_nothing_is_refused_and_nothing_is_empty_without_a_reason(view: str, live: World) -> None:
    asked = asked_of(view)
    empty = {
        where
        for where, text, at_once in asked
        if not numbers(live.ask(text, 0.0 if at_once else OVER_S))
    }
    assert sorted(empty - EMPTY[view].keys()) == []
    assert {where for where, _, _ in asked} >= EMPTY[view].keys()


def relaxed(rule: dict[str, Any]) -> str:
    """Leave the thresholds of an alert out: what it looks at, whether it is so or not."""
    expression: str = rule["query"]
    if rule["type"] != "alerting":
        return expression
    text = COMPARED.sub("", expression).replace(" unless ", " and ")
    return re.sub(r"[<>] (?=on )", "* ", text)


def test_rules_have_data_before_they_are_held_against_their_thresholds(live: World) -> None:
    asked = live.rules()
    assert [rule["lastError"] for rule in asked if rule.get("lastError")] == []
    names = [f"{rule['name']} {rule['labels'].get('severity', '')}".strip() for rule in asked]
    empty = {
        name
        for name, rule in zip(names, asked, strict=True)
        if not numbers(live.ask(relaxed(rule), OVER_S))
    }
    assert sorted(empty - SILENT.keys()) == []
    assert set(names) >= SILENT.keys()


def test_an_alert_names_machine_gpu_and_by_how_much(live: World) -> None:
    [summary] = {
        alert["annotations"]["summary"]
        for alert in live.alerts("GpudLatencyRegression")
        if {"instance": LAB, "probe": "launch", "mode": "submit"}.items() <= alert["labels"].items()
    }
    matched = re.fullmatch(
        rf"launch submit on GPU 0 of {LAB} takes ([\d.]+)% longer than usual\.", summary
    )
    assert matched, summary
    assert (SLOWER - 1) / 2 < float(matched[1]) / 100 < 2 * (SLOWER - 1)


def test_the_driver_that_was_replaced_is_drawn_as_slower(live: World) -> None:
    now, usual, by = (
        numbers(of_stream(each, "launch", "submit"))
        for each in by_title("machine", "Latency", live)
    )
    assert by == pytest.approx([now[0] / usual[0] - 1], abs=0.5)  # a run may end between them
    [drawn] = by_title("machine", "Time for the same work, in percent of usual", live)
    assert numbers(of_stream(drawn, "launch", "submit"))[0] > 1 + (SLOWER - 1) / 2
    [state] = by_title("machine", "State", live)
    assert numbers(state)[0] >= 2
    [marks] = by_title("machine", "annotation Driver replaced", live)
    assert [mark["metric"]["to"] for mark in marks] == [NEW]
    assert 0 < live.now_s - numbers(marks)[0] / 1000 < 300


def test_quantiles_and_heat_map_are_of_the_chosen_launches(live: World) -> None:
    half, nine, most = (
        numbers(q)[0] for q in by_title("machine", "Quantiles of launch latency", live)
    )
    assert 10e-6 < half <= nine <= most
    [cells] = by_title("machine", "Launches by latency", live)
    bounds = {float(cell["metric"]["le"]): numbers([cell])[0] for cell in cells}
    counts = [bounds[bound] for bound in sorted(bounds)]
    assert counts == sorted(counts)
    assert counts[-1] > 0


def test_a_fleet_has_its_machines_models_and_drivers(live: World) -> None:
    view = "fleet, by a latency"
    assert numbers(by_title(view, "Machines", live)[0]) == [MACHINES]
    assert numbers(by_title(view, "Slower", live)[0]) == [MACHINES]
    machines, times, ratios, _ = by_title(view, "Drivers of each GPU model", live)
    chosen = of_stream(ratios, "launch", "submit")
    assert [r["metric"]["driver_version"] for r in chosen] == [NEW]
    assert numbers(chosen) == [1]
    assert numbers(of_stream(times, "launch", "submit"))[0] > 10e-6
    assert set(numbers(machines)) == {MACHINES}
    [worst] = by_title(view, "Slowest against themselves", live)
    assert {each["metric"]["driver_version"] for each in worst} == {NEW}


def test_variables_offer_what_there_is(live: World) -> None:
    machine, fleet = (dashboards.committed()[name] for name in ("machine", "fleet"))
    offered = {}
    for name, dashboard in (("machine", machine), ("fleet, by a latency", fleet)):
        for variable in dashboards.variables(dashboard):
            matched = dashboards.VALUES.fullmatch(variable["query"]["query"])
            assert matched
            series = dashboards.filled(matched[1], VIEWS[name][1])
            offered[dashboard["uid"], variable["name"]] = set(live.values(matched[2], series))
    assert offered["gpud-machine", "job"] == {"gpud"}
    assert offered["gpud-machine", "instance"] >= {*LABS}
    assert offered["gpud-machine", "gpu"] == {"0"}
    assert offered["gpud-machine", "probe"] >= {"cpu_call", "launch", "nbody", "triad"}
    assert "submit" in offered["gpud-machine", "mode"]
    assert NEW in offered["gpud-fleet", "driver"]
    assert {"launch"} <= offered["gpud-fleet", "probe"]
    assert "cpu_call" not in offered["gpud-fleet", "probe"]
    assert "submit" in offered["gpud-fleet", "mode"]
