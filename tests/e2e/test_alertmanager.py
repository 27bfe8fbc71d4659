"""A driver update that slows the GPU down, from the stand-in to the message of Alertmanager.

gpud, Prometheus and Alertmanager are the real programs, with the rules and the routes of
deploy/prometheus; only what they wait for is shortened, by ``rules.hurried`` and ``SOON``.
"""

from __future__ import annotations

import re
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.agent.alerts.telling import receiver
from tests.e2e import scraping
from tests.e2e.driven import KNOWN, LAUNCH_NS, NEW, OLD, machine
from tests.prometheus import rules
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from pathlib import Path

SLOWER = 1.25
SOON = {"group_wait": "0s", "group_interval": "1s"}
NAME, SUBMIT = "GpudLatencyRegression", {"probe": "launch", "mode": "submit", "kind": "driver"}


def routes(url: str) -> str:
    """The example's, with the receiver's address and hardly any waiting."""
    text = re.sub(r"url: \S+", f"url: {url}", (rules.FOLDER / "alertmanager.yml").read_text())
    for name, value in SOON.items():
        text = re.sub(rf"{name}: \w+", f"{name}: {value}", text)
    return text


def test_a_driver_that_is_a_quarter_slower_is_delivered_and_its_end_too(
    tmp_path: Path,
) -> None:
    with (
        machine() as driven,
        receiver() as webhook,
        scraping.alertmanager(routes(webhook.url()), tmp_path) as alertmanager,
        scraping.prometheus(
            driven.gpud.port, tmp_path, rules.hurried(tmp_path), alertmanager
        ) as port,
    ):
        gpud = driven.gpud
        driven.start()

        def report(status: str) -> list[dict[str, Any]]:
            return [
                alert
                for document in webhook.documents
                for alert in document["alerts"]
                if alert["status"] == status and SUBMIT.items() <= alert["labels"].items()
            ]

        driven.more_runs(KNOWN)
        runs = 'gpud_probe_runs_total{probe="launch"}'
        until(lambda: scraping.number(port, runs) >= KNOWN, f"{KNOWN} runs in Prometheus")
        streams = "count(gpud_regression_active)"
        until(lambda: scraping.number(port, streams), "what the detector makes of them")
        assert webhook.documents == []

        driven.overnight(NEW, SLOWER)
        [alert, *_] = until(lambda: report("firing"), "the regression")
        instance = f"127.0.0.1:{gpud.port}"
        assert alert["labels"] == SUBMIT | {
            "alertname": NAME,
            "severity": "warning",
            "job": "gpud",
            "instance": instance,
            "gpu": "0",
        }
        output = alert["annotations"]
        assert output["summary"] == "Work takes longer than it used to."
        words = re.fullmatch(
            rf"launch submit on GPU 0 of {instance} takes ([\d.]+)% longer than usual, "
            rf"([\d.]+)us now, ([\d.]+)us before, since the driver was replaced \(now {NEW}\)\. .+",
            output["description"],
        )
        assert words, output["description"]
        slower, now_us, before_us = (float(figure) for figure in words.groups())
        assert slower == pytest.approx((SLOWER - 1) * 100, abs=5)
        assert now_us / before_us == pytest.approx(SLOWER, abs=0.08)
        assert before_us == pytest.approx(LAUNCH_NS / 1000, rel=0.1)
        with urllib.request.urlopen(output["runbook_url"], timeout=LIMIT_S) as page:
            assert f"<h1>{NAME}</h1>" in page.read().decode()

        driven.overnight(OLD)
        until(lambda: report("resolved"), "the end of the regression")
        names = {
            alert["labels"]["alertname"]
            for document in webhook.documents
            for alert in document["alerts"]
        }
        assert names == {NAME}, "the change of the driver is for information, and nothing else is"
        until(
            lambda: NAME not in {a["labels"]["alertname"] for a in scraping.alerts(alertmanager)},
            "nothing fires any more",
        )
        assert "Traceback" not in gpud.logs()
