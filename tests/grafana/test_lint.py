"""Queries of the committed dashboards: of the chosen machines, about metrics that there are.

Each problem begins with the place, so that an exclusion can name it. Places and units are the
generator's work; that queries have data, and that variables exist, is shown by test_live.py.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from deploy.grafana import generate
from gpud.show.figures import MAIN
from tests.grafana import dashboards
from tests.prometheus import rules

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.grafana.dashboards import Asked, Dashboard

SELECTION: Final = re.compile(
    rf"(?:(?P<grown>rate|increase)\()?(?P<name>{rules.METRIC.pattern}|\b(?:ALERTS|up|scrape_\w+)(?={{))"
    r"(?:{(?P<matchers>[^}]*)})?(?:\[(?P<span>[^\]]+)\])?"
)
MATCHER: Final = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
OF_TARGETS: Final = {"job", "instance", "always_on"}
OF_PROMETHEUS: Final = {"ALERTS": frozenset({"alertname", "alertstate"})}
"""What Prometheus itself keeps; an alert also has the labels of what it is about."""
EXCLUDED: Final = {
    "variable job: gpud_build_info without job=~$job": "it is what the jobs are taken from",
    "variable job: gpud_build_info without instance=$instance": "likewise",
    "variable job: gpud_build_info without instance=~$instance": "likewise",
    "variable instance: gpud_build_info without instance=$instance": "likewise of the machines",
    "variable instance: gpud_build_info without instance=~$instance": "likewise of the machines",
    "Alerts of the rules A: ALERTS without instance=~$instance": (
        "an alert that compares drivers is of no single machine"
    ),
}
"""What is meant so, with the reason."""
COUNTERS: Final = frozenset(
    re.findall(
        r"^\| `(gpud_\w+)` \| counter \|",
        (rules.ROOT / "docs/metrics.md").read_text(),
        re.MULTILINE,
    )
)
LABELS: Final = rules.documented()
KNOWN: Final = OF_TARGETS.union({"le", "power"}, *LABELS.values(), *OF_PROMETHEUS.values())
OF_GRAFANA: Final = {"__range", "__rate_interval"}


def problems(dashboard: Dashboard) -> Iterator[str]:
    """Yield what is wrong with each selection of series."""
    multiple = {each["name"]: each["multi"] for each in dashboards.variables(dashboard)}
    declared = {each["name"] for each in dashboard["templating"]["list"]} | OF_GRAFANA
    for asked in dashboards.every(dashboard):
        used = {each[1] or each[2] for each in dashboards.VARIABLE.finditer(asked.expression)}
        yield from (f"{asked.where}: there is no variable {name}" for name in used - declared)
        grouped = re.findall(r"\w+", " ".join(rules.GROUPED.findall(asked.expression)))
        yield from (f"{asked.where}: no metric has {name}" for name in set(grouped) - KNOWN)
        for selection in SELECTION.finditer(asked.expression):
            for words in _of(selection.groupdict(), asked, multiple):
                yield f"{asked.where}: {words}"


def _of(selection: dict[str, Any], asked: Asked, multiple: dict[str, bool]) -> Iterator[str]:
    name, grown = selection["name"], selection["grown"]
    matchers = MATCHER.findall(selection["matchers"] or "")
    of_machines = name.partition(":")[0] not in {"driver", "model"}  # else of all of them
    for label in ("job", "instance") if of_machines else ("job",):
        wanted = (label, "=~" if multiple[label] else "=", f"${label}")
        if wanted not in matchers:
            yield f"{name} without {''.join(wanted)}"
    if grown and selection["span"] != ("$__range" if asked.at_once else "$__rate_interval"):
        yield f"{name} over an interval of its own"
    base = re.sub(r"_(bucket|count|sum)$", "", name)
    counts = name in COUNTERS or (base != name and base in LABELS)
    if not asked.where.startswith("variable ") and counts is not bool(grown):
        yield f"{name} is {'a' if counts else 'no'} counter"
    if name.startswith("gpud_"):
        if (known := LABELS.get(base)) is None:
            yield f"there is no {name}"
        elif odd := {label for label, _, _ in matchers} - OF_TARGETS - known - {"le"}:
            yield f"{name} has no {', '.join(sorted(odd))}"


def test_every_query_keeps_the_rules_but_those_that_are_excluded() -> None:
    found = {problem for each in dashboards.committed().values() for problem in problems(each)}
    assert found == set(EXCLUDED)


HERE: Final = 'job=~"$job", instance="$instance"'


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ('gpud_gpu_fan_ratio{instance="$instance"}', "gpud_gpu_fan_ratio without job=~$job"),
        (f"rate(gpud_gpu_energy_joules_total{{{HERE}}}[5m])", "over an interval of its own"),
        (f"gpud_gpu_energy_joules_total{{{HERE}}}", "gpud_gpu_energy_joules_total is a counter"),
        (f"gpud_gpu_fan_percent{{{HERE}}}", "there is no gpud_gpu_fan_percent"),
        (f'gpud_gpu_fan_ratio{{{HERE}, fan="1"}}', "gpud_gpu_fan_ratio has no fan"),
        (f"max by (fan) (gpud_gpu_fan_ratio{{{HERE}}})", "no metric has fan"),
        (f'gpud_gpu_fan_ratio{{{HERE}, gpu="$card"}}', "there is no variable card"),
    ],
)
def test_a_query_that_breaks_a_rule_is_reported(query: str, message: str) -> None:
    dashboard = copy.deepcopy(dashboards.committed()["machine"])
    [use] = [panel for panel in dashboards.panels(dashboard) if panel["title"] == "Use"]
    use["targets"][0]["expr"] = query
    assert [problem for problem in problems(dashboard) if message in problem]


UNITS: Final = {
    "Bps": r"_bytes_per_second",
    "bytes": r"_bytes(?!_per)",
    "celsius": r"_celsius",
    "flops": r"_flops_per_second",
    "hertz": r"_hertz",
    "percentunit": r"_ratio\b|usual:ratio",
    "s": r"(?<!per)_seconds|timestamp\(|cost:median",
    "watt": r"_watts|_joules_total",
}
"""By Grafana's unit, how the names of metrics say it."""


