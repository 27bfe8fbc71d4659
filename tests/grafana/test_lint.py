"""The committed dashboards keep the rules, and every rule has something that breaks it."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.grafana import dashboards, expressions, lint
from tests.prometheus import rules

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.grafana.dashboards import Dashboard

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


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> lint.Known:
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
            labels[rule.name] = frozenset(grouped.union(*beside, replaced)) - lint.OF_TARGETS
    return lint.Known(labels, frozenset(counters))


@pytest.mark.parametrize("name", sorted(dashboards.committed()))
def test_a_dashboard_keeps_the_rules(name: str, known: lint.Known) -> None:
    found = lint.problems(dashboards.committed()[name], known)
    assert not [problem for problem in found if problem not in EXCLUDED]


def test_nothing_is_excluded_that_no_rule_says(known: lint.Known) -> None:
    found = {
        problem
        for dashboard in dashboards.committed().values()
        for problem in lint.problems(dashboard, known)
    }
    assert set(EXCLUDED) == found


def test_the_two_dashboards_are_told_apart() -> None:
    uids = [dashboard["uid"] for dashboard in dashboards.committed().values()]
    assert sorted(uids) == ["gpud-fleet", "gpud-machine"]


def named(dashboard: Dashboard, title: str) -> dict[str, Any]:
    [panel] = [panel for panel in dashboards.panels(dashboard) if panel["title"] == title]
    return panel


def asking(title: str, expression: str) -> Callable[[Dashboard], None]:
    """Have a panel ask something else."""

    def change(dashboard: Dashboard) -> None:
        named(dashboard, title)["targets"][0]["expr"] = expression

    return change


def putting(title: str, key: str, value: object) -> Callable[[Dashboard], None]:
    """Give a panel another property."""

    def change(dashboard: Dashboard) -> None:
        named(dashboard, title)[key] = value

    return change


def overall(key: str, value: object) -> Callable[[Dashboard], None]:
    """Give the dashboard another property."""

    def change(dashboard: Dashboard) -> None:
        dashboard[key] = value

    return change


def unit(value: str) -> Callable[[Dashboard], None]:
    def change(dashboard: Dashboard) -> None:
        named(dashboard, "Fan")["fieldConfig"]["defaults"]["unit"] = value

    return change


def of_column(value: str) -> Callable[[Dashboard], None]:
    def change(dashboard: Dashboard) -> None:
        [override] = named(dashboard, "Alerts that fire")["fieldConfig"]["overrides"]
        override["properties"][0]["value"] = value

    return change


def place(**values: int) -> Callable[[Dashboard], None]:
    def change(dashboard: Dashboard) -> None:
        named(dashboard, "Fan")["gridPos"].update(values)

    return change


def over_a_range(dashboard: Dashboard) -> None:
    named(dashboard, "State")["targets"][0].update(instant=False, range=True)


def same_letter(dashboard: Dashboard) -> None:
    for target in named(dashboard, "Power")["targets"]:
        target["refId"] = "A"


def variable(which: str, **values: object) -> Callable[[Dashboard], None]:
    def change(dashboard: Dashboard) -> None:
        [found] = [v for v in dashboard["templating"]["list"] if v["name"] == which]
        found.update(values)

    return change


def fixed(part: str) -> Callable[[Dashboard], None]:
    """Put a data source of somebody's Grafana in place of the chosen one."""

    def change(dashboard: Dashboard) -> None:
        panel = named(dashboard, "Fan")
        found = {
            "panel": panel,
            "query": panel["targets"][0],
            "variable": dashboard["templating"]["list"][1],
            "annotation": dashboard["annotations"]["list"][0],
        }[part]
        found["datasource"] = {"type": "prometheus", "uid": "PBFA97CFB590B2093"}

    return change


def marked(expression: str) -> Callable[[Dashboard], None]:
    def change(dashboard: Dashboard) -> None:
        dashboard["annotations"]["list"][0]["expr"] = expression

    return change


HERE: Final = 'job=~"$job", instance="$instance"'

