"""A driver that takes something away: told with the old and the new one, until it is back."""

from __future__ import annotations

from tests.agent.alerts.telling import receiver
from tests.e2e.driven import NEW, OLD, alerts, machine, received
from tests.waiting import until

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
