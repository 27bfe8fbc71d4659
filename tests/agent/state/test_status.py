"""The document behind ``gpud status --json``, agent.json and /api/v1/status."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from gpud.agent.state import status
from tests import snapshots
from tests.events import source_answered


def test_a_failure_says_how_much_it_matters() -> None:
    document = status.document(snapshots.full(), now=snapshots.NOW)
    failures = {run.probe: run.failure for run in document.probes if run.failure}
    assert failures["copy"].reason == "verification_failed"
    assert failures["copy"].severity == "critical"


def test_the_breaker_says_where_it_stands_and_when_it_is_tried_again() -> None:
    document = msgspec.json.decode(
        msgspec.json.encode(status.document(snapshots.full(), now=snapshots.NOW))
    )
    breaker = document["breaker"]
    assert (breaker["state"], breaker["hangs"]) == ("open", 2)
    assert breaker["retry_s"] == breaker["since_s"] + 600
    assert document["root"]["kernel_log"]["counts"]["noise"] == 21


def test_nothing_is_said_of_a_breaker_that_nobody_looked_at() -> None:
    assert status.document(snapshots.bare(), now=snapshots.NOW).breaker is None


def test_each_source_says_whether_it_answers_why_not_and_how_often() -> None:
    snapshot, answer = snapshots.full(), snapshots.full().telemetry.answers["nvml"]
    wrong = replace(answer, readings=(), reason="hung", detail="no answer", fix="wait")
    for reason in ("hung", "hung", "crashed"):
        snapshot = source_answered(replace(wrong, reason=reason), 0.0)(snapshot)
    document = msgspec.to_builtins(status.document(snapshot, now=snapshots.NOW).telemetry)
    assert document["level"] == "dxg"
    assert document["sources"]["nvml"] | {"taken_s": 0, "duration_s": 0} == {
        "level": 5,
        "up": False,
        "reason": "crashed",
        "detail": "no answer",
        "fix": "wait",
        "taken_s": 0,
        "duration_s": 0,
        "last_success_s": answer.taken_s,
        "failures": {"hung": 2, "crashed": 1},
    }
