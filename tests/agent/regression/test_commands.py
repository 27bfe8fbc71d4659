"""Commands of people: what is written is read back as it was, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.regression.commands import (
    ALERT_ACKNOWLEDGED,
    BASELINE_ACCEPTED,
    BASELINE_RESET,
    EVERYTHING,
    Choice,
    Command,
    decoded,
)

PARTS = st.none() | st.text(min_size=1, max_size=8)
CHOICES = st.builds(Choice, PARTS, PARTS, PARTS)


@given(st.sampled_from([BASELINE_ACCEPTED, BASELINE_RESET]), CHOICES, st.integers(0, 2**40))
def test_command_is_read_back(kind: str, choice: Choice, after_run: int) -> None:
    command = Command(1, 7.0, kind, after_run, choice)
    assert decoded(1, 7.0, kind, command.body()) == command
    acknowledged = Command(1, 7.0, ALERT_ACKNOWLEDGED, after_run, EVERYTHING, "ab12")
    assert decoded(1, 7.0, ALERT_ACKNOWLEDGED, acknowledged.body()) == acknowledged


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (BASELINE_RESET, {}),  # its place in a replay is not known
        (BASELINE_RESET, {"after_run": True}),
        (BASELINE_RESET, {"after_run": 7, "gpu": None}),  # not "all of them"
        (BASELINE_ACCEPTED, {"after_run": 7, "fingerprint": "ab"}),
        (ALERT_ACKNOWLEDGED, {"after_run": 7}),
    ],
)
def test_damaged_command_is_none(kind: str, body: dict[str, int | str | None]) -> None:
    assert decoded(1, 1.0, kind, body) is None
