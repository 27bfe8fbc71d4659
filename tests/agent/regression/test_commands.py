"""What a person said, as it is kept: it comes back as it was, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.regression.commands import (
    ALERT_ACKNOWLEDGED,
    BASELINE_ACCEPTED,
    BASELINE_RESET,
    CPU,
    EVERYTHING,
    Choice,
    Command,
    understood,
)
from gpud.core.sample import StreamKey

parts = st.none() | st.text(min_size=1, max_size=8)
choices = st.builds(Choice, parts, parts, parts)
said = st.builds(
    Command,
    st.integers(0, 9),
    st.floats(0, 2e9),
    st.sampled_from([BASELINE_ACCEPTED, BASELINE_RESET]),
    st.integers(0, 2**40),
    choices,
) | st.builds(
    Command,
    st.integers(0, 9),
    st.floats(0, 2e9),
    st.just(ALERT_ACKNOWLEDGED),
    st.integers(0, 2**40),
    st.just(EVERYTHING),
    st.text(min_size=1, max_size=16),
)


@given(said)
def test_a_command_is_read_back_as_it_was_said(command: Command) -> None:
    assert understood(command.number, command.at_s, command.kind, command.body()) == command


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (BASELINE_RESET, {}),  # its place in a replay is not known
        (BASELINE_RESET, {"after_run": "7"}),
        (BASELINE_RESET, {"after_run": True}),
        (BASELINE_RESET, {"after_run": 7, "gpu": None}),  # not "all of them"
        (BASELINE_RESET, {"after_run": 7, "probe": 3}),
        (BASELINE_ACCEPTED, {"after_run": 7, "fingerprint": "ab"}),
        (ALERT_ACKNOWLEDGED, {"after_run": 7}),
        ("driver_version", {"after_run": 7}),
    ],
)
def test_what_no_command_line_wrote_is_no_command(kind: str, body: dict[str, object]) -> None:
    assert understood(1, 1.0, kind, body) is None  # type: ignore[arg-type]


def test_a_choice_holds_the_streams_it_names_and_no_others() -> None:
    submit = StreamKey("GPU-a", "launch", "submit")
    call = StreamKey(None, "cpu_call", "call")
    assert EVERYTHING.holds(submit)
    assert EVERYTHING.holds(call)
    assert Choice("GPU-a", "launch").holds(submit)
    assert Choice(mode="submit").holds(StreamKey("GPU-b", "launch", "submit", 2, on_battery=True))
    assert not Choice("GPU-b").holds(submit)
    assert not Choice(mode="roundtrip").holds(submit)
    assert Choice(CPU).holds(call)
    assert not Choice(CPU).holds(submit)


def test_a_choice_is_named_for_a_person() -> None:
    assert str(EVERYTHING) == "everything"
    assert str(Choice(CPU)) == "everything on the CPU"
    assert str(Choice("GPU-a", "launch", "submit")) == "launch submit on GPU-a"
