"""A driver that takes something away: told with the old and the new one, until it is back."""

from __future__ import annotations

import pytest

from tests.e2e.driven import NEW, OLD, alerts, machine
from tests.e2e.receiving import receiver
from tests.waiting import until

LOST = "GpudFunctionLost"
WORKED = 4


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        ("fail cuInit 999\n", "cuda"),
        pytest.param("fail cuModuleLoadDataEx 222\n", "probe", marks=pytest.mark.soak),
    ],
)
def test_cuda_that_the_new_driver_breaks_is_one_alert_until_it_works_again(
    broken: str, kind: str
) -> None:
    with receiver() as hook, machine(seed=7) as driven:
        gpud = driven.gpud
        gpud.settings["alerts"]["webhook_urls"] = [hook.url]
        driven.start()
        for known in ('["cuda",', '["probe",'):
            until(lambda known=known: known in driven.state("functions"), f"{known} to be known")  # type: ignore[misc]
        driven.overnight(NEW, more=broken)
        until(lambda: hook.told("firing", LOST), "the webhook to be told", 90)
        [alert] = alerts(gpud)
        assert (alert["name"], alert["severity"]) == (LOST, "critical")
        assert (alert["labels"]["kind"], alert["labels"]["old"], alert["labels"]["new"]) == (
            kind,
            OLD,
            NEW,
        )
        driven.replace(NEW)
        until(lambda: hook.told("resolved", LOST), "the end", 90)
        driven.more_runs(WORKED)
        assert alerts(gpud) == []
        assert len(hook.messages) == 2
