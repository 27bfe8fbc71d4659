"""Every expression is asked of Debian's Prometheus, which scrapes live gpuds."""

from __future__ import annotations

import math
import os
import shutil
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.grafana import dashboards
from tests.grafana.world import LAB, LABS, LAPTOP, MACHINES, OF_A_KIND, SLOWER, WINDOW, World, world

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
OF_ONE: Final = {"job": ALL, "gpu": ALL, "probe": ALL, "mode": "submit"}
OF_ALL: Final = {"job": ALL, "instance": ALL, "model": ALL, "driver": ALL}
VIEWS: Final = {
    "lab": ("machine", OF_ONE | {"instance": LAB}),
    "laptop": ("machine", OF_ONE | {"instance": LAPTOP}),
    "fleet, by a latency": ("fleet", OF_ALL | {"probe": "launch", "mode": "submit"}),
    "fleet, by a throughput": ("fleet", OF_ALL | {"probe": "triad", "mode": "triad"}),
}


UNDISTURBED: Final = {
    *("n-body in a container over n-body beside it", "Fields without a value", "Runs left out"),
    *("Runs that failed", "Runs that were marked", "Runs with two kinds of launch"),
    *("Share of launches in the slower hump", "annotation Machine paused"),
}
"""No container ran, no run was disturbed, no launch had two humps, the machine did not sleep."""
RARELY_RUN: Final = {"Memory and bus", "Arithmetic"}
NO_NVML: Final = {
    *("Temperature", "Power", "What holds the clocks down", "Time below the wanted clocks", "Fan"),
    *("Clocks", "Utilisation", "Memory", "Performance state", "Processes on the GPU"),
    *("PCIe link, now and at most", "PCIe traffic", "PCIe replays", "Memory errors"),
    *("Xid errors since the agent started", "Age of the latest readings", "Driver"),
}
NO_DOCKERD: Final = {
    *("dockerd", "dockerd answers", "Ping and start of dockerd", "dockerd starts after an end"),
    "Whose dockerd, and how it hands out GPUs",
}
NOTHING_CHANGED: Final = {
    *("Figures that are worse", "Slower than usual by", "Runs in the slow power state"),
    *("Latency, median of each run", "The CPU beside it, slower than usual by"),
    *("Alerts that fire", "annotation Alerts", "Changes for the worse that hold"),
    *("The latest driver, judged", "annotation Driver replaced", "annotation Other changes"),
}
IN_A_FLEET: Final = {
    *("Silent machines", "Restarts in the time chosen", "Known faults by build"),
    "Each driver against the best of its model",
}

MAY_BE_EMPTY: Final = {
    "lab": UNDISTURBED | RARELY_RUN | {"Reasons"},
    "laptop": UNDISTURBED
    | RARELY_RUN
    | NO_NVML
    | NO_DOCKERD
    | NOTHING_CHANGED
    | {"Smallest matrix worth the GPU"},
    "fleet, by a latency": IN_A_FLEET | {"Median throughput by model and driver"},
    "fleet, by a throughput": IN_A_FLEET
    | {
        *("Median latency by model and driver", "Models and their drivers"),
        "Slower than usual by, the middle machine",
    },
}
"""By view, the titles of panels."""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("world")) as made:
        yield made


def numbers(series: list[dict[str, Any]]) -> list[float]:
    """Every value that is one, of vectors and matrices alike."""
    points = [point for one in series for point in one.get("values", [one.get("value")])]
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
    return [one for one in series if one["metric"] | wanted == one["metric"]]


def by_title(view: str, title: str, live: World) -> list[list[dict[str, Any]]]:
    """What each query of one panel gives now."""
    found = [live.ask(text) for where, text, _ in asked_of(view) if where == title]
    assert found
    return found


def empty(asked: list[tuple[str, str, bool]], live: World) -> list[str]:
    """Where an expression has no number: a graph over its time, what is of now alone, now."""
    return [
        where
        for where, text, at_once in asked
        if not numbers(live.ask(text, 0.0 if at_once else OVER_S))
    ]


@pytest.mark.parametrize("view", sorted(VIEWS))
def test_nothing_is_refused_and_nothing_is_empty_without_a_reason(view: str, live: World) -> None:
    assert sorted(set(empty(asked_of(view), live)) - MAY_BE_EMPTY[view]) == []
    assert {where for where, _, _ in asked_of(view)} >= MAY_BE_EMPTY[view]


def test_the_driver_that_was_replaced_is_drawn_as_slower(live: World) -> None:
    [slower] = by_title("lab", "Slower than usual by", live)
    submit = [
        s for s in slower if (s["metric"]["probe"], s["metric"]["mode"]) == ("launch", "submit")
    ]
    [slower_by] = numbers(submit)
    assert slower_by > (SLOWER - 1) / 2
    [marks] = by_title("lab", "annotation Driver replaced", live)
    assert [mark["metric"]["to"] for mark in marks] == ["576.02"]
    assert 0 < live.now_s - numbers(marks)[0] / 1000 < 300
    [verdicts] = by_title("lab", "The latest driver, judged", live)
    assert "regressed" in {verdict["metric"]["state"] for verdict in verdicts}


def test_quantiles_and_heat_map_are_of_the_chosen_launches(live: World) -> None:
    half, nine, most = (numbers(q)[0] for q in by_title("lab", "Quantiles of all launches", live))
    assert 10e-6 < half <= nine <= most
    [cells] = by_title("lab", "Every launch, by how long it took", live)
    bounds = {float(cell["metric"]["le"]): numbers([cell])[0] for cell in cells}
    counts = [bounds[bound] for bound in sorted(bounds)]
    assert counts == sorted(counts)
    assert counts[-1] > 0


def test_a_fleet_has_its_machines_models_and_drivers(live: World) -> None:
    view = "fleet, by a latency"
    assert numbers(by_title(view, "Machines heard of", live)[0]) == [MACHINES]
    assert numbers(by_title(view, "Machines that became slower", live)[0]) == [OF_A_KIND]
    ratios, _, machines = by_title(view, "Each driver against the best of its model", live)
    chosen = of_stream(ratios, "launch", "submit")
    assert [r["metric"]["driver_version"] for r in chosen] == ["576.02"]
    assert numbers(chosen) == [1]
    assert set(numbers(machines)) == {OF_A_KIND}
    [worst] = by_title(view, "Slowest against themselves", live)
    assert {one["metric"]["driver_version"] for one in worst} >= {"576.02"}


def test_variables_offer_what_there_is(live: World) -> None:
    machine, fleet = (dashboards.committed()[name] for name in ("machine", "fleet"))
    offered = {}
    for name, dashboard in (("lab", machine), ("fleet, by a latency", fleet)):
        for variable in dashboards.variables(dashboard):
            matched = dashboards.VALUES.fullmatch(variable["query"]["query"])
            assert matched
            series = dashboards.filled(matched[1], VIEWS[name][1])
            offered[dashboard["uid"], variable["name"]] = set(live.values(matched[2], series))
    assert offered["gpud-machine", "job"] == {"gpud"}
    assert offered["gpud-machine", "instance"] >= {LAPTOP, *LABS}
    assert offered["gpud-machine", "gpu"] == {"0"}
    assert offered["gpud-machine", "probe"] >= {"cpu_call", "launch", "nbody", "triad"}
    assert "submit" in offered["gpud-machine", "mode"]
    assert "576.02" in offered["gpud-fleet", "driver"]
    assert {"launch"} <= offered["gpud-fleet", "probe"]
    assert "cpu_call" not in offered["gpud-fleet", "probe"]
    assert "submit" in offered["gpud-fleet", "mode"]
