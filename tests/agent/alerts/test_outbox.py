"""What is due to a sink: each rule by itself, and all of them over random histories."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from gpud.agent.alerts import outbox
from gpud.agent.alerts.message import Message
from gpud.agent.alerts.outbox import ENDED_SHOWN_S, Memory, Policy, Saved, Step, step
from gpud.core.alerts import Severity
from gpud.core.clock import Instant
from tests.agent.alerts.telling import LOST, SLOW, ended

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpud.core.alerts import Alert

SENDS = Policy(group_wait_s=30.0, repeat_interval_s=14400.0)
SHOWS = replace(SENDS, shows=True)
WALL_S = 1_790_000_100.0


def at(mono_s: float, wall_s: float | None = None) -> Instant:
    return Instant(WALL_S + mono_s if wall_s is None else wall_s, 1000.0 + mono_s)


def look(
    alerts: Iterable[Alert],
    memory: Memory,
    mono_s: float,
    *,
    policy: Policy = SENDS,
    quiet: bool = False,
) -> Step:
    return step(policy, alerts, memory, at(mono_s), quiet=quiet)


def sent(*alerts: Alert, policy: Policy = SENDS) -> Memory:
    """The memory of a sink that was sent these at 30 s."""
    first = look(alerts, Memory(), 0.0, policy=policy)
    due = look(alerts, first.after, 30.0, policy=policy)
    assert due.message is not None
    return due.after


def reread(memory: Memory, now: Instant, *, repeat_s: float = 14400.0) -> Memory:
    """Write and read what is saved."""
    text = msgspec.json.encode(outbox.saved(memory))
    return outbox.restored(msgspec.json.decode(text, type=Saved), now, repeat_s)


def names(alerts: Iterable[Alert]) -> list[str]:
    return [alert.name for alert in alerts]


def test_alerts_within_the_wait_are_one_message_with_the_worst_first() -> None:
    first = look([SLOW], Memory(), 0.0)
    assert first.message is None
    assert look([SLOW, LOST], first.after, 29.9).message is None
    due = look([SLOW, LOST], first.after, 30.0)
    assert due.message is not None
    assert names(due.message.firing) == [LOST.name, SLOW.name]
    assert look([SLOW, LOST], due.after, 31.0).message is None


def test_an_alert_that_ends_before_it_was_sent_is_never_sent() -> None:
    over = [ended(SLOW, WALL_S)]
    second = look(over, look([SLOW], Memory(), 0.0).after, 10.0)
    assert look(over, second.after, 100.0) == Step(None, Memory())


def test_an_alert_that_was_sent_is_sent_as_resolved_once() -> None:
    acknowledged = replace(SLOW, acknowledged_s=WALL_S)
    over = ended(acknowledged, WALL_S + 60)
    first = look([over], sent(SLOW), 60.0)
    assert first.message is None
    due = look([over], first.after, 90.0)
    assert due.message is not None
    assert (due.message.firing, due.message.resolved) == ((), (over,))
    assert look([over], due.after, 91.0).message is None
    assert look([], due.after, 92.0).message is None


def test_an_alert_is_repeated_until_a_person_acknowledges_it() -> None:
    memory = sent(SLOW)
    assert look([SLOW], memory, 29.0 + 14400.0).message is None
    again = look([SLOW], memory, 30.0 + 14400.0)
    assert again.message is not None
    assert again.message.firing == (SLOW,)
    acknowledged = replace(SLOW, acknowledged_s=WALL_S)
    assert look([acknowledged], memory, 30.0 + 14400.0).message is None
    assert look([acknowledged], Memory(), 100.0).after == Memory()


def test_a_higher_severity_is_news_and_other_figures_or_a_lower_one_are_not() -> None:
    worse = replace(SLOW, severity=Severity.CRITICAL)
    due = look([worse], look([worse], sent(SLOW), 100.0).after, 130.0)
    assert due.message is not None
    assert due.message.firing == (worse,)
    milder = replace(SLOW, severity=Severity.INFO)
    assert not look([milder], due.after, 1000.0).after.undelivered
    moved = replace(SLOW, summary="submission latency +39 %", updated_s=WALL_S)
    assert not look([moved], sent(SLOW), 100.0).after.undelivered


def test_while_quiet_nothing_new_is_sent_and_afterwards_what_still_fires() -> None:
    quiet = look([SLOW], Memory(), 0.0, quiet=True)
    assert quiet == Step(None, Memory())
    waits = look([SLOW], quiet.after, 300.0)
    assert waits.message is None
    assert look([SLOW], waits.after, 330.0).message is not None
    assert look([SLOW], sent(SLOW), 99999.0, quiet=True).message is None


def test_while_quiet_an_end_is_sent_and_a_missing_alert_is_not_over() -> None:
    memory = sent(SLOW)
    assert look([], memory, 100.0, quiet=True) == Step(None, memory)
    over = ended(SLOW, WALL_S + 60)
    waiting = look([over], memory, 100.0, quiet=True)
    assert look([over], waiting.after, 130.0, quiet=True).message is not None


def test_a_missing_alert_is_resolved_in_the_words_in_which_it_was_sent() -> None:
    due = look([], look([], sent(SLOW), 400.0).after, 430.0)
    assert due.message is not None
    [over] = due.message.resolved
    assert (over.summary, over.fix, over.ends_s) == (SLOW.summary, SLOW.fix, at(430.0).wall_s)


def test_an_alert_that_fires_counts_before_one_of_its_name_that_ended() -> None:
    over = ended(replace(SLOW, starts_s=SLOW.starts_s + 60), WALL_S)  # the clock was set back
    for alerts in ([SLOW, over], [over, SLOW]):
        due = look(alerts, look(alerts, Memory(), 0.0).after, 30.0)
        assert due.message is not None
        assert due.message.firing == (SLOW,)


@pytest.mark.parametrize("policy", [SENDS, SHOWS])
def test_a_refused_alert_waits_for_the_interval_and_its_end_is_not_sent(policy: Policy) -> None:
    first = look([SLOW], Memory(shown=(frozenset(), frozenset())), 0.0, policy=policy)
    due = look([SLOW], first.after, 30.0, policy=policy)
    refused = outbox.refused(due, first.after)
    assert refused.undelivered
    waits = look([SLOW], refused, 14429.0, policy=policy)
    assert (waits.message or Message()).standing == ()
    again = look([SLOW], waits.after, 14430.0, policy=policy)
    assert again.message is not None
    assert again.message.firing == (SLOW,)
    assert names(again.message.standing) == [SLOW.name]
    over = look([ended(SLOW, WALL_S)], refused, 2000.0, policy=policy)
    assert over.after.sent == {}
    assert (over.message or Message()).resolved == ()


def test_a_sink_that_shows_gets_every_change_and_the_past_for_an_hour() -> None:
    first = look([], Memory(), 0.0, policy=SHOWS)
    assert first.message is not None  # what an earlier agent left there may be over
    assert look([], first.after, 1.0, policy=SHOWS).message is None
    memory = sent(SLOW, LOST, policy=SHOWS)
    acknowledged = replace(LOST, acknowledged_s=WALL_S)
    less = look([SLOW, acknowledged], memory, 100.0, policy=SHOWS)
    assert less.message is not None
    assert (names(less.message.standing), less.message.firing) == ([SLOW.name], ())
    alerts = [ended(SLOW, WALL_S + 100), acknowledged]
    waiting = look(alerts, less.after, 200.0, policy=SHOWS)
    assert waiting.message is None
    due = look(alerts, waiting.after, 230.0, policy=SHOWS)
    assert due.message is not None
    assert (due.message.standing, names(due.message.ended)) == ((), [SLOW.name])
    shown = look(alerts, due.after, 229.0 + ENDED_SHOWN_S, policy=SHOWS)
    assert shown.message is None
    empty = look(alerts, shown.after, 230.0 + ENDED_SHOWN_S, policy=SHOWS)
    assert empty.message is not None
    assert empty.message.ended == ()
    # A line that shows is no message: it needs no repetition.
    assert look([SLOW], sent(SLOW, policy=SHOWS), 99999.0, policy=SHOWS).message is None


@pytest.mark.parametrize("set_s", [0.0, -86400.0, 86400.0 * 365])
def test_a_restart_repeats_nothing_before_its_time_whatever_the_wall_clock_says(
    set_s: float,
) -> None:
    # The monotonic clock of the new boot begins at 0; a minute has passed.
    now = Instant(at(90.0).wall_s + set_s, 5.0)
    memory = reread(sent(SLOW), now)
    due = step(SENDS, [SLOW], memory, now, quiet=False)
    assert (due.message is None) == (set_s <= 0)  # a year later it is due once
    later = Instant(now.wall_s, 6.0)
    assert step(SENDS, [SLOW], due.after, later, quiet=False).message is None
    in_time = Instant(now.wall_s, 5.0 + 14400.0)  # not a day late because it was sent "tomorrow"
    assert step(SENDS, [SLOW], due.after, in_time, quiet=False).message is not None


def test_a_memory_that_version_one_wrote_is_read() -> None:
    """Its rows had neither fixes nor annotations."""
    row = {
        "name": SLOW.name,
        "severity": "warning",
        "labels": dict(SLOW.labels),
        "summary": SLOW.summary,
        "description": SLOW.description,
        "starts_s": SLOW.starts_s,
        "updated_s": SLOW.updated_s,
        "ends_s": None,
        "at_s": WALL_S,
        "delivered": True,
    }
    past = msgspec.convert({"told": [row], "ended": []}, Saved)
    memory = outbox.restored(past, at(60.0), 14400.0)
    assert memory.sent.keys() == {SLOW.fingerprint}
    assert look([SLOW], memory, 61.0).message is None


ALERTS = tuple(replace(SLOW, labels={"gpu": str(number)}) for number in range(3))
WHICH = st.sampled_from(ALERTS)


class Delivering(RuleBasedStateMachine):
    """Alerts come and go, time passes, the agent starts anew, and a sink takes what it takes."""

    policy = SENDS

    def __init__(self) -> None:
        super().__init__()
        self.alerts: dict[str, Alert] = {}
        self.believed: dict[str, float] = {}  # what the person takes to fire, and when it was sent
        self.memory = Memory()
        self.mono_s = 0.0

    @rule(alert=WHICH)
    def fires(self, alert: Alert) -> None:
        if not (previous := self.alerts.get(alert.fingerprint)) or not previous.firing:
            self.alerts[alert.fingerprint] = alert

    @rule(alert=WHICH)
    def ends(self, alert: Alert) -> None:
        if (previous := self.alerts.get(alert.fingerprint)) and previous.firing:
            self.alerts[alert.fingerprint] = ended(previous, WALL_S + self.mono_s)

    @rule(alert=WHICH)
    def is_acknowledged(self, alert: Alert) -> None:
        if (previous := self.alerts.get(alert.fingerprint)) and previous.firing:
            self.alerts[alert.fingerprint] = replace(previous, acknowledged_s=WALL_S)

    @rule(alert=WHICH)
    def is_long_over(self, alert: Alert) -> None:
        if (previous := self.alerts.get(alert.fingerprint)) and not previous.firing:
            del self.alerts[alert.fingerprint]

    @rule(seconds=st.sampled_from([1.0, 31.0, 4000.0, 15000.0]))
    def time_passes(self, seconds: float) -> None:
        self.mono_s += seconds

    @rule()
    def restarts(self) -> None:
        self.memory = reread(self.memory, at(self.mono_s))

    @rule()
    def is_delivered(self) -> None:
        due = self.due()
        self.receive(due.message)
        self.memory = due.after

    @rule()
    def fails_for_now(self) -> None:
        due = self.due()
        if due.message is None:
            self.memory = due.after

    @rule()
    def refuses(self) -> None:
        due = self.due()
        if due.message is not None:
            for alert in due.message.resolved:  # which are not sent again
                self.believed.pop(alert.fingerprint, None)
        self.memory = outbox.refused(due, self.memory)

    def teardown(self) -> None:
        """After long enough it knows everything that fires, and of nothing else."""
        for _ in range(2):
            self.mono_s += 15000.0
            self.is_delivered()
        firing = {name: alert for name, alert in self.alerts.items() if alert.firing}
        unacknowledged = {name for name, alert in firing.items() if alert.acknowledged_s is None}
        assert unacknowledged <= self.believed.keys() <= firing.keys()

    def due(self) -> Step:
        return look(self.alerts.values(), self.memory, self.mono_s, policy=self.policy)

    def receive(self, message: Message | None) -> None:
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


class Showing(Delivering):
    """Likewise, for a sink that holds a state up."""

    policy = SHOWS


TestDelivering = Delivering.TestCase
TestShowing = Showing.TestCase
