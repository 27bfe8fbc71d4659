"""What the detectors' word is on the one screen of ``gpud status``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpud.agent.regression.detector import ChangeKind, Effect, VerdictState
from gpud.agent.state.status import document
from gpud.core.stream_key import StreamKey
from gpud.show.document import Status, read
from gpud.show.stream_lines import MOST, lines
from gpud.show.units import moment
from tests import snapshots, standings
from tests.events import altered, evaluated

if TYPE_CHECKING:
    from gpud.agent.regression.detector import StreamStanding

NOW_S = snapshots.NOW.wall_s
GPU = snapshots.DEVICE.uuid
STANDINGS = standings.streams(GPU, NOW_S)
LAUNCH, TRIAD = standings.key(GPU, "launch"), standings.key(GPU, "triad")
CALM = STANDINGS[standings.CALL]


def of(streams: dict[StreamKey, StreamStanding]) -> Status:
    snapshot = altered(snapshots.full(), streams={}, units={})
    told = evaluated(streams, NOW_S, standings.units(GPU))(snapshot)
    return read(document(told, now=snapshots.NOW))


def shown(streams: dict[StreamKey, StreamStanding], later_s: float = 0.0) -> list[str]:
    return lines(of(streams), NOW_S + later_s)


FELL = replace(
    standings.slower(NOW_S),
    kind=ChangeKind.DRIFT,
    effect=Effect(0.8, 0.78, 0.82),
    since_s=NOW_S - 60,
)
BETTER = replace(
    STANDINGS[LAUNCH].verdict, state=VerdictState.IMPROVED, effect=Effect(0.9, 0.88, 0.92)
)  # type: ignore[type-var]  # it has one


@pytest.mark.parametrize(
    ("key", "standing", "words"),
    [
        (standings.CALL, CALM, []),
        (
            LAUNCH,
            STANDINGS[LAUNCH],
            ["(launch submit): 12 % (10.2-13.9 %) slower since driver 572.16, 25 samples"],
        ),
        (
            TRIAD,
            replace(CALM, open=(FELL,)),
            [f"(triad): 25 % (22.0-28.2 %) slower since {moment(NOW_S - 60)} (drift), 25 samples"],
        ),
        (
            LAUNCH,
            replace(CALM, verdict=BETTER),
            ["(launch submit): 11 % (8.7-13.6 %) faster since driver 572.16, 25 samples"],
        ),
    ],
)
def test_a_change_says_how_much_since_what_and_of_how_many_samples(
    key: StreamKey, standing: StreamStanding, words: list[str]
) -> None:
    told = shown({key: standing})
    assert [f"({line.partition(' (')[2]}" for line in told] == words
    assert all(line.startswith("GPU 0  ") for line in told)


def test_an_improvement_is_news_for_a_week() -> None:
    streams = {LAUNCH: replace(CALM, verdict=BETTER)}
    assert shown(streams, later_s=6 * 86400)
    assert shown(streams, later_s=8 * 86400) == []


def test_all_streams_that_a_driver_is_new_to_are_one_line() -> None:
    waiting = replace(CALM, verdict=STANDINGS[TRIAD].verdict)
    streams = {StreamKey(GPU, "launch", mode): waiting for mode in "abcde"}
    (line,) = shown(streams)
    assert line.startswith("GPU 0  learning about driver 572.16, samples so far: launch a 3, ")
    assert line.endswith("launch b 3, launch c 3 and 2 more")
    assert shown(streams, later_s=8 * 86400) == []


def test_the_line_with_the_higher_lower_end_comes_first() -> None:
    noisy = replace(standings.slower(NOW_S), effect=Effect(1.4, 1.05, 1.9))
    sure = replace(standings.slower(NOW_S), effect=Effect(1.15, 1.144, 1.156))
    streams = {
        StreamKey(GPU, "launch", "graph"): replace(CALM, open=(noisy,)),
        LAUNCH: replace(CALM, open=(sure,)),
    }
    assert ["(launch submit)" in one for one in shown(streams)] == [True, False]


def test_the_screen_stays_one_screen_with_the_slowest_first() -> None:
    streams = {}
    for number in range(20):
        effect = Effect(1.1 + number / 100, 1.05 + number / 100, 1.5)
        alarm = replace(standings.slower(NOW_S), effect=effect)
        streams[StreamKey(GPU, "copy", str(number), on_battery=True)] = replace(CALM, open=(alarm,))
    told = shown(streams)
    assert len(told) == MOST
    assert told[0].startswith("GPU 0  copy 19 on battery: 29 %")
    assert told[-1] == f"and {20 - MOST + 1} more: gpud baseline show"
