"""deploy/prometheus: what its tools find, and the conventions that no tool here looks at."""

from __future__ import annotations

import re
import shlex
import shutil
from typing import TYPE_CHECKING

import pytest

from gpud import cli
from gpud.agent.telemetry import codes
from gpud.core import alerts as built_in
from tests.e2e import scraping
from tests.e2e.program import free_port
from tests.prometheus import rules
from tests.prometheus.rules import (
    FOLDER,
    GROUPED,
    MADE,
    METRIC,
    OF_TARGETS,
    ROOT,
    RUNBOOKS,
    SELECTED,
    Rule,
    said,
)
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

LEAST_FOR_S = 60.0  # twice the interval between two evaluations, four times that of scrapes
CAUSED_BY_PROGRAMS = {8, 13, 31, 32, 43, 45, 68, 69, 109}
OF_A_STATE = {
    *("GpudDown", "GpudUnwell", "GpudCollectorFailing", "GpudGpuMissing", "GpudBreakerStuck"),
    "GpudDockerDown",
}
"""Alerts of a state that is so or not so: the others have a number in their summary."""
PAGES = sorted(RUNBOOKS.iterdir())
SECTIONS = ["What you notice", "How to look", "What to do", "When to leave it"]
OWN = {
    value for name, value in vars(built_in).items() if name.isupper() and str(value)[:4] == "Gpud"
}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> list[Rule]:
    return rules.read(tmp_path_factory.mktemp("prometheus"))


@pytest.fixture(scope="module")
def alerts(everything: list[Rule]) -> list[Rule]:
    return [rule for rule in everything if rule.is_alert]


@pytest.fixture(scope="module")
def recorded(everything: list[Rule]) -> dict[str, Rule]:
    return {rule.name: rule for rule in everything if not rule.is_alert}


def test_promtool_finds_nothing_wrong_with_the_rules() -> None:
    files = sorted(FOLDER.glob("rules/*.yml"))
    found = said("promtool", "check", "rules", "--lint=all", "--lint-fatal", *files)
    assert found.count("SUCCESS") == len(files) == 3


@pytest.mark.parametrize(
    "file", sorted(FOLDER.glob("tests/*.test.yml")), ids=lambda path: path.stem
)
def test_the_rules_say_what_their_tests_expect(file: Path) -> None:
    assert "SUCCESS" in said("promtool", "test", "rules", file)


def test_every_alert_is_seen_silent_then_firing_then_over(alerts: list[Rule]) -> None:
    seen: dict[str, set[str]] = {}
    for file in FOLDER.glob("tests/*.test.yml"):
        for test in file.read_text().split("  - name: ")[1:]:
            told: dict[str, str] = {}
            for name, expected in re.findall(r"alertname: (\w+)\n +exp_alerts:( \[\])?", test):
                told[name] = told.get(name, "") + ("-" if expected else "!")
            for name, course in told.items():
                seen.setdefault(name, set()).add(course)
    courses = {
        name: any("-!-" in re.sub(r"!+", "!", c) for c in all_) for name, all_ in seen.items()
    }
    assert courses == {alert.name: True for alert in alerts}


def test_every_recording_rule_has_its_values_held(recorded: dict[str, Rule]) -> None:
    text = (FOLDER / "tests/recording.test.yml").read_text()
    asked = re.findall(r"- expr: (?:round\()?([\w:]+)", text)
    assert set(asked) == set(recorded)


def test_every_metric_that_is_used_exists_with_the_labels_that_are_used(
    everything: list[Rule], recorded: dict[str, Rule]
) -> None:
    documented = rules.documented()
    wrong = []
    for rule in everything:
        for text in rule.texts:
            for name, matchers in SELECTED.findall(text):
                if name == "up" or name in recorded:
                    continue
                if name not in documented:
                    wrong.append(f"{rule.name}: there is no {name}")
                used = set(re.findall(r"(\w+)(?:=~|!~|!=|=)", matchers))
                if odd := used - OF_TARGETS - documented.get(name, frozenset()):
                    wrong.append(f"{rule.name}: {name} has no {', '.join(sorted(odd))}")
    assert not wrong


