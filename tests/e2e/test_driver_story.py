"""Drivers that come and go, a clock that is wrong, everything at once: still one alert a cause."""

from __future__ import annotations

import json

import pytest

from tests.e2e.asleep import asleep
from tests.e2e.driven import FIRST_LOOK, KNOWN, NEW, OLD, SETTLING, Machine, alerts, machine
from tests.e2e.receiving import receiver
from tests.e2e.watching import scraping
from tests.waiting import until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(400)]

DAY_S = 86400.0
REGRESSION, LOST, SINK_FAILING = "GpudDriverRegression", "GpudFunctionLost", "GpudSinkFailing"
SCRAPE_S = 0.05


def test_a_driver_that_comes_and_goes_is_judged_once_and_against_the_right_one() -> None:
    with receiver() as hook, machine(seed=4) as driven:
        driven.gpud.settings["alerts"]["webhook_urls"] = [hook.url]
        driven.start()
        driven.more_runs(KNOWN)
        for _ in range(2):  # taken back before there is a verdict
            driven.overnight(NEW, 1.12)
            driven.more_runs(SETTLING + FIRST_LOOK - 3)
            driven.overnight(OLD)
            driven.more_runs(SETTLING + 3)
        assert driven.decided() == driven.expected() == {}
        assert hook.messages == []
        driven.overnight(NEW, 1.12)
        until(lambda: hook.told("firing"), "the webhook to be told", 60)
        driven.more_runs(FIRST_LOOK)
        assert driven.decided() == driven.expected()
        [alert] = alerts(driven.gpud)
        assert alert["labels"] == {"kind": "driver", "old": OLD, "new": NEW}
        driven.overnight(OLD)
        until(lambda: hook.told("resolved"), "the end", 60)
        driven.more_runs(FIRST_LOOK)
        assert driven.decided() == driven.expected()
        assert alerts(driven.gpud) == []
        assert [len(hook.told(status)) for status in ("firing", "resolved")] == [1, 1]


def test_a_clock_that_is_set_back_a_day_changes_no_verdict() -> None:
    with receiver() as hook, asleep() as gpud:
        driven = Machine(gpud, seed=5)
        gpud.settings["alerts"]["webhook_urls"] = [hook.url]
        driven.start()
        driven.more_runs(KNOWN)
        gpud.move(-DAY_S)
        until(lambda: gpud.jumps() == 1, "the step back")
        driven.more_runs(SETTLING)
        assert driven.runs()[-1]["finished_s"] < driven.runs()[0]["finished_s"] - DAY_S / 2
        driven.swap(NEW, 1.12)
        until(lambda: hook.told("firing"), "the webhook to be told", 60)
        driven.more_runs(FIRST_LOOK)
        assert driven.decided() == driven.expected()
        [decision] = driven.decided()["submit"]
        assert (decision.kind, decision.samples) == ("driver", FIRST_LOOK)
        assert decision.ratio == pytest.approx(1.12, abs=0.03)
        assert len(hook.messages) == 1
        gpud.move(0)
        until(lambda: gpud.jumps() == 2, "the step to the true time")
        driven.more_runs(FIRST_LOOK)
        assert [alert["name"] for alert in alerts(driven.gpud)] == [REGRESSION]
        assert len(hook.messages) == 1


def test_everything_at_once_is_one_alert_a_cause_and_no_scrape_waits() -> None:
    with receiver() as well, receiver() as hangs, machine(seed=6) as driven:
        gpud = driven.gpud
        gpud.settings["alerts"] |= {"webhook_urls": [well.url, hangs.url]}
        hangs.useless.set()
        driven.start()
        driven.more_runs(KNOWN)
        agent = gpud.agent_pid()
        assert agent is not None
        with scraping(gpud.port, agent) as watched:
            driven.swap(NEW, 1.12)
            known = f'["nvml","","","{NEW}"]'
            until(lambda: known in driven.state("functions"), "NVML's work to be known")
            driven.lose_nvml()
            until(lambda: well.told("firing", LOST), "NVML to be missed", 200)
            until(lambda: well.told("firing", SINK_FAILING), "the sink", 120)
            driven.more_runs(FIRST_LOOK)
        told = {json.dumps(alert["labels"], sort_keys=True) for alert in well.told("firing")}
        names = sorted(json.loads(labels)["alertname"] for labels in told)
        assert names == sorted([REGRESSION, LOST, SINK_FAILING])
        assert well.told("resolved") == []
        assert driven.decided() == driven.expected()
        assert [one.error for one in watched.scrapes if one.error] == []
        assert not any(run["failure"] for run in driven.runs())
        assert gpud.agent_pid() == agent
        assert hangs.asked > 0
        assert "Traceback" not in gpud.logs()
