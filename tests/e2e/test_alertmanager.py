"""A driver update that slows the GPU down, from the stand-in to the message of Alertmanager.

gpud, Prometheus and Alertmanager are the real programs, with the rules and the routes of
deploy/prometheus; only what they wait for is shortened, by ``rules.hurried`` and ``SOON``.
"""

from __future__ import annotations

import contextlib
import os
import re
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.agent.alerts.telling import receiver
from tests.e2e import alerting, scraping
from tests.e2e.program import Program, cuda, nvml, only, program
from tests.prometheus import rules
from tests.standins.build import rewrite_script
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

OLD, NEW = "572.16", "576.02"
LAUNCH_NS = {OLD: 8000, NEW: 10000}
KNOWN = 25
"""Runs of the old driver: enough to compare with."""
SOON = {"group_wait": "0s", "group_interval": "1s"}
NAME, SUBMIT = "GpudLatencyRegression", {"probe": "launch", "mode": "submit", "kind": "driver"}


def install(gpud: Program, driver: str) -> None:
    """Put a driver in place, as Windows does over night: gpud does not run meanwhile."""
    if gpud.process is not None:
        gpud.stop()
    for section, script in (
        ("cuda", f"launch_ns {LAUNCH_NS[driver]}\n"),
        ("nvml", f"driver_version {driver}\n"),
    ):
        rewrite_script(Path(gpud.settings[section]["library"]), script)
    gpud.start()
    assert gpud.process is not None
    # The stand-in spins on a processor for what a GPU takes: work beside it would count as its.
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(gpud.process.pid, os.SCHED_RR, os.sched_param(1))


@pytest.fixture
def gpud() -> Iterator[Program]:
    with program() as made:
        made.settings = {
            "cuda": cuda(made.home),
            "nvml": nvml(made.home),
            "probes": only("launch"),
            "schedule": {
                "telemetry_interval_s": 0.5,
                "small_interval_s": 0.2,
                "large_interval_s": 3600.0,
                "jitter_ratio": 0.0,
            },
            # Long enough that work beside it makes no change under the same driver; so short that
            # runs five times a second still count one by one.
            "detector": {"update_span_s": 0.0, "window_span_s": 20.0},
        }
        install(made, OLD)
        yield made


def routes(url: str) -> str:
    """The example's, with the receiver's address and hardly any waiting."""
    text = re.sub(r"url: \S+", f"url: {url}", (rules.FOLDER / "alertmanager.yml").read_text())
    for name, value in SOON.items():
        text = re.sub(rf"{name}: \w+", f"{name}: {value}", text)
    return text


@pytest.mark.timeout(240)
def test_a_driver_that_is_a_quarter_slower_is_delivered_and_its_end_too(
    gpud: Program, tmp_path: Path
) -> None:
    with (
        receiver() as webhook,
        alerting.alertmanager(routes(webhook.url()), tmp_path) as alertmanager,
        scraping.prometheus(gpud.port, tmp_path, rules.hurried(tmp_path), alertmanager) as port,
    ):

        def told(status: str) -> list[dict[str, Any]]:
            return [
                alert
                for document in webhook.documents
                for alert in document["alerts"]
                if alert["status"] == status and SUBMIT.items() <= alert["labels"].items()
            ]

        runs = 'gpud_probe_runs_total{probe="launch"}'
        until(lambda: scraping.number(port, runs) >= KNOWN, f"{KNOWN} runs", within_s=60)
        known = "count(gpud_regression_active)"
        until(lambda: scraping.number(port, known), "what the detector makes of them")
        assert webhook.documents == []

        install(gpud, NEW)
        [alert, *_] = until(lambda: told("firing"), "the regression", within_s=60)
        instance = f"127.0.0.1:{gpud.port}"
        assert alert["labels"] == SUBMIT | {
            "alertname": NAME,
            "severity": "warning",
            "job": "gpud",
            "instance": instance,
            "gpu": "0",
        }
        said = alert["annotations"]
        assert said["summary"] == "Work takes longer than it used to."
        words = re.fullmatch(
            rf"launch submit on GPU 0 of {instance} takes ([\d.]+)% longer than usual, "
            rf"([\d.]+)us now, ([\d.]+)us before, since the driver was replaced \(now {NEW}\)\. .+",
            said["description"],
        )
        assert words, said["description"]
        slower, now_us, before_us = (float(figure) for figure in words.groups())
        assert slower == pytest.approx(25, abs=5)
        assert now_us / before_us == pytest.approx(1.25, abs=0.08)
        assert before_us == pytest.approx(LAUNCH_NS[OLD] / 1000, rel=0.1)
        with urllib.request.urlopen(said["runbook_url"], timeout=5) as page:
            assert f"<h1>{NAME}</h1>" in page.read().decode()

        install(gpud, OLD)
        until(lambda: told("resolved"), "the end of the regression", within_s=60)
        names = {
            alert["labels"]["alertname"]
            for document in webhook.documents
            for alert in document["alerts"]
        }
        assert names == {NAME}, "the change of the driver is for information, and nothing else is"
        until(
            lambda: (
                not [
                    found
                    for found in alerting.alerts(alertmanager) or ()
                    if found["labels"]["alertname"] == NAME
                ]
            ),
            "nothing fires any more",
        )
        assert "Traceback" not in gpud.logs()