def test_every_label_that_is_grouped_by_is_one_of_a_metric_beside_it(
    everything: list[Rule], recorded: dict[str, Rule]
) -> None:
    documented = rules.documented()

    def labels(expression: str) -> set[str]:
        found = {*OF_TARGETS, *MADE.findall(expression)}
        for name in METRIC.findall(expression):
            more = (
                labels(recorded[name].expression) if name in recorded else documented.get(name, ())
            )
            found.update(more)
        return found

    for rule in everything:
        grouped = {name for group in GROUPED.findall(rule.expression) for name in group.split(", ")}
        assert not grouped - {""} - labels(rule.expression), rule.name


def test_machines_are_kept_apart_and_other_jobs_are_left_alone(everything: list[Rule]) -> None:
    for rule in everything:
        for kind, group in re.findall(r"\b(by|on) \(([^)]*)\)", rule.expression):
            assert "job" in group.split(", "), f"{rule.name}: {kind} ({group})"
        for text in rule.texts:
            for name, matchers in SELECTED.findall(text):
                assert ":" in name or 'job="gpud"' in matchers, f"{rule.name}: {name}"
        assert not re.search(r"\b(topk|bottomk)\b", rule.expression), rule.name


def test_an_alert_waits_until_it_is_no_accident(alerts: list[Rule]) -> None:
    assert not [alert.name for alert in alerts if alert.for_s < LEAST_FOR_S]


def test_an_alert_says_how_soon_what_is_wrong_and_where_its_page_is(alerts: list[Rule]) -> None:
    for alert in alerts:
        assert re.fullmatch(r"Gpud([A-Z][a-z]+)+", alert.name)
        assert set(alert.labels) == {"severity"}
        assert alert.labels["severity"] in {"critical", "warning", "info"}
        assert set(alert.annotations) == {"summary", "description", "runbook_url"}
        summary, description = alert.annotations["summary"], alert.annotations["description"]
        assert ("$value" in summary) is not (alert.name in OF_A_STATE), alert.name
        assert summary.endswith((".", "{{- end }}")), alert.name
        assert description.endswith("."), alert.name
        assert re.fullmatch(
            rf"http://{{{{.*}}}}/runbooks/{alert.name}", alert.annotations["runbook_url"]
        )
        assert (RUNBOOKS / f"{alert.name}.md").is_file()


def test_a_summary_names_the_machine_and_the_gpu() -> None:
    expected = [
        (dict(re.findall(r'(\w+): "?([^",}]+)', labels)), summary)
        for file in FOLDER.glob("tests/*.test.yml")
        for labels, summary in re.findall(
            r"exp_labels: ({.*})\n +exp_annotations:\n +summary: (.*)", file.read_text()
        )
    ]
    assert len(expected) > 60
    for labels, summary in expected:
        assert labels.get("instance", "") in summary
        if "gpu" in labels:
            assert f"GPU {labels['gpu']} of {labels['instance']}" in summary
        assert "{{" not in summary


def test_xids_of_the_rules_are_documented_and_none_is_the_fault_of_a_program(
    alerts: list[Rule],
) -> None:
    told = [
        {int(code) for code in codes.split("|")}
        for alert in alerts
        for codes in re.findall(r'xid=~"([\d|]+)"', alert.expression)
    ]
    assert len(told) == 2
    assert not told[0] & told[1]
    assert told[0] | told[1] | CAUSED_BY_PROGRAMS == set(codes.XIDS) - {0}
    assert not (told[0] | told[1]) & CAUSED_BY_PROGRAMS


# --- docs/runbooks --------------------------------------------------------------------------------


