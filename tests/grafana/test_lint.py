"""Queries of the committed dashboards: of the chosen machines, about metrics that there are.

Each rule gives what is wrong, beginning with the place, so that an exclusion can name it. Places
and units are the generator's work; that queries have data is shown by test_live.py.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from tests.grafana import dashboards, expressions
from tests.prometheus import rules

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
EXCLUDED: Final = {
    "variable job: gpud_build_info without job=~$job": "it is what the jobs are taken from",
    "variable job: gpud_build_info without instance=$instance": "likewise",
    "variable job: gpud_build_info without instance=~$instance": "likewise",
    "variable instance: gpud_build_info without instance=$instance": "likewise of the machines",
    "variable instance: gpud_build_info without instance=~$instance": "likewise of the machines",
    "dockerd starts after an end: gpud_dockerd_restarts_total is a counter": (
        "a reason's series begins with its first case, which increase() does not see"
    ),
    "Xid errors since the agent started: gpud_gpu_xid_errors_total is a counter": "likewise",
    "Lines of dxgkrnl since the boot: gpud_dxg_messages_total is a counter": (
        "most lines are written within the first minute after the boot"
    ),
    "Alerts of Prometheus' rules: ALERTS without instance=~$instance": (
        "an alert that compares drivers is of no single machine"
    ),
}
"""What a rule says and is meant so, with the reason."""


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
    of_the_counters,
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


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Known:
    """What docs/metrics.md and the recording rules have."""
    text = (rules.ROOT / "docs/metrics.md").read_text()
    counters = re.findall(r"^\| `(gpud_\w+)` \| counter \|", text, re.MULTILINE)
    labels = rules.documented()
    for rule in rules.read(tmp_path_factory.mktemp("prometheus")):
        if not rule.is_alert:
            selected = expressions.selected(rule.expression)
            beside = [labels.get(one.name, frozenset()) for one in selected]
            replaced = re.findall(r'label_replace\((?s:.*?)"(\w+)"', rule.expression)
            grouped = expressions.labels(rule.expression)
            labels[rule.name] = frozenset(grouped.union(*beside, replaced)) - OF_TARGETS
    return Known(labels, frozenset(counters))


def test_every_query_keeps_the_rules_but_those_that_are_excluded(known: Known) -> None:
    found = {p for dashboard in dashboards.committed().values() for p in problems(dashboard, known)}
    assert found == set(EXCLUDED)


HERE: Final = 'job=~"$job", instance="$instance"'


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ('gpud_gpu_fan_ratio{instance="$instance"}', "gpud_gpu_fan_ratio without job=~$job"),
        (f"rate(gpud_gpu_energy_joules_total{{{HERE}}}[5m])", "over an interval of its own"),
        (f"gpud_gpu_energy_joules_total{{{HERE}}}", "gpud_gpu_energy_joules_total is a counter"),
        (f"gpud_gpu_fan_percent{{{HERE}}}", "there is no gpud_gpu_fan_percent"),
        (f"max by (fan) (gpud_gpu_fan_ratio{{{HERE}}})", "nothing there has fan"),
        (f'gpud_gpu_fan_ratio{{{HERE}, gpu="$card"}}', "variable card: used and not declared"),
    ],
)
def test_a_query_that_breaks_a_rule_is_reported(query: str, message: str, known: Known) -> None:
    dashboard = copy.deepcopy(dashboards.committed()["machine"])
    [fan] = [panel for panel in dashboards.panels(dashboard) if panel["title"] == "Fan"]
    fan["targets"][0]["expr"] = query
    assert [problem for problem in problems(dashboard, known) if message in problem]
