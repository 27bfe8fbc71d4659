"""What is due to a sink: each rule by itself, and all of them over random histories."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from gpud.agent.alerts.delivery import ENDED_SHOWN_S, Channel, Outbox, SentAlert
from gpud.core.alerts import Severity
from gpud.core.clock import Instant
from tests.agent.alerts.story import RecordingSink
from tests.agent.alerts.telling import LOST, SLOW, ended

if TYPE_CHECKING:
    from gpud.agent.alerts.message import Message
    from gpud.core.alerts import Alert

WAIT_S, REPEAT_S = 30.0, 14400.0
WALL_S = 1_790_000_100.0


def at(mono_s: float) -> Instant:
    return Instant(WALL_S + mono_s, 1000.0 + mono_s)


class Box(Outbox):
    """An outbox whose messages are delivered at once."""

    def __init__(self, *sent: Alert) -> None:
        super().__init__(WAIT_S, REPEAT_S)
        if sent:
            self.look(0.0, *sent)
            assert self.look(30.0, *sent) is not None

    def look(self, mono_s: float, *alerts: Alert, quiet: bool = False) -> Message | None:
        message = self.due(alerts, at(mono_s), quiet=quiet)
        if message is not None:
            self.delivered(message, at(mono_s))
        return message

    def refuse(self, mono_s: float, *alerts: Alert) -> None:
        message = self.due(alerts, at(mono_s), quiet=False)
        assert message is not None
        self.refused(message, at(mono_s))


def restarted(box: Outbox, now: Instant) -> Box:
    """Write and read what is saved."""
    past = msgspec.json.encode([*box.sent.values()])
    again = Box()
    again.restore(msgspec.json.decode(past, type=list[SentAlert]), now)
    return again


def test_alerts_within_the_wait_are_one_message_with_the_worst_first() -> None:
    box = Box()
    assert box.look(0.0, SLOW) is None
    assert box.look(29.9, SLOW, LOST) is None
    message = box.look(30.0, SLOW, LOST)
    assert message is not None
    assert message.firing == message.standing == (LOST, SLOW)
    assert box.look(31.0, SLOW, LOST) is None


def test_alert_that_ends_before_it_was_sent_is_never_sent() -> None:
    box, over = Box(), ended(SLOW, WALL_S)
    box.look(0.0, SLOW)
    assert box.look(10.0, over) is None
    assert box.look(100.0, over) is None
    assert (box.sent, box.complete) == ({}, True)


def test_alert_that_was_sent_is_sent_as_resolved_once() -> None:
    box, over = Box(SLOW), ended(replace(SLOW, acknowledged_s=WALL_S), WALL_S + 60)
    assert box.look(60.0, over) is None
    message = box.look(90.0, over)
    assert message is not None
    assert (message.firing, message.resolved) == ((), (over,))
    assert box.look(91.0, over) is None
    assert box.look(92.0) is None


def test_alert_is_repeated_until_a_person_acknowledges_it() -> None:
    acknowledged = replace(SLOW, acknowledged_s=WALL_S)
    assert Box(SLOW).look(30.0 + REPEAT_S, acknowledged) is None
    assert Box().look(100.0, acknowledged) is None
    box = Box(SLOW)
    assert box.look(29.0 + REPEAT_S, SLOW) is None
    again = box.look(30.0 + REPEAT_S, SLOW)
    assert again is not None
    assert again.firing == (SLOW,)


def test_higher_severity_is_news_and_other_figures_or_a_lower_one_are_not() -> None:
    box, worse = Box(SLOW), replace(SLOW, severity=Severity.CRITICAL)
    moved = replace(SLOW, summary="submission latency +39 %", updated_s=WALL_S)
    box.look(50.0, moved)
    assert box.complete
    box.look(100.0, worse)
    message = box.look(130.0, worse)
    assert message is not None
    assert message.firing == (worse,)
    box.look(1000.0, replace(SLOW, severity=Severity.INFO))
    assert box.complete


def test_while_quiet_nothing_new_is_sent_and_afterwards_what_still_fires() -> None:
    box = Box()
    assert box.look(0.0, SLOW, quiet=True) is None
    assert box.look(300.0, SLOW) is None
    assert box.look(330.0, SLOW) is not None
    assert Box(SLOW).look(99999.0, SLOW, quiet=True) is None


def test_while_quiet_an_end_is_sent_and_a_missing_alert_is_not_over() -> None:
    box, over = Box(SLOW), ended(SLOW, WALL_S + 60)
    assert box.look(100.0, quiet=True) is None
    assert len(box.sent) == 1
    box.look(100.0, over, quiet=True)
    assert box.look(130.0, over, quiet=True) is not None


def test_missing_alert_is_resolved_in_the_words_in_which_it_was_sent() -> None:
    box = Box(SLOW)
    box.look(400.0)
    message = box.look(430.0)
    assert message is not None
    [over] = message.resolved
    assert (over.summary, over.fix, over.ends_s) == (SLOW.summary, SLOW.fix, at(430.0).wall_s)


def test_refused_alert_waits_for_the_interval_and_its_end_is_not_sent() -> None:
    box = Box()
    box.look(0.0, SLOW)
    box.refuse(30.0, SLOW)
    assert not box.complete
    assert box.look(29.0 + REPEAT_S, SLOW) is None
    again = box.due([SLOW], at(30.0 + REPEAT_S), quiet=False)
    assert again is not None
    assert again.firing == (SLOW,)
    assert box.look(2000.0, ended(SLOW, WALL_S)) is None
    assert box.sent == {}


@pytest.mark.parametrize("set_s", [0.0, -86400.0, 86400.0 * 365])
def test_restart_repeats_nothing_before_its_time_whatever_the_wall_clock_says(
    set_s: float,
) -> None:
    # The monotonic clock of the new boot begins at 0; a minute has passed.
    now = Instant(at(90.0).wall_s + set_s, 5.0)
    box = restarted(Box(SLOW), now)
    message = box.due([SLOW], now, quiet=False)
    assert (message is None) == (set_s <= 0)  # a year later it is due once
    if message is not None:
        box.delivered(message, now)
    assert box.due([SLOW], replace(now, mono_s=6.0), quiet=False) is None
    in_time = replace(now, mono_s=5.0 + REPEAT_S)  # not a day late for being sent "tomorrow"
    assert box.due([SLOW], in_time, quiet=False) is not None


def test_row_that_version_one_wrote_is_read() -> None:
    """Its rows had neither fixes nor annotations."""
    names = ("name", "severity", "labels", "summary", "description", "starts_s", "updated_s")
    row = {name: getattr(SLOW, name) for name in names}
    row |= {"ends_s": None, "at_s": WALL_S, "delivered": True}
    box = Box()
    box.restore(msgspec.convert([row], list[SentAlert]), at(60.0))
    assert box.sent.keys() == {SLOW.fingerprint}
    assert box.look(61.0, SLOW) is None


def test_sink_that_shows_a_state_gets_every_change_and_the_past_for_an_hour() -> None:
    channel = Channel(RecordingSink(shows=True), Box())

    def look(mono_s: float, *alerts: Alert, quiet_from_s: float = 1e9) -> Message | None:
        message = channel.due(alerts, at(mono_s), quiet_from_s)
        if message is not None:
            channel.shown = message
            channel.outbox.showed(message, at(mono_s))
        return message

    assert look(0.0) is not None  # what an earlier agent left there may be over
    assert look(1.0) is None
    new = replace(LOST, starts_s=WALL_S + 2)
    quiet = look(3.0, SLOW, new, quiet_from_s=1000.0)
    assert quiet is not None
    assert quiet.standing == (SLOW,)
    both = look(4.0, SLOW, new)
    assert both is not None
    assert both.standing == (new, SLOW)
    assert look(5.0, replace(SLOW, updated_s=WALL_S), new) is None
    acknowledged = replace(new, acknowledged_s=WALL_S)
    less = look(100.0, SLOW, acknowledged)
    assert less is not None
    assert less.standing == (SLOW,)
    over = ended(SLOW, at(200.0).wall_s)
    message = look(200.0, over, acknowledged)
    assert message is not None
    assert (message.standing, message.resolved) == ((), (over,))
    both_over = look(201.0, over, ended(acknowledged, at(201.0).wall_s))
    assert both_over is not None
    assert len(both_over.resolved) == 2  # an acknowledged alert was shown as well
    assert look(202.0, over, acknowledged) is not None
    assert look(199.0 + ENDED_SHOWN_S, over, acknowledged) is None
    empty = look(200.0 + ENDED_SHOWN_S, over, acknowledged)
    assert empty is not None
    assert (empty.standing, empty.resolved) == ((), ())


ALERTS = tuple(replace(SLOW, labels={"gpu": str(number)}) for number in range(3))
ALERT = st.sampled_from(ALERTS)


class Delivering(RuleBasedStateMachine):
    """Alerts come and go, time passes, the agent restarts, and a sink takes or refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.alerts: dict[str, Alert] = {}
        self.believed: dict[str, float] = {}  # what the person takes to fire, and when it was sent
        self.box = Box()
        self.mono_s = 0.0

    @rule(alert=ALERT)
    def fires(self, alert: Alert) -> None:
        if not (previous := self.alerts.get(alert.fingerprint)) or not previous.firing:
            self.alerts[alert.fingerprint] = alert

    @rule(alert=ALERT)
    def ends(self, alert: Alert) -> None:
        if (previous := self.alerts.get(alert.fingerprint)) and previous.firing:
            self.alerts[alert.fingerprint] = ended(previous, WALL_S + self.mono_s)

    @rule(alert=ALERT)
    def is_acknowledged(self, alert: Alert) -> None:
        if (previous := self.alerts.get(alert.fingerprint)) and previous.firing:
            self.alerts[alert.fingerprint] = replace(previous, acknowledged_s=WALL_S)

    @rule(alert=ALERT)
    def is_long_over(self, alert: Alert) -> None:
        if (previous := self.alerts.get(alert.fingerprint)) and not previous.firing:
            del self.alerts[alert.fingerprint]

    @rule(seconds=st.sampled_from([1.0, 31.0, 4000.0, 15000.0]))
    def time_passes(self, seconds: float) -> None:
        self.mono_s += seconds

    @rule()
    def restarts(self) -> None:
        self.box = restarted(self.box, at(self.mono_s))

    @rule()
    def is_delivered(self) -> None:
        """News once, a repetition when it is time, an end only of what was sent as firing."""
        message = self.box.look(self.mono_s, *self.alerts.values())
        for alert in () if message is None else message.resolved:
            assert not alert.firing
            del self.believed[alert.fingerprint]
        for alert in () if message is None else message.firing:
            assert alert.firing
            assert alert.acknowledged_s is None
            last_s = self.believed.get(alert.fingerprint)
            assert last_s is None or self.mono_s - last_s >= REPEAT_S
            self.believed[alert.fingerprint] = self.mono_s

    @rule()
    def fails_for_now(self) -> None:
        self.box.due(self.alerts.values(), at(self.mono_s), quiet=False)

    @rule()
    def refuses(self) -> None:
        message = self.box.due(self.alerts.values(), at(self.mono_s), quiet=False)
        if message is not None:
            for alert in message.resolved:  # which are not sent again
                self.believed.pop(alert.fingerprint, None)
            self.box.refused(message, at(self.mono_s))

    def teardown(self) -> None:
        """After long enough the person knows everything that fires, and nothing else."""
        for _ in range(2):
            self.mono_s += 15000.0
            self.is_delivered()
        firing = {name: alert for name, alert in self.alerts.items() if alert.firing}
        unacknowledged = {name for name, alert in firing.items() if alert.acknowledged_s is None}
        assert unacknowledged <= self.believed.keys() <= firing.keys()


TestDelivering = Delivering.TestCase
