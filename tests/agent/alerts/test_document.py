"""The document's own rules; that Alertmanager posts the same shape is tests/e2e's."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gpud.agent.alerts.document import MOST, document, fingerprint, rfc3339
from gpud.agent.alerts.message import Message
from tests.agent.alerts.telling import LOST, SLOW, ended, firing, hostile

if TYPE_CHECKING:
    from pathlib import Path

URL = "http://127.0.0.1:9945"


def of(message: Message) -> dict[str, Any]:
    return document(message, instance="ada", receiver="gpud-webhook", url=URL)


def test_the_group_is_the_machine_and_holds_all_that_fires() -> None:
    over = ended(LOST, LOST.starts_s + 3600.25)
    told = of(Message((), (over,), (SLOW,), (over,)))
    assert told["status"] == "firing"  # not over for whoever goes by the group
    assert told["groupKey"] == '{}:{instance="ada"}'
    first, second = told["alerts"]
    assert (first["status"], first["endsAt"]) == ("firing", "0001-01-01T00:00:00Z")
    assert (second["status"], second["endsAt"]) == ("resolved", "2026-09-21T15:13:50.25Z")


def test_what_is_common_is_said_once_and_a_runbook_is_linked() -> None:
    told = of(firing(SLOW, replace(SLOW, labels={"kind": "driver", "gpu": "1"})))
    assert told["commonLabels"] == {
        "alertname": SLOW.name,
        "instance": "ada",
        "kind": "driver",
        "severity": "warning",
    }
    assert told["commonAnnotations"] == {
        "summary": SLOW.summary,
        "description": SLOW.description,
        "fix": SLOW.fix,
        "runbook_url": f"{URL}/runbooks/{SLOW.name}",
    }


def test_what_does_not_fit_is_counted() -> None:
    many = [replace(SLOW, labels={"gpu": str(number)}) for number in range(MOST + 5)]
    told = of(firing(*many))
    assert len(told["alerts"]) == MOST
    assert told["truncatedAlerts"] == 5


def test_the_name_of_a_machine_is_harmless_and_can_be_sent() -> None:
    told = document(firing(SLOW), instance="a\x1b[31m\udcff", receiver="r", url=URL)
    assert told["alerts"][0]["labels"]["instance"] == "a\\x1b[31m\\udcff"
    json.dumps(told, ensure_ascii=False).encode()


@pytest.mark.parametrize("long", [False, True])
def test_hostile_text_is_harmless_in_a_document(*, long: bool, tmp_path: Path) -> None:
    text = json.dumps(of(firing(hostile(tmp_path, long=long))), ensure_ascii=False)
    assert len(text) < 200_000
    assert not re.search(r"[\x9b\u202e]|\\u00[01]", text)  # nothing that steers a terminal
    text.encode()  # whole characters


def test_a_machine_cannot_be_taken_for_another_by_its_name() -> None:
    told = document(firing(SLOW), instance='a"b\\c', receiver="r", url=URL)
    assert told["groupKey"] == '{}:{instance="a\\"b\\\\c"}'
    prints = [
        document(firing(SLOW), instance=name, receiver="r", url=URL)["alerts"][0]["fingerprint"]
        for name in ("ada", "bob")
    ]
    assert len(set(prints)) == 2


def test_a_fingerprint_is_prometheus_own() -> None:
    # Source: prometheus/common, model/fnv.go: the hash of no label at all is FNV-1a's offset.
    assert fingerprint({}) == "cbf29ce484222325"


@pytest.mark.parametrize(
    ("at_s", "text"),
    [
        (0.0, "1970-01-01T00:00:00Z"),
        (1_790_000_000.0, "2026-09-21T14:13:20Z"),
        (1_790_000_000.125, "2026-09-21T14:13:20.125Z"),
        (-1e300, "1970-01-01T00:00:00Z"),
        (1e300, "9999-12-31T23:59:59Z"),
    ],
)
def test_moments_are_written_as_alertmanager_writes_them(at_s: float, text: str) -> None:
    assert rfc3339(at_s) == text
