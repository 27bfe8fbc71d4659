"""What is due to whom: each rule by itself, and all of them over random histories."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from gpud.core import delivery
from gpud.core.alertmanager import document
from gpud.core.alerts import SINK_FAILING, Severity
from gpud.core.clock import Instant
from gpud.core.delivery import ENDED_HOLDS_S, Memory, Policy, Step, step
from tests.agent.alerts.telling import LOST, SLOW, ended

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpud.core.alerts import Alert
    from gpud.core.message import Message

SENDS = Policy(group_wait_s=30.0, repeat_interval_s=14400.0)
SHOWS = replace(SENDS, shows=True)
NOW = replace(SENDS, group_wait_s=0.0)
WALL_S = 1_790_000_100.0


def at(mono_s: float, wall_s: float | None = None) -> Instant:
    return Instant(WALL_S + mono_s if wall_s is None else wall_s, 1000.0 + mono_s)


def look(
    alerts: Iterable[Alert] | None,
    memory: Memory,
    mono_s: float,
    *,
    policy: Policy = SENDS,
    quiet_until_s: float = 0.0,
) -> Step:
    return step(policy, alerts, memory, at(mono_s), 1000.0 + quiet_until_s)


def told(*alerts: Alert, policy: Policy = SENDS, mono_s: float = 30.0) -> Memory:
    """What a sink knows that was told these at ``mono_s``."""
    first = look(alerts, Memory(), mono_s - 30.0, policy=policy)
    due = look(alerts, first.after, mono_s, policy=policy)
    assert due.message is not None
    return due.after


def names(alerts: Iterable[Alert]) -> list[str]:
    return [alert.name for alert in alerts]


def test_what_comes_within_the_wait_is_one_message_and_the_worst_is_first() -> None:
    first = look([SLOW], Memory(), 0.0)
    assert (first.message, first.wake_mono_s) == (None, 1030.0)
    assert look([SLOW, LOST], first.after, 29.9).message is None
    due = look([SLOW, LOST], first.after, 30.0)
    assert due.message is not None
    assert names(due.message.firing) == [LOST.name, SLOW.name]
    assert look([SLOW, LOST], due.after, 31.0).message is None


def test_what_ends_before_it_was_told_is_never_told() -> None:
    first = look([SLOW], Memory(), 0.0)
    second = look([ended(SLOW, WALL_S)], first.after, 10.0)
    assert look([ended(SLOW, WALL_S)], second.after, 100.0) == Step(None, Memory())


def test_what_was_told_is_told_as_resolved_once() -> None:
    over = ended(SLOW, WALL_S + 60)
    first = look([over], told(SLOW), 60.0)
    assert first.message is None
    due = look([over], first.after, 90.0)
    assert due.message is not None
    assert (due.message.firing, due.message.resolved) == ((), (over,))
    assert look([over], due.after, 91.0).message is None
    assert look([], due.after, 92.0).message is None


def test_what_still_fires_is_told_again_until_somebody_has_seen_it() -> None:
    memory = told(SLOW)
    waits = look([SLOW], memory, 100.0)
    assert waits.wake_mono_s == 1030.0 + 14400.0
    again = look([SLOW], memory, 30.0 + 14400.0)
    assert again.message is not None
    assert again.message.firing == (SLOW,)
    seen = replace(SLOW, acknowledged_s=WALL_S)
    assert look([seen], memory, 30.0 + 14400.0).message is None
    assert look([seen], Memory(), 100.0).after == Memory()


def test_what_was_seen_is_still_told_as_resolved() -> None:
    seen = replace(SLOW, acknowledged_s=WALL_S)
    over = ended(seen, WALL_S + 60)
    waiting = look([over], told(SLOW), 60.0)
    due = look([over], waiting.after, 90.0)
    assert due.message is not None
    assert due.message.resolved == (over,)


def test_what_has_become_worse_is_told_at_once_as_news() -> None:
    worse = replace(SLOW, severity=Severity.CRITICAL)
    waiting = look([worse], told(SLOW), 100.0)
    assert waiting.wake_mono_s == 1130.0
    due = look([worse], waiting.after, 130.0)
    assert due.message is not None
    assert due.message.firing == (worse,)
    milder = replace(SLOW, severity=Severity.INFO)
    assert look([milder], due.after, 1000.0).after.news_mono_s is None


def test_figures_that_move_are_no_news() -> None:
    moved = replace(SLOW, summary="submission latency +39 %", updated_s=WALL_S)
    assert look([moved], told(SLOW), 100.0).after.news_mono_s is None


def test_while_warming_up_nothing_new_is_told_and_afterwards_what_is_still_so() -> None:
    quiet = look([SLOW], Memory(), 0.0, quiet_until_s=300.0)
    assert quiet == Step(None, Memory(), 1300.0)
    waits = look([SLOW], quiet.after, 300.0, quiet_until_s=300.0)
    assert waits.wake_mono_s == 1330.0
    assert look([SLOW], waits.after, 330.0, quiet_until_s=300.0).message is not None
    assert look([], quiet.after, 330.0, quiet_until_s=300.0).after == Memory()


def test_while_warming_up_what_ended_is_told_and_what_is_missing_is_not_over() -> None:
    memory = told(SLOW)
    missing = look([], memory, 100.0, quiet_until_s=300.0)
    assert missing.after.told == memory.told
    over = ended(SLOW, WALL_S + 60)
    waiting = look([over], memory, 100.0, quiet_until_s=300.0)
    assert look([over], waiting.after, 130.0, quiet_until_s=300.0).message is not None


def test_what_is_missing_afterwards_is_over_in_the_words_in_which_it_was_told() -> None:
    waiting = look([], told(SLOW), 400.0)
    due = look([], waiting.after, 430.0)
    assert due.message is not None
    [over] = due.message.resolved
    assert (over.summary, over.ends_s) == (SLOW.summary, at(430.0).wall_s)


def test_of_one_that_fires_and_ended_before_the_one_that_fires_counts() -> None:
    over = ended(replace(SLOW, starts_s=SLOW.starts_s + 60), WALL_S)  # the clock was set back
    for alerts in ([SLOW, over], [over, SLOW]):
        due = look(alerts, look(alerts, Memory(), 0.0).after, 30.0)
        assert due.message is not None
        assert due.message.firing == (SLOW,)


def test_a_line_that_could_not_be_written_is_tried_again_after_the_interval() -> None:
    first = look([SLOW], Memory(), 0.0, policy=SHOWS)
    due = look([SLOW], first.after, 30.0, policy=SHOWS)
    known = delivery.refused(due, first.after, at(30.0))
    known = look([SLOW], known, 31.0, policy=SHOWS).after
    assert look([SLOW], known, 14400.0, policy=SHOWS).message is None
    again = look([SLOW], known, 14430.0, policy=SHOWS).message
    assert again is not None
    assert again.standing == (SLOW,)


def test_nothing_is_over_before_somebody_has_said_what_fires() -> None:
    assert look(None, told(SLOW), 9999.0) == Step(None, told(SLOW))


def test_one_that_said_no_is_left_alone_until_the_interval_is_over() -> None:
    first = look([SLOW], Memory(), 0.0)
    due = look([SLOW], first.after, 30.0)
    memory = delivery.refused(due, first.after, at(30.0))
    assert delivery.owed(memory)
    assert look([SLOW], memory, 1000.0).message is None
    again = look([SLOW], memory, 30.0 + 14400.0)
    assert again.message is not None
    assert look([ended(SLOW, WALL_S)], memory, 2000.0).after.told == {}


def test_one_that_shows_is_told_whenever_what_stands_changes_and_of_the_past_for_an_hour() -> None:
    first = look([], Memory(), 0.0, policy=SHOWS)
    assert first.message is not None  # what a former agent left there may be over
    assert look([], first.after, 1.0, policy=SHOWS).message is None
    memory = told(SLOW, LOST, policy=SHOWS)
    seen = replace(LOST, acknowledged_s=WALL_S)
    less = look([SLOW, seen], memory, 100.0, policy=SHOWS)
    assert less.message is not None
    assert (names(less.message.standing), less.message.firing) == ([SLOW.name], ())
    over = ended(SLOW, WALL_S + 100)
    waiting = look([over, seen], less.after, 200.0, policy=SHOWS)
    assert waiting.message is None
    due = look([over, seen], waiting.after, 230.0, policy=SHOWS)
    assert due.message is not None
    assert (due.message.standing, due.message.ended) == ((), (over,))
    held = look([over, seen], due.after, 231.0, policy=SHOWS)
    assert held.wake_mono_s == 1230.0 + ENDED_HOLDS_S
    empty = look([over, seen], held.after, 230.0 + ENDED_HOLDS_S, policy=SHOWS)
    assert empty.message is not None
    assert empty.message.ended == ()


def test_a_restart_tells_nothing_again_and_remembers_when_it_is_due() -> None:
    body = json.loads(json.dumps(delivery.saved(told(SLOW))))
    # The monotonic clock of the new boot begins at 0; a minute has passed.
    memory = delivery.restored(body, Instant(at(30.0).wall_s + 60.0, 5.0), 14400.0)
    now = Instant(at(30.0).wall_s + 61.0, 6.0)
    after = step(SENDS, [SLOW], memory, now, 0.0)
    assert (after.message, after.wake_mono_s) == (None, 5.0 - 60.0 + 14400.0)


@pytest.mark.parametrize("back_s", [-86400.0, 86400.0 * 365])
def test_a_clock_that_was_set_repeats_at_most_once_and_never_sooner_than_it_should(
    back_s: float,
) -> None:
    body = delivery.saved(told(SLOW))
    now = Instant(at(30.0).wall_s + back_s, 5.0)
    memory = delivery.restored(body, now, 14400.0)
    due = step(SENDS, [SLOW], memory, now, 0.0)
    assert (due.message is None) == (back_s < 0)
    assert step(SENDS, [SLOW], due.after, Instant(now.wall_s, 6.0), 0.0).message is None
    in_time = Instant(now.wall_s, 5.0 + 14400.0)  # not a day late because it was told "tomorrow"
    assert step(SENDS, [SLOW], due.after, in_time, 0.0).message is not None


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["told", "ended", "name", "labels"]), inner, max_size=4
            )
        ),
        max_leaves=10,
    )
)
def test_a_memory_of_another_shape_is_passed_over(data: object) -> None:
    assert delivery.restored(data, at(0.0), 1.0) == Memory()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("starts_s", 10**400),
        ("ends_s", float("nan")),
        ("updated_s", float("inf")),
        ("at_s", float("nan")),
        ("name", "\ud800"),
        ("labels", {"gpu": "\x1b[31m"}),
        ("labels", {"gpu": "x" * 9999}),
    ],
)
def test_a_memory_with_hostile_values_stops_no_telling(field: str, value: object) -> None:
    body = json.loads(json.dumps(delivery.saved(told(SLOW))))
    body["told"][0][field] = value
    due = look([], delivery.restored(body, at(0.0), 14400.0), 60.0, policy=NOW)
    if due.message is not None:
        told_of = document(due.message, instance="h", receiver="r", url="u")
        json.dumps(told_of, allow_nan=False, ensure_ascii=False).encode()


def test_a_sink_is_told_of_after_three_failures_or_ten_minutes() -> None:
    def alert(failures: int, after_s: float) -> Alert | None:
        return delivery.failing(
            "webhook", "x", "y", failures=failures, since=at(0.0), now=at(after_s)
        )

    assert alert(2, 599.0) is None
    early, late = alert(3, 1.0), alert(1, 600.0)
    assert early is not None
    assert late is not None
    assert (early.name, early.labels) == (SINK_FAILING, {"sink": "webhook"})
    assert early.fingerprint == late.fingerprint
    assert early.starts_s == late.starts_s == WALL_S


ALERTS = tuple(replace(SLOW, labels={"gpu": str(number)}) for number in range(3))
WHICH = st.sampled_from(ALERTS)


class Telling(RuleBasedStateMachine):
    """Alerts come and go, time passes, the agent starts anew, and a sink takes what it takes."""

    policy = SENDS

    def __init__(self) -> None:
        super().__init__()
        self.alerts: dict[str, Alert] = {}
        self.believed: dict[str, float] = {}  # what the person takes to fire, told when
        self.memory = Memory()
        self.mono_s = 0.0

    @rule(alert=WHICH)
    def fires(self, alert: Alert) -> None:
        if not (known := self.alerts.get(alert.fingerprint)) or not known.firing:
            self.alerts[alert.fingerprint] = alert

    @rule(alert=WHICH)
    def ends(self, alert: Alert) -> None:
        if (known := self.alerts.get(alert.fingerprint)) and known.firing:
            self.alerts[alert.fingerprint] = ended(known, WALL_S + self.mono_s)

    @rule(alert=WHICH)
    def is_seen(self, alert: Alert) -> None:
        if (known := self.alerts.get(alert.fingerprint)) and known.firing:
            self.alerts[alert.fingerprint] = replace(known, acknowledged_s=WALL_S)

    @rule(alert=WHICH)
    def is_long_over(self, alert: Alert) -> None:
        if (known := self.alerts.get(alert.fingerprint)) and not known.firing:
            del self.alerts[alert.fingerprint]

    @rule(seconds=st.sampled_from([1.0, 31.0, 4000.0, 15000.0]))
    def time_passes(self, seconds: float) -> None:
        self.mono_s += seconds

    @rule()
    def starts_anew(self) -> None:
        body = json.loads(json.dumps(delivery.saved(self.memory)))
        repeat_s = self.policy.repeat_interval_s
        self.memory = delivery.restored(body, at(self.mono_s), repeat_s)

    @rule()
    def is_told(self) -> None:
        due = self.due()
        self.hear(due.message)
        self.memory = due.after

    @rule()
    def cannot_be_told_now(self) -> None:
        due = self.due()
        if due.message is None:
            self.memory = due.after

    @rule()
    def says_no(self) -> None:
        due = self.due()
        if due.message is not None:
            for alert in due.message.resolved:  # of which it will not hear again
                self.believed.pop(alert.fingerprint, None)
        self.memory = delivery.refused(due, self.memory, at(self.mono_s))

    def teardown(self) -> None:
        """After long enough it knows everything that fires, and of nothing else."""
        for _ in range(2):
            self.mono_s += 15000.0
            self.is_told()
        firing = {name: alert for name, alert in self.alerts.items() if alert.firing}
        unseen = {name for name, alert in firing.items() if alert.acknowledged_s is None}
        assert unseen <= self.believed.keys() <= firing.keys()

    def due(self) -> Step:
        return look(self.alerts.values(), self.memory, self.mono_s, policy=self.policy)

    def hear(self, message: Message | None) -> None:
        """News once, a repetition when it is time, an end only of what was told as firing."""
        if message is None:
            return
        for alert in message.resolved:
            assert not alert.firing
            del self.believed[alert.fingerprint]
        for alert in message.firing:
            assert alert.firing
            assert alert.acknowledged_s is None
            last_s = self.believed.get(alert.fingerprint)
            assert last_s is None or self.mono_s - last_s >= self.policy.repeat_interval_s
            self.believed[alert.fingerprint] = self.mono_s


class Showing(Telling):
    """Likewise, for a sink that holds a state up."""

    policy = SHOWS


TestTelling = Telling.TestCase
TestShowing = Showing.TestCase
