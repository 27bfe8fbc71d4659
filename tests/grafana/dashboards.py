"""The committed dashboards, and every expression in them as Prometheus would be asked it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "deploy/grafana/dashboards"
VALUES: Final = re.compile(r"label_values\((.+), (\w+)\)")
VARIABLE: Final = re.compile(r"\$(?:{(\w+)}|(\w+))")

Dashboard = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """An expression, where it is asked, whether for now alone, and the legend over its labels."""

    where: str
    expression: str
    at_once: bool = False
    legend: str = ""


def committed() -> dict[str, Dashboard]:
    """Give the dashboards by name."""
    return {file.stem: json.loads(file.read_bytes()) for file in sorted(FOLDER.glob("*.json"))}


def panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    """Give every panel that is no row."""
    return (panel for panel in dashboard["panels"] if panel["type"] != "row")


def variables(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    """Give the variables that are asked of Prometheus."""
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable


def of_panels(dashboard: Dashboard) -> Iterator[Asked]:
    """Give what the panels ask; `where` is the panel's title and the query's letter."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            legend = target.get("legendFormat", "")
            yield Asked(
                f"{panel['title']} {target['refId']}",
                target["expr"],
                target.get("instant", False),
                legend,
            )


def of_annotations(dashboard: Dashboard) -> Iterator[Asked]:
    """Give what the annotations ask."""
    for mark in dashboard["annotations"]["list"]:
        legend = f"{mark.get('titleFormat', '')} {mark.get('textFormat', '')}"
        yield Asked(f"annotation {mark['name']}", mark["expr"], legend=legend)


def of_variables(dashboard: Dashboard) -> Iterator[Asked]:
    """Give the series that the variables take their values from."""
    for variable in variables(dashboard):
        matched = VALUES.fullmatch(variable["query"]["query"])
        assert matched, variable["query"]
        yield Asked(f"variable {variable['name']}", matched[1], at_once=True)


def every(dashboard: Dashboard) -> Iterator[Asked]:
    """Give everything that is asked."""
    yield from of_panels(dashboard)
    yield from of_annotations(dashboard)
    yield from of_variables(dashboard)


def filled(expression: str, values: Mapping[str, str]) -> str:
    """Put values in place of the variables, as Grafana does.

    Errors: ``KeyError`` for a variable that has none.
    """
    return VARIABLE.sub(lambda found: values[found[1] or found[2]], expression)
