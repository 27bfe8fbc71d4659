"""The example configurations: read by the tools they are for, and doing what they say."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.e2e import scraping
from tests.e2e.program import free_port
from tests.prometheus.rules import FOLDER, said
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

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
