"""A driver that makes work slower to submit: what the running program tells of it, and when.

The numbers that are expected are not written down here: the history is judged again in one go, and
what the program has decided must be that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gpud.agent.alerts.wording import WIDEST
from tests.agent.alerts.telling import receiver
from tests.e2e.driven import (
    FIRST_LOOK,
    KNOWN,
    NEW,
    OLD,
    alerts,
    machine,
    notice,
    received,
)
from tests.waiting import until

if TYPE_CHECKING:
    from tests.e2e.driven import Decision, Machine
    from tests.e2e.program import Program

REGRESSION = "GpudDriverRegression"
LABELS = {"gpu": "0", "probe": "launch", "mode": "submit"}


def submit(gpud: Program) -> dict[str, Any]:
    """How the stream of single launches stands."""
    document = gpud.status()
    assert document is not None
    [stream] = [item for item in document["streams"] if item["mode"] == "submit"]
    return dict(stream)


def verdict(gpud: Program) -> tuple[str, str, str]:
    """What is said of the latest update, and from which driver to which it was."""
    report = submit(gpud)["verdict"]
    return report["state"], report["old_driver"], report["new_driver"]


def narrow(row: dict[str, Any]) -> bool:
    return bool(row["high"] - row["low"] <= WIDEST * (row["slowdown"] - 1))


def assert_told_everywhere(driven: Machine, decision: Decision, report: dict[str, Any]) -> None:
    """The same alert in the API, at the webhook, in the shell, on /metrics and by the commands."""
    gpud = driven.gpud
    [alert] = alerts(gpud)
    assert alert["name"] == REGRESSION
    assert alert["labels"] == {"kind": "driver", "old": OLD, "new": NEW}
    assert (alert["causes"][0]["old"], alert["causes"][0]["new"]) == (OLD, NEW)
    shown = {item["stream"]["mode"]: item for item in alert["evidence"]}
    assert {"submit"} <= set(shown) <= set(driven.expected())  # others follow
    assert shown["submit"]["slowdown"] == decision.ratio
    assert shown["submit"]["low"] < 1.12 < shown["submit"]["high"]
    assert shown["submit"]["samples"] == decision.samples

    assert report["version"] == "4"
    [firing] = report["alerts"]
    assert firing["labels"].items() >= {"alertname": REGRESSION, "old": OLD, "new": NEW}.items()
    moved = f"submission latency +{(decision.ratio - 1) * 100:.0f} % ("
    # The simplest figure leads where it cannot be told from the most certain one, the first.
    first, submit = alert["evidence"][0], shown["submit"]
    leads = narrow(submit) == narrow(first) and submit["high"] >= first["slowdown"]
    for line in (firing["annotations"]["summary"], notice(gpud)):
        assert f"{OLD} -> {NEW}" in line
        assert line.startswith(moved) or not leads

    severity = alert["severity"]
    assert gpud.value("gpud_regression_active", kind="driver", **LABELS) == 1
    assert gpud.value("gpud_slowdown_ratio", **LABELS) == pytest.approx(1.12, abs=0.03)
    assert gpud.value("gpud_alerts_firing", alertname=REGRESSION, severity=severity) == 1
    for words in (("status",), ("alerts",)):
        text = gpud.cli(*words)
        assert OLD in text.stdout, words
        assert NEW in text.stdout, words
    assert gpud.cli("alerts").returncode == 1


def test_slower_driver_is_reported_once_everywhere_until_it_is_replaced() -> None:
    with receiver() as hook, machine() as driven:
        gpud = driven.gpud
        gpud.settings["alerts"]["webhook_urls"] = [hook.url()]
        driven.start()
        driven.more_runs(KNOWN)
        driven.swap(NEW, 1.12)
        until(lambda: received(hook, "firing"), "the webhook to be told")
        driven.more_runs(FIRST_LOOK)  # for whatever else might be told

        [decision] = driven.judged()["submit"]
        assert (decision.kind, decision.worse, decision.samples) == ("driver", True, FIRST_LOOK)
        assert decision.ratio == pytest.approx(1.12, abs=0.03)
        assert verdict(gpud) == ("regressed", OLD, NEW)
        [report] = hook.documents
        assert_told_everywhere(driven, decision, report)

        driven.overnight(OLD)
        until(lambda: received(hook, "resolved"), "the webhook to be told of the end")
        driven.more_runs(FIRST_LOOK)
        driven.judged()
        assert alerts(gpud) == []
        assert len(received(hook, "resolved")) == 1
        assert len(hook.documents) == 2
        assert notice(gpud).startswith("resolved: ")
        assert gpud.value("gpud_regression_active", kind="driver", **LABELS) == 0
        assert gpud.value("gpud_slowdown_ratio", **LABELS) == pytest.approx(1, abs=0.03)
        assert gpud.cli("alerts").returncode == 0
        assert "Traceback" not in gpud.logs()


LOST = "GpudFunctionLost"
WORKED = 4


def test_cuda_that_the_new_driver_breaks_is_one_alert_until_it_works_again() -> None:
    with receiver() as hook, machine(seed=7) as driven:
        gpud = driven.gpud
        gpud.settings["alerts"]["webhook_urls"] = [hook.url()]
        driven.start()
        until(lambda: '["cuda",' in driven.state("functions"), "CUDA's work to be known")
        driven.overnight(NEW, more="fail cuInit 999\n")
        until(lambda: received(hook, "firing", LOST), "the webhook to be told")
        [alert] = alerts(gpud)
        assert (alert["name"], alert["severity"]) == (LOST, "critical")
        labels = alert["labels"]
        assert (labels["kind"], labels["old"], labels["new"]) == ("cuda", OLD, NEW)
        driven.replace(NEW)
        until(lambda: received(hook, "resolved", LOST), "the end")
        driven.more_runs(WORKED)
        assert alerts(gpud) == []
        assert len(hook.documents) == 2
