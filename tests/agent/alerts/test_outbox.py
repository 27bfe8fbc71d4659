"""What is due to a sink: each rule by itself, and all of them over random histories."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from msgspec import structs

from gpud.agent.alerts.delivery import ENDED_SHOWN_S, Outbox, SentAlert, state_to_show
from gpud.core.alerts import Severity
from gpud.core.clock import Instant
from tests.agent.alerts.telling import LOST, SLOW, ended

if TYPE_CHECKING:
    from gpud.agent.alerts.message import Message
    from gpud.core.alerts import Alert

    Step = tuple[float, list[Alert], str]

WAIT_S, REPEAT_S = 30.0, 14400.0
WALL_S = 1_790_000_100.0


def at(mono_s: float) -> Instant:
    return Instant(WALL_S + mono_s, 1000.0 + mono_s)


class Box(Outbox):
    """An outbox whose messages are delivered at once."""

    def __init__(self, *sent: Alert) -> None:
        super().__init__(WAIT_S, REPEAT_S)
        if sent:
            self.look(-30.0, *sent)
            assert self.look(0.0, *sent) is not None

    def look(self, mono_s: float, *alerts: Alert, quiet: bool = False) -> Message | None:
        message = self.due(alerts, at(mono_s), quiet=quiet)
        if message is not None:
            self.delivered(message, at(mono_s))
        return message


def restarted(box: Box, now: Instant) -> Box:
    """Write and read what is saved."""
    past = msgspec.json.encode([*box.sent.values()])
    again = Box()
    again.restore(msgspec.json.decode(past, type=list[SentAlert]), now)
    return again


def words(message: Message | None) -> str:
    """Write a message: "+" fires, "-" is resolved, "!" is critical."""
    parts = () if message is None else (*message.firing, *message.resolved)
    mark = {True: "+", False: "-"}
    names = {SLOW.name: "slow", LOST.name: "lost"}
    return " ".join(
        f"{mark[a.firing]}{names[a.name]}{'!' * (a.severity is Severity.CRITICAL)}" for a in parts
    )


ACKNOWLEDGED = structs.replace(SLOW, acknowledged_s=WALL_S)
OVER = ended(SLOW, WALL_S + 60)
GRAVE = structs.replace(SLOW, severity=Severity.CRITICAL)
MOVED = structs.replace(SLOW, summary="submission latency +39 %", updated_s=WALL_S)
STORIES: dict[str, tuple[Box, list[Step]]] = {
    "alerts within the wait are one message with the worst first": (
        Box(),
        [
            (0.0, [SLOW], ""),
            (29.9, [SLOW, LOST], ""),
            (30.0, [SLOW, LOST], "+lost! +slow"),
            (31.0, [SLOW, LOST], ""),
        ],
    ),
    "an alert that ends before it was sent is never sent": (
        Box(),
        [(0.0, [SLOW], ""), (10.0, [OVER], ""), (100.0, [OVER], "")],
    ),
    "an alert that was sent is sent as resolved once": (
        Box(SLOW),
        [(60.0, [OVER], ""), (90.0, [OVER], "-slow"), (91.0, [OVER], ""), (92.0, [], "")],
    ),
    "acknowledged or not, its end is sent": (
        Box(SLOW),
        [(60.0, [ended(ACKNOWLEDGED, WALL_S)], ""), (90.0, [ended(ACKNOWLEDGED, WALL_S)], "-slow")],
    ),
    "it is repeated": (
        Box(SLOW),
        [(REPEAT_S - 1, [SLOW], ""), (REPEAT_S, [SLOW], "+slow"), (REPEAT_S + 1, [SLOW], "")],
    ),
    "until a person acknowledges it": (Box(SLOW), [(REPEAT_S, [ACKNOWLEDGED], "")]),
    "what is acknowledged is no news": (Box(), [(0.0, [ACKNOWLEDGED], ""), (99.0, [SLOW], "")]),
    "a higher severity is news": (
        Box(SLOW),
        [(50.0, [GRAVE], ""), (80.0, [GRAVE], "+slow!")],
    ),
    "other figures or a lower severity are none": (
        Box(GRAVE),
        [(50.0, [MOVED], ""), (1000.0, [MOVED], "")],
    ),
    "one that is missing is resolved": (Box(SLOW), [(400.0, [], ""), (430.0, [], "-slow")]),
}


@pytest.mark.parametrize(("box", "steps"), STORIES.values(), ids=STORIES.keys())
def test_what_is_due_and_when(box: Box, steps: list[Step]) -> None:
    for mono_s, alerts, expected in steps:
        assert words(box.look(mono_s, *alerts)) == expected


def test_message_has_all_that_stands_and_an_end_in_the_words_in_which_it_was_sent() -> None:
    box = Box(SLOW)
    box.look(400.0, LOST)
    message = box.look(430.0, LOST)
    assert message is not None
    [over] = message.resolved
    assert (over.summary, over.fix, over.ends_s) == (SLOW.summary, SLOW.fix, at(430.0).wall_s)
    assert message.standing == (LOST,)


def test_while_quiet_ends_are_sent_and_nothing_else() -> None:
    assert Box(SLOW).look(99999.0, SLOW, quiet=True) is None
    box = Box(SLOW)
    assert box.look(100.0, LOST, quiet=True) is None
    assert box.sent.keys() == {SLOW.fingerprint}  # missing, and not over
    box.look(100.0, OVER, LOST, quiet=True)
    assert words(box.look(130.0, OVER, LOST, quiet=True)) == "-slow"
    assert box.look(300.0, LOST) is None
    assert words(box.look(330.0, LOST)) == "+lost!"


@pytest.mark.parametrize("set_s", [0.0, -86400.0, 86400.0 * 365])
def test_restart_repeats_nothing_before_its_time_whatever_the_wall_clock_says(
    set_s: float,
) -> None:
    # The monotonic clock of the new boot begins at 0; a minute has passed.
    now = Instant(at(60.0).wall_s + set_s, 5.0)
    box = restarted(Box(SLOW), now)
    message = box.due([SLOW], now, quiet=False)
    assert (message is None) == (set_s <= 0)  # a year later it is due once
    if message is not None:
        box.delivered(message, now)
    assert box.due([SLOW], Instant(now.wall_s, 6.0), quiet=False) is None
    in_time = Instant(now.wall_s, 5.0 + REPEAT_S)  # not a day late for being sent "tomorrow"
    assert box.due([SLOW], in_time, quiet=False) is not None


def test_row_that_version_one_wrote_is_read() -> None:
    """Its rows had neither fixes nor annotations, and said whether the sink took the alert."""
    names = ("name", "severity", "labels", "summary", "description", "starts_s", "updated_s")
    row = {name: getattr(SLOW, name) for name in names}
    row |= {"ends_s": None, "at_s": WALL_S, "delivered": True}
    box = Box()
    box.restore(msgspec.convert([row], list[SentAlert]), at(60.0))
    assert box.sent.keys() == {SLOW.fingerprint}
    assert box.look(61.0, SLOW) is None


NEW = structs.replace(LOST, starts_s=WALL_S + 2)
QUIET_S = (WALL_S, WALL_S + 300)


@pytest.mark.parametrize(
    ("alerts", "after_s", "standing", "resolved"),
    [
        ([SLOW, NEW], 3, [SLOW], []),
        ([SLOW, NEW], 300, [NEW, SLOW], []),
        ([SLOW, structs.replace(NEW, acknowledged_s=WALL_S)], 300, [SLOW], []),
        ([OVER], 61, [], [OVER]),
        ([ended(ACKNOWLEDGED, WALL_S + 60)], 61, [], [ended(ACKNOWLEDGED, WALL_S + 60)]),
        ([OVER], 60 + ENDED_SHOWN_S, [], []),
        ([ended(NEW, WALL_S + 200)], 400, [], []),
        ([ended(NEW, WALL_S + 301)], 400, [], [ended(NEW, WALL_S + 301)]),
    ],
    ids=[
        "what began while it is quiet is not shown",
        "but then",
        "what is acknowledged is not shown",
        "an end is shown",
        "also of what was acknowledged",
        "for an hour",
        "but not of what was never shown",
        "only of what was",
    ],
)
def test_sink_that_shows_a_state_has_what_fires_and_the_past_for_an_hour(
    alerts: list[Alert], after_s: float, standing: list[Alert], resolved: list[Alert]
) -> None:
    message = state_to_show(alerts, WALL_S + after_s, QUIET_S)
    assert (message.firing, [*message.standing], [*message.resolved]) == ((), standing, resolved)
