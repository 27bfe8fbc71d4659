"""Rules for the queries of dashboards. That panels have places and units, their generator sees to.

Each rule is a function from a dashboard, and what is known of the metrics, to what is wrong; the
text begins with the place, so that an exclusion can name it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import promql_parser as promql

from tests.grafana import dashboards, expressions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.grafana.dashboards import Dashboard

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


def of_the_machines(dashboard: Dashboard, _known: Known) -> Iterator[str]:
    """Every query is of the chosen jobs and machines, compared as the variable is chosen."""
    multiple = {each["name"]: each["multi"] for each in dashboards.variables(dashboard)}
    for asked in dashboards.every(dashboard):
        for selected in expressions.selected(asked.expression):
            for label in ("job", "instance") if _has_instance(selected.name) else ("job",):
                wanted = (label, "=~" if multiple[label] else "=", f"${label}")
                if wanted not in selected.matchers:
                    yield f"{asked.where}: {selected.name} without {''.join(wanted)}"


def of_the_intervals(dashboard: Dashboard, _known: Known) -> Iterator[str]:
    """A rate is over what Grafana holds to be enough, or over the whole time for now alselected."""
    for asked in dashboards.every(dashboard):
        for selected in expressions.selected(asked.expression):
            if selected.span is None or not COUNTED & set(selected.inside):
                continue
            right = expressions.RANGE if asked.at_once else expressions.RATE_INTERVAL
            if selected.span != right:
                yield f"{asked.where}: {selected.name} over an interval of its own"


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
        for selected in expressions.selected(asked.expression):
            grown = bool(COUNTED & set(selected.inside))
            if known.counts(selected.name) and not grown:
                yield f"{asked.where}: {selected.name} is a counter"
            if grown and not known.counts(selected.name):
                yield f"{asked.where}: {selected.name} is no counter"


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
        for selected in expressions.selected(asked.expression):
            own = OF_PROMETHEUS.get(selected.name) or known.of(selected.name)
            if own is None and selected.name not in OF_PROMETHEUS:
                yield f"{asked.where}: there is no {selected.name}"
                continue
            beside |= own or frozenset()
            if selected.name == "ALERTS":
                beside |= {label for labels in known.labels.values() for label in labels}
                beside.add("severity")
            used = {label for label, _, _ in selected.matchers}
            if odd := used - OF_TARGETS - (own or frozenset()):
                yield f"{asked.where}: {selected.name} has no {', '.join(sorted(odd))}"
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
