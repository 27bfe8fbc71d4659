"""Drivers that come and go, and a clock that is wrong: still one alert a cause."""

from __future__ import annotations

import pytest

from tests.agent.alerts.telling import receiver
from tests.e2e.driven import (
    FIRST_LOOK,
    KNOWN,
    NEW,
    OLD,
    SETTLING,
    Machine,
    alerts,
    machine,
    received,
)
from tests.e2e.program import under_a_clock
from tests.waiting import until

pytestmark = pytest.mark.soak

DAY_S = 86400.0
REGRESSION = "GpudDriverRegression"


def test_a_driver_that_comes_and_goes_is_judged_once_and_against_the_right_one() -> None:
    with receiver() as hook, machine(seed=4) as driven:
        driven.gpud.settings["alerts"]["webhook_urls"] = [hook.url()]
        driven.start()
        driven.more_runs(KNOWN)
        for _ in range(2):  # taken back before there is a verdict
            driven.overnight(NEW, 1.12)
            driven.more_runs(SETTLING + FIRST_LOOK - 3)
            driven.overnight(OLD)
            driven.more_runs(SETTLING + 3)
        assert driven.judged() == {}
        assert hook.documents == []
        driven.overnight(NEW, 1.12)
        until(lambda: received(hook, "firing"), "the alert at the webhook")
        driven.more_runs(FIRST_LOOK)
        driven.judged()
        [alert] = alerts(driven.gpud)
        assert alert["labels"] == {"kind": "driver", "old": OLD, "new": NEW}
        driven.overnight(OLD)
        until(lambda: received(hook, "resolved"), "the end")
        driven.more_runs(FIRST_LOOK)
        driven.judged()
        assert alerts(driven.gpud) == []
        assert [len(received(hook, status)) for status in ("firing", "resolved")] == [1, 1]


def test_a_clock_that_is_set_back_a_day_changes_no_verdict() -> None:
    with receiver() as hook, under_a_clock() as gpud:
        driven = Machine(gpud, seed=5)
        gpud.settings["alerts"]["webhook_urls"] = [hook.url()]
        driven.start()
        driven.more_runs(KNOWN)
        gpud.move(-DAY_S)
        until(lambda: gpud.value("gpud_clock_jumps_total") == 1, "the step back")
        driven.more_runs(SETTLING)
        assert driven.runs()[-1]["finished_s"] < driven.runs()[0]["finished_s"] - DAY_S / 2
        driven.swap(NEW, 1.12)
        until(lambda: received(hook, "firing"), "the alert at the webhook")
        driven.more_runs(FIRST_LOOK)
        [decision] = driven.judged()["submit"]
        assert decision.kind == "driver"
        assert decision.ratio == pytest.approx(1.12, abs=0.03)
        gpud.move(0)
        until(lambda: gpud.value("gpud_clock_jumps_total") == 2, "the step to the true time")
        driven.more_runs(FIRST_LOOK)
        assert [alert["name"] for alert in alerts(gpud)] == [REGRESSION]
        assert len(hook.documents) == 1
