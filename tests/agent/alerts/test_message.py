"""Texts for people, and the webhook document; Alertmanager's own shape is compared in tests/e2e."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from gpud.agent.alerts.message import (
    MOST,
    Message,
    body,
    document,
    fingerprint,
    title,
)
from tests.agent.alerts.telling import LOST, SLOW, ended, firing

URL = "http://127.0.0.1:9945"


def of(message: Message, host: str = "ada") -> dict[str, Any]:
    return document(message, host=host, receiver="gpud-webhook", url=URL)


def test_title_says_how_bad_how_many_and_where() -> None:
    assert title(firing(SLOW)) == "gpud: warning"
    assert title(firing(SLOW, LOST), "ada") == "gpud on ada: 2 alerts"
    over = ended(SLOW, SLOW.starts_s + 1)
    assert title(Message((), (over,)), "a\x1bb") == "gpud on a\\x1bb: resolved"


def test_body_says_what_and_what_to_do() -> None:
    message = Message((SLOW,), (ended(LOST, LOST.starts_s + 1),))
    assert body(message, details=False) == f"{SLOW.summary}\nresolved: {LOST.summary}"
    assert body(message) == (
        f"{SLOW.summary}\n{SLOW.description}\nFix: {SLOW.fix}\n\nresolved: {LOST.summary}"
    )


def test_group_is_the_machine_and_has_all_that_fires() -> None:
    over = ended(LOST, LOST.starts_s + 3600.25)
    content = of(Message((), (over,), (SLOW,)))
    assert content["status"] == "firing"  # not over for a receiver that goes by the group
    assert content["groupKey"] == '{}:{instance="ada"}'
    first, second = content["alerts"]
    assert (first["status"], first["endsAt"]) == ("firing", "0001-01-01T00:00:00Z")
    assert (second["status"], second["endsAt"]) == ("resolved", "2026-09-21T15:13:50.25Z")


def test_alerts_that_do_not_fit_are_counted() -> None:
    many = [structs.replace(SLOW, labels={"gpu": str(number)}) for number in range(MOST + 5)]
    content = of(firing(*many))
    assert (len(content["alerts"]), content["truncatedAlerts"]) == (MOST, 5)


def test_fingerprint_is_prometheus_own() -> None:
    # Source: prometheus/common, model/fnv.go: the hash of no label at all is FNV-1a's offset.
    assert fingerprint({}) == "cbf29ce484222325"