BROKEN: Final = {
    "no id": (overall("id", 7), "id is null"),
    "uid of somebody's": (overall("uid", "a1B2c3"), "begins with gpud-"),
    "editable": (overall("editable", True), "editable"),
    "inputs": (overall("__inputs", []), "__inputs"),
    "another schema": (overall("schemaVersion", 36), "schema 36"),
    "no tags": (overall("tags", []), "no tags"),
    "data source of a panel": (fixed("panel"), "Fan: not the data source"),
    "data source of a query": (fixed("query"), "Fan: not the data source"),
    "data source of a variable": (fixed("variable"), "variable job: not the data source"),
    "data source of an annotation": (fixed("annotation"), "annotation Driver replaced: not the"),
    "data source not chosen": (variable("datasource", name="store"), "is not the data source"),
    "no title": (putting("Fan", "title", ""), "a title of at most"),
    "title of another": (putting("Fan", "title", "Power"), "Power: the title of 2 panels"),
    "no description": (putting("Fan", "description", "The fan."), "Fan: a description"),
    "no end": (putting("Fan", "description", "x" * 80), "Fan: a description"),
    "type of a plug-in": (putting("Fan", "type", "grafana-piechart-panel"), "Fan: a panel of type"),
    "no unit": (unit(""), "Fan: no unit of the list"),
    "unit of one's own": (unit("percent of max"), "Fan: no unit of the list"),
    "number among seconds": (
        asking("Scrape", f"increase(gpud_clock_jumps_total{{{HERE}}}[$__rate_interval])"),
        "Scrape: gpud_clock_jumps_total is no time",
    ),
    "unit of a column": (of_column("times"), "no unit of the list for Count"),
    "no query": (putting("Fan", "targets", []), "Fan: asks nothing"),
    "id of another": (putting("Fan", "id", 100), "2 panels with the id 100"),
    "number of long ago": (over_a_range, "State: not of now"),
    "letter of another": (same_letter, "Power: queries with the same letter"),
    "too wide": (place(w=25), "Fan: not within 24 columns"),
    "beside the grid": (place(x=-1), "Fan: not within 24 columns"),
    "on another": (place(x=0), "stands on Fan"),
    "any job": (
        asking("Fan", 'gpud_gpu_fan_ratio{instance="$instance"}'),
        "Fan: gpud_gpu_fan_ratio without job=~$job",
    ),
    "any machine": (
        asking("Fan", 'gpud_gpu_fan_ratio{job=~"$job"}'),
        "Fan: gpud_gpu_fan_ratio without instance=$instance",
    ),
    "machine as a pattern": (
        asking("Fan", 'gpud_gpu_fan_ratio{job=~"$job", instance=~"$instance"}'),
        "Fan: gpud_gpu_fan_ratio without instance=$instance",
    ),
    "one of two": (
        asking("Fan", f"gpud_gpu_fan_ratio{{{HERE}}} and gpud_gpu_pstate"),
        "Fan: gpud_gpu_pstate without job=~$job",
    ),
    "annotation of any machine": (
        marked("gpud_start_time_seconds * 1000"),
        "annotation Driver replaced: gpud_start_time_seconds without",
    ),
    "written interval": (
        asking("Fan", f"rate(gpud_gpu_energy_joules_total{{{HERE}}}[5m])"),
        "Fan: gpud_gpu_energy_joules_total over an interval of its own",
    ),
    "whole range in a graph": (
        asking("Fan", f"rate(gpud_gpu_energy_joules_total{{{HERE}}}[$__range])"),
        "Fan: gpud_gpu_energy_joules_total over an interval of its own",
    ),
    "bare counter": (
        asking("Fan", f"gpud_gpu_energy_joules_total{{{HERE}}}"),
        "Fan: gpud_gpu_energy_joules_total is a counter",
    ),
    "bare buckets": (
        asking("Fan", f"sum by (le) (gpud_submit_latency_seconds_bucket{{{HERE}}})"),
        "Fan: gpud_submit_latency_seconds_bucket is a counter",
    ),
    "rate of a gauge": (
        asking("Fan", f"rate(gpud_gpu_fan_ratio{{{HERE}}}[$__rate_interval])"),
        "Fan: gpud_gpu_fan_ratio is no counter",
    ),
    "quantile without bounds": (
        asking(
            "Fan",
            "histogram_quantile(0.5, sum by (gpu) "
            f"(rate(gpud_submit_latency_seconds_bucket{{{HERE}}}[$__rate_interval])))",
        ),
        "Fan: a quantile of what is not summed by le",
    ),
    "quantile of one bucket each": (
        asking(
            "Fan",
            "histogram_quantile(0.5, "
            f"rate(gpud_submit_latency_seconds_bucket{{{HERE}}}[$__rate_interval]))",
        ),
        "Fan: a quantile of what is not summed by le",
    ),
    "metric that is not there": (
        asking("Fan", f"gpud_gpu_fan_percent{{{HERE}}}"),
        "Fan: there is no gpud_gpu_fan_percent",
    ),
    "rule that is not there": (
        asking("Fan", f"instance:gpud_fan:max{{{HERE}}}"),
        "Fan: there is no instance:gpud_fan:max",
    ),
    "label that is not there": (
        asking("Fan", f'gpud_gpu_fan_ratio{{{HERE}, fan="0"}}'),
        "Fan: gpud_gpu_fan_ratio has no fan",
    ),
    "grouped by what is not there": (
        asking("Fan", f"max by (fan) (gpud_gpu_fan_ratio{{{HERE}}})"),
        "Fan: nothing there has fan",
    ),
    "joined by what is not there": (
        asking("Fan", f"gpud_gpu_fan_ratio{{{HERE}}} * on (uuid) gpud_gpu_pstate{{{HERE}}}"),
        "Fan: nothing there has uuid",
    ),
    "variable that is not there": (
        asking("Fan", f'gpud_gpu_fan_ratio{{{HERE}, gpu="$card"}}'),
        "variable card: used and not declared",
    ),
    "variable without a word": (variable("gpu", description=""), "variable gpu: no label or no"),
    "variable for nothing": (variable("mode", name="way"), "variable way: declared and not used"),
}
"""A change that breaks a rule, and what the rule says; `Fan` stands for any panel."""


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_broken_dashboard_is_told(name: str, known: lint.Known) -> None:
    change, said = BROKEN[name]
    dashboard = copy.deepcopy(dashboards.committed()["machine"])
    before = set(lint.problems(dashboard, known))
    change(dashboard)
    told = set(lint.problems(dashboard, known)) - before
    assert [problem for problem in told if said in problem], told


def test_every_rule_has_something_that_breaks_it(known: lint.Known) -> None:
    silent = {rule.__name__ for rule in lint.RULES}
    for change, _ in BROKEN.values():
        dashboard = copy.deepcopy(dashboards.committed()["machine"])
        before = {rule.__name__: set(rule(dashboard, known)) for rule in lint.RULES}
        change(dashboard)
        silent -= {r.__name__ for r in lint.RULES if set(r(dashboard, known)) - before[r.__name__]}
    assert not silent
