"""What gpud's webhook posts beside what Debian's Alertmanager posts of the same alerts."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

from msgspec import structs

from gpud.agent.alerts.message import Message, rfc3339
from tests.agent.alerts.telling import HOST, LOST, SLOW, context, ended, only, receiver
from tests.e2e import scraping
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.core.alerts import Alert
    from tests.agent.alerts.telling import Receiver

CONFIG = """
route:
  receiver: gpud-webhook
  group_by: [instance]
  group_wait: 0s
  group_interval: 100ms
receivers:
- name: gpud-webhook
  webhook_configs:
  - url: {url}
    send_resolved: true
"""


def arguments(alert: Alert, document: dict[str, Any]) -> dict[str, Any]:
    """Give an alert of ours as Prometheus would send it."""
    [own] = [item for item in document["alerts"] if item["labels"]["alertname"] == alert.name]
    sent = {name: own[name] for name in ("labels", "annotations", "startsAt", "generatorURL")}
    return sent if alert.ends_s is None else sent | {"endsAt": own["endsAt"]}


def heads(request: str) -> dict[str, str]:
    lines = [line.partition(": ") for line in request.splitlines()[1:]]
    return {name.lower(): value for name, _, value in lines}


def test_alertmanager_posts_the_same_document_field_by_field(tmp_path: Path) -> None:
    with (
        receiver() as there,
        scraping.alertmanager(CONFIG.format(url=there.url()), tmp_path) as alertmanager,
    ):
        compare_messages(tmp_path, there, alertmanager)


def compare_messages(tmp_path: Path, there: Receiver, alertmanager: int) -> None:
    begun_s = float(round(time.time())) - 60.25
    slow = structs.replace(SLOW, starts_s=begun_s)
    lost = structs.replace(LOST, starts_s=begun_s + 1.0)
    sink = only("webhook", context(tmp_path, f'webhook_urls = ["{there.url()}"]'))

    def ours(message: Message) -> dict[str, Any]:
        there.requests.clear()
        asyncio.run(sink.send(message))
        return there.documents[0]

    both = ours(Message((slow, lost), (), (slow, lost)))
    head = heads(there.requests[0][0])
    there.requests.clear()
    scraping.post(alertmanager, [arguments(slow, both), arguments(lost, both)])
    # Its first message may go out when it has taken in one of the two.
    firing = until(
        lambda: [d for d in there.documents if len(d["alerts"]) == 2][:1], "a message of both"
    )[0]
    compare(both, firing)
    theirs = heads(there.requests[0][0])
    assert head["content-type"] == theirs["content-type"]
    assert head.keys() - {"connection", "accept-encoding"} <= theirs.keys()

    over = ended(lost, time.time())
    item = ours(Message((), (over,), (slow,)))
    there.requests.clear()
    scraping.post(alertmanager, [arguments(slow, item), arguments(over, item)])
    resolved = until(
        lambda: [d for d in there.documents if "resolved" in json.dumps(d)][:1], "the end"
    )[0]
    compare(item, resolved)


def compare(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert ours.keys() == theirs.keys()
    assert theirs["externalURL"].startswith("http")
    by_name = [
        sorted(item["alerts"], key=lambda alert: str(alert["labels"]["alertname"]))
        for item in (ours, theirs)
    ]
    assert by_name[0] == by_name[1]
    for name in ours.keys() - {"alerts", "externalURL"}:
        assert (name, ours[name]) == (name, theirs[name])
    assert ours["groupLabels"] == {"instance": HOST}
    assert rfc3339(0.0) < by_name[0][0]["startsAt"]
