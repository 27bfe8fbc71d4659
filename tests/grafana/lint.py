"""The rules of the house for dashboards: what Grafana's linter asks, and what it does not know.

Each rule is a function from a dashboard, and what is known of the metrics, to what is wrong; the
text begins with the place, so that an exclusion can name it.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import promql_parser as promql

from tests.grafana import dashboards, expressions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.grafana.dashboards import Dashboard

DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
SCHEMA: Final = 41
COLUMNS: Final = 24
TYPES: Final = {"heatmap", "stat", "state-timeline", "table", "timeseries"}
UNITS: Final = {
    *("none", "short", "percentunit", "s", "bytes", "Bps", "flops", "celsius", "watt", "hertz"),
}
TIMES: Final = re.compile(r"_seconds|:timestamp$|_build_info$")
"""Of the name of a time; gpud_build_info is asked when it was scraped."""
COUNTED: Final = {"increase", "rate"}
OF_TARGETS: Final = {"job", "instance", "always_on"}
OF_PROMETHEUS: Final = {
    "ALERTS": frozenset({"alertname", "alertstate"}),
    "scrape_duration_seconds": frozenset[str](),
}
"""What Prometheus itself keeps; an alert also has the labels of what it is about."""


@dataclass(frozen=True, slots=True)
class Known:
    """The metrics that there are, with their labels beside those of targets, and the counters."""

    labels: Mapping[str, frozenset[str]]
    counters: frozenset[str]

    def of(self, name: str) -> frozenset[str] | None:
        """Give the labels of a series, None where there is no such metric."""
        if name in self.labels:
            return self.labels[name]
        histogram = re.sub(r"_(bucket|count|sum)$", "", name)
        return self.labels[histogram] | {"le"} if histogram in self.labels else None

    def counts(self, name: str) -> bool:
        """Say whether a series only grows."""
        return name in self.counters or (name not in self.labels and self.of(name) is not None)


def of_the_dashboard(dashboard: Dashboard, _known: Known) -> Iterator[str]:
    """Known by its uid alone, not edited by hand, of the schema that is built."""
    if dashboard["id"] is not None or not re.fullmatch(r"gpud-[a-z]+", dashboard["uid"]):
        yield "dashboard: id is null, and uid a name that begins with gpud-"
    if dashboard["editable"]:
        yield "dashboard: editable"
    if "__inputs" in dashboard or "__requires" in dashboard:
        yield "dashboard: __inputs"
    if dashboard["schemaVersion"] != SCHEMA:
        yield f"dashboard: schema {dashboard['schemaVersion']}"
    if not dashboard["description"] or not dashboard["tags"]:
        yield "dashboard: no description or no tags"


def of_the_datasource(dashboard: Dashboard, _known: Known) -> Iterator[str]:
    """The data source is the variable, everywhere."""
    first = dashboard["templating"]["list"][0]
    if (first["type"], first["name"], first["query"]) != ("datasource", "datasource", "prometheus"):
        yield "dashboard: the first variable is not the data source"
    asked: list[tuple[str, dict[str, Any]]] = [
        *((panel["title"], panel) for panel in dashboards.panels(dashboard)),
        *((p["title"], target) for p in dashboards.panels(dashboard) for target in p["targets"]),
        *((f"variable {each['name']}", each) for each in dashboards.variables(dashboard)),
        *((f"annotation {e['name']}", e) for e in dashboard["annotations"]["list"]),
    ]
    for where, each in asked:
        if each.get("datasource") != DATASOURCE:
            yield f"{where}: not the data source that was chosen"


def of_the_panels(dashboard: Dashboard, _known: Known) -> Iterator[str]:
    """A known kind of panel, with a name, an explanation and a unit."""
    for panel in dashboards.panels(dashboard):
        title, description = panel.get("title"), panel.get("description") or ""
        if not title or len(title) > 60:
            yield f"{title}: a title of at most 60 characters"
        if len(description) < 60 or not description.endswith("."):
            yield f"{title}: a description says what is shown and what to do"
        if panel["type"] not in TYPES:
            yield f"{title}: a panel of type {panel['type']}"
        if not panel["targets"]:
            yield f"{title}: asks nothing"
    for title, times in Counter(p["title"] for p in dashboards.panels(dashboard)).items():
        if times > 1:
            yield f"{title}: the title of {times} panels"


def of_the_units(dashboard: Dashboard, _known: Known) -> Iterator[str]:
    """A panel has a unit, and what is shown in another has one of the list too."""
    for panel in dashboards.panels(dashboard):
        if panel["fieldConfig"]["defaults"].get("unit") not in UNITS:
            yield f"{panel['title']}: no unit of the list"
        for override in panel["fieldConfig"]["overrides"]:
            for value in override["properties"]:
                if value["id"] == "unit" and value["value"] not in UNITS:
                    column = override["matcher"]["options"]
                    yield f"{panel['title']}: no unit of the list for {column}"


def of_the_times(dashboard: Dashboard, _known: Known) -> Iterator[str]:
    """What is drawn in seconds is a time, or says of itself that it is not."""
    for panel in dashboards.panels(dashboard):
        if panel["fieldConfig"]["defaults"].get("unit") != "s":
            continue
        others = {one["matcher"]["options"] for one in panel["fieldConfig"]["overrides"]}
        for target in panel["targets"]:
            names = [one.name for one in expressions.selected(target["expr"])]
            if target["refId"] not in others and not any(TIMES.search(name) for name in names):
                yield f"{panel['title']}: {names[0]} is no time"


def of_the_numbers(dashboard: Dashboard, _known: Known) -> Iterator[str]:
    """Panels, and queries within a panel, are told apart."""
    rows = [panel for panel in dashboard["panels"] if panel["type"] == "row"]
    all_panels = [*rows, *dashboards.panels(dashboard)]
    for number, times in Counter(panel["id"] for panel in all_panels).items():
        if times > 1:
            yield f"dashboard: {times} panels with the id {number}"
    for panel in dashboards.panels(dashboard):
        letters = [target["refId"] for target in panel["targets"]]
        if len(set(letters)) != len(letters):
            yield f"{panel['title']}: queries with the same letter"


def of_the_places(dashboard: Dashboard, _known: Known) -> Iterator[str]:
    """No panel stands on another, or beside the grid. A collapsed row is a grid of its own."""
    within = [each.get("panels") or [] for each in dashboard["panels"] if each["type"] == "row"]
    grids = [
        [panel["gridPos"] | {"is": panel["title"]} for panel in grid]
        for grid in (dashboard["panels"], *within)
    ]
    for grid in grids:
        for place in grid:
            if place["x"] < 0 or place["w"] < 1 or place["x"] + place["w"] > COLUMNS:
                yield f"{place['is']}: not within {COLUMNS} columns"
        for one, other in itertools.combinations(grid, 2):
            apart = (
                one["x"] + one["w"] <= other["x"]
                or other["x"] + other["w"] <= one["x"]
                or one["y"] + one["h"] <= other["y"]
                or other["y"] + other["h"] <= one["y"]
            )
            if not apart:
                yield f"{one['is']}: stands on {other['is']}"


def of_the_machines(dashboard: Dashboard, _known: Known) -> Iterator[str]:
    """Every query is of the chosen jobs and machines, compared as the variable is chosen."""
    multiple = {each["name"]: each["multi"] for each in dashboards.variables(dashboard)}
    for asked in dashboards.every(dashboard):
        for one in expressions.selected(asked.expression):
            for label in ("job", "instance") if _has_instance(one.name) else ("job",):
                wanted = (label, "=~" if multiple[label] else "=", f"${label}")
                if wanted not in one.matchers:
                    yield f"{asked.where}: {one.name} without {''.join(wanted)}"


def of_the_intervals(dashboard: Dashboard, _known: Known) -> Iterator[str]:
    """A rate is over what Grafana holds to be enough, or over the whole time for now alone."""
    for asked in dashboards.every(dashboard):
        for one in expressions.selected(asked.expression):
            if one.span is None or not COUNTED & set(one.inside):
                continue
            right = expressions.RANGE if asked.at_once else expressions.RATE_INTERVAL
            if one.span != right:
                yield f"{asked.where}: {one.name} over an interval of its own"


def of_the_moment(dashboard: Dashboard, _known: Known) -> Iterator[str]:
    """A number, a word and a table are of now: over a range the last of long ago stands there."""
    for panel in dashboards.panels(dashboard):
        if panel["type"] in {"stat", "table"} and any(not t["instant"] for t in panel["targets"]):
            yield f"{panel['title']}: not of now"


def of_the_counters(dashboard: Dashboard, known: Known) -> Iterator[str]:
    """A counter is asked how it grew, and what is no counter is not."""
    for asked in dashboards.every(dashboard):
        if asked.where.startswith("variable "):
            continue
        for one in expressions.selected(asked.expression):
            grown = bool(COUNTED & set(one.inside))
            if known.counts(one.name) and not grown:
                yield f"{asked.where}: {one.name} is a counter"
            if grown and not known.counts(one.name):
                yield f"{asked.where}: {one.name} is no counter"


def of_the_quantiles(dashboard: Dashboard, _known: Known) -> Iterator[str]:
    """A quantile is taken of buckets that are summed by their bound."""
    for asked in dashboards.every(dashboard):
        for argument in expressions.quantiles(asked.expression):
            summed = (
                isinstance(argument, promql.AggregateExpr)
                and str(argument.op) == "sum"
                and argument.modifier is not None
                and argument.modifier.type == promql.AggModifierType.By
                and "le" in argument.modifier.labels
            )
            if not summed:
                yield f"{asked.where}: a quantile of what is not summed by le"


def of_the_metrics(dashboard: Dashboard, known: Known) -> Iterator[str]:
    """Every metric is documented or recorded, and has the labels that are used."""
    for asked in dashboards.every(dashboard):
        beside = set(OF_TARGETS)
        for one in expressions.selected(asked.expression):
            own = OF_PROMETHEUS.get(one.name) or known.of(one.name)
            if own is None and one.name not in OF_PROMETHEUS:
                yield f"{asked.where}: there is no {one.name}"
                continue
            beside |= own or frozenset()
            if one.name == "ALERTS":
                beside |= {label for labels in known.labels.values() for label in labels}
                beside.add("severity")
            used = {label for label, _, _ in one.matchers}
            if odd := used - OF_TARGETS - (own or frozenset()):
                yield f"{asked.where}: {one.name} has no {', '.join(sorted(odd))}"
        made = set(re.findall(r'count_values\("(\w+)"', asked.expression))
        legend = set(re.findall(r"{{(\w+)}}", asked.legend))
        if unknown := (expressions.labels(asked.expression) | legend) - beside - made:
            yield f"{asked.where}: nothing there has {', '.join(sorted(unknown))}"


def of_the_variables(dashboard: Dashboard, _known: Known) -> Iterator[str]:
    """A variable is explained, and used; what is used is there."""
    declared = {each["name"]: each for each in dashboard["templating"]["list"]}
    for name, each in declared.items():
        if not each.get("label") or not each.get("description"):
            yield f"variable {name}: no label or no description"
    used = {
        found[1] or found[2]
        for asked in dashboards.every(dashboard)
        for found in dashboards.VARIABLE.finditer(asked.expression)
    } - set(expressions.STAND_INS)
    for name in sorted(used - set(declared)):
        yield f"variable {name}: used and not declared"
    for name in sorted(set(declared) - used - {"datasource"}):
        yield f"variable {name}: declared and not used"


RULES: Final[tuple[Callable[[Dashboard, Known], Iterator[str]], ...]] = (
    of_the_dashboard,
    of_the_datasource,
    of_the_panels,
    of_the_units,
    of_the_times,
    of_the_numbers,
    of_the_places,
    of_the_machines,
    of_the_intervals,
    of_the_moment,
    of_the_counters,
    of_the_quantiles,
    of_the_metrics,
    of_the_variables,
)


def problems(dashboard: Dashboard, known: Known) -> list[str]:
    """Give everything that is wrong with a dashboard, each thing once."""
    return list(dict.fromkeys(found for rule in RULES for found in rule(dashboard, known)))


def _has_instance(name: str) -> bool:
    """Say whether series are of machines; what is recorded of drivers and models is not."""
    level, recorded, _ = name.partition(":")
    return not recorded or level not in {"driver", "model"}
