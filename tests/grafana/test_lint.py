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


def named(dashboard: Dashboard, title: str) -> dict[str, Any]:
    [panel] = [panel for panel in dashboards.panels(dashboard) if panel["title"] == title]
    return panel


def query(expression: str, title: str = "Fan", **more: object) -> Callable[[Dashboard], None]:
    """Give a panel another query."""
    return lambda dashboard: named(dashboard, title)["targets"][0].update(
        {"expr": expression} | more
    )


def variable(which: str, **values: object) -> Callable[[Dashboard], None]:
    """Give a variable other properties."""

    def change(dashboard: Dashboard) -> None:
        [found] = [v for v in dashboard["templating"]["list"] if v["name"] == which]
        found.update(values)

    return change


HERE: Final = 'job=~"$job", instance="$instance"'
BUCKETS: Final = f"rate(gpud_submit_latency_seconds_bucket{{{HERE}}}[$__rate_interval])"

BROKEN: Final = (
    (query('gpud_gpu_fan_ratio{instance="$instance"}'), "gpud_gpu_fan_ratio without job=~$job"),
    (
        query('gpud_gpu_fan_ratio{job=~"$job", instance=~"$instance"}'),
        "Fan: gpud_gpu_fan_ratio without instance=$instance",
    ),
    (
        query(f"rate(gpud_gpu_energy_joules_total{{{HERE}}}[5m])"),
        "Fan: gpud_gpu_energy_joules_total over an interval of its own",
    ),
    (query("gpud_gpu_pstate", "State", instant=False), "State: not of now"),
    (query(f"gpud_gpu_energy_joules_total{{{HERE}}}"), "gpud_gpu_energy_joules_total is a counter"),
    (query(f"rate(gpud_gpu_fan_ratio{{{HERE}}}[$__range])"), "gpud_gpu_fan_ratio is no counter"),
    (
        query(f"histogram_quantile(0.5, sum by (gpu) ({BUCKETS}))"),
        "Fan: a quantile of what is not summed by le",
    ),
    (query(f"histogram_quantile(0.5, {BUCKETS})"), "Fan: a quantile of what is not summed by le"),
    (query(f"gpud_gpu_fan_percent{{{HERE}}}"), "Fan: there is no gpud_gpu_fan_percent"),
    (query(f'gpud_gpu_fan_ratio{{{HERE}, fan="0"}}'), "Fan: gpud_gpu_fan_ratio has no fan"),
    (query(f"max by (fan) (gpud_gpu_fan_ratio{{{HERE}}})"), "Fan: nothing there has fan"),
    (query(f'gpud_gpu_fan_ratio{{{HERE}, gpu="$card"}}'), "variable card: used and not declared"),
    (variable("gpu", description=""), "variable gpu: no label or no"),
    (variable("mode", name="way"), "variable way: declared and not used"),
)
"""A change that breaks a rule, and the rule's message; `Fan` stands for any panel."""


@pytest.mark.parametrize(("change", "message"), BROKEN, ids=[text for _, text in BROKEN])
def test_a_dashboard_that_breaks_a_rule_is_reported(
    change: Callable[[Dashboard], None], message: str, known: lint.Known
) -> None:
    dashboard = copy.deepcopy(dashboards.committed()["machine"])
    before = set(lint.problems(dashboard, known))
    change(dashboard)
    problems = set(lint.problems(dashboard, known)) - before
    assert [problem for problem in problems if message in problem], problems