def test_every_alert_has_a_page_and_every_page_an_alert(everything: list[Rule]) -> None:
    assert len(OWN) == 6
    names = OWN | {rule.name for rule in everything if rule.is_alert}
    assert [page.name for page in PAGES] == sorted(f"{name}.md" for name in names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_its_name_what_it_means_and_four_sections(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert lines[0] == f"# {page.stem}"
    assert len(lines[2]) > 40
    assert [line[3:] for line in lines if line.startswith("## ")] == SECTIONS
    for above, below in zip(lines, [*lines[2:], "x"], strict=False):
        assert not (above.startswith("## ") and below.startswith("## ")), above


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_metric_name_and_link_on_a_page_exists(page: Path) -> None:
    text = page.read_text()
    for words in rules.commands(text):
        cli.parser().parse_args(words)  # what it does not know ends in SystemExit
    for line in re.findall(r"`(gpud [^`]+)`", text):
        assert shlex.split(line)
    assert set(METRIC.findall(text)) <= rules.documented().keys()
    for _, target in re.findall(r"\[(\w+)\]\((\w+\.md)\)", text):
        assert (RUNBOOKS / target).is_file()
    # Reasons, states, settings and the parts of gpud have their names in its sources.
    source = "\n".join(
        file.read_text() for file in [*ROOT.glob("gpud/**/*.py"), ROOT / "deploy/gpud.toml"]
    )
    name = r"`\[?(?:[a-z]+\.)?([a-z]+(?:_[a-z]+)*)\]?(?: = [^`]+)?`"
    words = re.findall(name, METRIC.sub("", text))
    assert not [word for word in words if word not in source and word != "memory"]


def test_every_command_in_a_description_exists(everything: list[Rule]) -> None:
    found = [words for rule in everything for words in rules.commands("".join(rule.texts))]
    assert len(found) > 20
    for words in found:
        cli.parser().parse_args(words)


# --- the example configurations do what they say ---


ALERTMANAGER = FOLDER / "alertmanager.yml"


def test_both_tools_find_nothing_wrong_with_the_examples() -> None:
    prometheus = said("promtool", "check", "config", FOLDER / "prometheus.yml")
    assert "3 rule files found" in prometheus
    assert "SUCCESS" in said("amtool", "check-config", ALERTMANAGER)


def test_a_gpud_that_does_not_answer_beside_its_prometheus_is_down(tmp_path: Path) -> None:
    text = re.sub(r"_interval: \d+s", "_interval: 1s", (FOLDER / "prometheus.yml").read_text())
    text = text.replace("127.0.0.1:9945", f"127.0.0.1:{free_port()}")
    (tmp_path / "prometheus.yml").write_text(text)
    shutil.copytree(FOLDER / "rules", tmp_path / "rules")
    with scraping.running(store := scraping.prometheus_of(tmp_path)):
        until(
            lambda: store.values('ALERTS{alertname="GpudDown"}'),
            "GpudDown waits",
            60,
        )


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ("alertname=GpudDriverChanged severity=info", "nobody"),
        ("alertname=GpudXid severity=warning", "people"),
        ("alertname=GpudXid severity=critical", "people"),
        ("alertname=Other", "people"),
    ],
)
def test_alerts_for_information_have_no_receiver(labels: str, receiver: str) -> None:
    file = f"--config.file={ALERTMANAGER}"
    assert said("amtool", "config", "routes", "test", file, *labels.split()).strip() == receiver


def test_alerts_that_follow_from_another_of_the_same_machine_are_inhibited(tmp_path: Path) -> None:
    def of(instance: str, *names: str) -> list[dict[str, str]]:
        return [{"alertname": name, "job": "gpud", "instance": instance} for name in names]

    stale = ("GpudProbeStale", "GpudCollectorStale", "GpudProbeFailing")
    config = re.sub(r"url: \S+", "url: http://127.0.0.1:1/", ALERTMANAGER.read_text())
    with scraping.alertmanager(config, tmp_path) as port:
        fired = (
            *of("down:1", "GpudDown", "GpudXid", "GpudFunctionLost"),
            *of("lost:1", "GpudFunctionLost", *stale, "GpudXid"),
            *of("stuck:1", "GpudBreakerStuck", *stale, "GpudLatencyRegression"),
            *of("well:1", *stale),
        )
        scraping.post(port, [{"labels": labels} for labels in fired])

        def states() -> dict[str, set[str]] | None:
            found = scraping.alerts(port)
            if len(found) < 16 or any(a["status"]["state"] == "unprocessed" for a in found):
                return None
            held: dict[str, set[str]] = {}
            for alert in found:
                if alert["status"]["inhibitedBy"]:
                    held.setdefault(alert["labels"]["instance"], set()).add(
                        alert["labels"]["alertname"]
                    )
            return held

        assert until(states, "all alerts are looked at") == {
            "down:1": {"GpudXid", "GpudFunctionLost"},
            "lost:1": set(stale),
            "stuck:1": set(stale),
        }