@pytest.mark.parametrize("name", ["fleet", "machine"])
def test_a_panel_has_one_unit_a_text_and_runbooks_that_exist(name: str) -> None:
    dashboard = dashboards.committed()[name]
    for panel in dashboards.panels(dashboard):
        unit = panel["fieldConfig"]["defaults"]["unit"]
        for target in panel["targets"]:
            named = {name for name, word in UNITS.items() if re.search(word, target["expr"])}
            if panel["type"] != "table" and " bool " not in target["expr"]:
                assert named == {unit} - {"none"}, panel["title"]
    for panel in dashboards.panels(dashboard):
        assert panel["description"].endswith("."), panel["title"]
        assert not re.search("figure|stream", panel["title"], re.IGNORECASE)
        for link in panel.get("links", []):
            page = link["url"].removeprefix("http://${instance}/runbooks/")
            assert (rules.RUNBOOKS / f"{page}.md").is_file()


def test_the_dashboard_of_a_machine_is_short_and_begins_as_the_page_does() -> None:
    dashboard = dashboards.committed()["machine"]
    titles = [panel["title"] for panel in dashboards.panels(dashboard)]
    assert titles[:3] == ["State", "Last scrape", "Driver"]
    assert len(titles) <= 25
    below = [panel["title"] for panel in dashboard["panels"] if panel["gridPos"]["y"] < 21][1:]
    assert titles[: len(below)] == below
    assert below[-1] == "Time for the same work, in percent of usual"
    tables = {each["title"]: each for each in dashboards.panels(dashboard)}
    for title in ("Latency", "Bandwidth", "Arithmetic"):
        columns = tables[title]["transformations"][1]["options"]
        named = sorted(columns["renameByName"], key=columns["indexByName"].get)
        headings = [columns["renameByName"][name] for name in named]
        assert headings == ["Metric", "GPU", "Now", "Usual", "Slower by"]


def test_metrics_of_the_first_screen_are_those_of_the_page() -> None:
    text = (rules.FOLDER / "rules/recording.yml").read_text()
    [(probes, modes)] = re.findall(r'gpu!="", probe=~"([\w|]+)", mode=~"([\w|]+)"', text)
    assert set(probes.split("|")) == {probe for probe, _ in MAIN}
    assert set(modes.split("|")) == {mode for _, mode in MAIN}


@pytest.mark.parametrize("name", ["fleet", "machine"])
def test_a_dashboard_can_be_published_and_imported(name: str) -> None:
    dashboard = dashboards.committed()[name]
    [given] = dashboard["__inputs"]
    assert (given["type"], given["pluginId"]) == ("datasource", "prometheus")
    used = set(re.findall(r"\${(DS_\w+)}", json.dumps(dashboard)))
    assert used == {given["name"]}
    required = {each["id"] for each in dashboard["__requires"] if each["type"] == "panel"}
    assert required == {panel["type"] for panel in dashboards.panels(dashboard)}
    assert dashboard["id"] is None


# --- what is committed is what the code gives ---

COMMAND: Final = "deploy/build-dashboards"


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, root / COMMAND, *arguments], capture_output=True, text=True, check=False
    )


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A tree with the command and the code alone."""
    keep = shutil.ignore_patterns("__pycache__")
    shutil.copytree(dashboards.ROOT / "deploy/grafana", tmp_path / "deploy/grafana", ignore=keep)
    shutil.copy(dashboards.ROOT / COMMAND, tmp_path / COMMAND)
    return tmp_path


def test_the_committed_dashboards_are_what_the_code_gives() -> None:
    made = generate.files()
    assert set(made) == set(dashboards.FOLDER.iterdir())
    for file, text in made.items():
        assert file.read_bytes() == text.encode(), f"{file.name}: run {COMMAND}"


def test_the_command_tells_a_file_that_was_edited_and_writes_it_anew(copied: Path) -> None:
    edited = copied / "deploy/grafana/dashboards/fleet.json"
    before = edited.read_bytes()
    assert run(copied, "--check").returncode == 0
    edited.write_bytes(before.replace(b'"editable": false', b'"editable": true'))
    checked = run(copied, "--check")
    assert (checked.returncode, checked.stdout[:11]) == (1, "fleet.json:")
    assert run(copied).returncode == 0
    assert edited.read_bytes() == before
    edited.unlink()
    assert run(copied, "--check").returncode == 1
