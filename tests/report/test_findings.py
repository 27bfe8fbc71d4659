"""What was found out, in words; what nobody was told; and the one line on top."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpud.core.commands import ALERT_ACKNOWLEDGED, BASELINE_ACCEPTED, Choice, Command
from gpud.core.sample import Unit
from gpud.core.streams import StreamKey
from gpud.report import findings
from gpud.report.build import NOTHING, headline
from gpud.report.model import Level, Lost, Shift, Stretch, Told, Track
from gpud.report.rows import Finding

SUBMIT = StreamKey("GPU-1", "launch", "submit")
TRIAD = StreamKey("GPU-1", "triad", "triad")
UNITS = {SUBMIT: Unit.SECONDS, TRIAD: Unit.BYTES_PER_SECOND}
OLD, NEW = Stretch("572.16", 0.0, 99.0, 9), Stretch("576.02", 100.0, 999.0, 9)


def effect(ratio: float) -> dict[str, float]:
    return {"ratio": ratio, "low": 0.98 * ratio, "high": 1.02 * ratio}


def verdict(state: str, key: StreamKey = SUBMIT, **body: Any) -> Finding:
    known = {"old_driver": "572.16", "new_driver": "576.02", "since_s": 100.0, "samples": 25}
    return Finding(key, 500.0, {"state": state, **known, **body})


def alarm(ratio: float, key: StreamKey = SUBMIT, **body: Any) -> Finding:
    known = {"kind": "step", "since_s": 300.0, "seq": 7, "new_driver": "576.02"}
    return Finding(key, 500.0, {"effect": effect(ratio), "worse": ratio > 1, **known, **body})


def said(*told: Finding, units: dict[StreamKey, Unit] | None = None) -> list[str]:
    return [one.words for one in findings.verdicts(told, UNITS if units is None else units)]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (
            verdict("regressed", effect=effect(1.12)),
            "regressed: 12 % slower (9.8-14.2 %), 25 samples",
        ),
        (
            verdict("regressed", TRIAD, effect=effect(0.8)),
            "regressed: 25 % slower (22.5-27.6 %), 25 samples",
        ),
        (
            verdict("improved", effect=effect(0.8)),
            "improved: 20 % faster (18.4-21.6 %), 25 samples",
        ),
        (verdict("no_change", limit=0.07), "no change seen (limit +-7 %), 25 samples"),
        (verdict("none", why="too few"), "no verdict: too few, 25 samples"),
        (verdict("undecided", samples=None), "undecided"),
    ],
)
def test_a_verdict_is_said_with_its_interval_and_samples(told: Finding, words: str) -> None:
    assert said(told) == [words]


def test_without_a_known_unit_the_state_tells_which_way_is_worse() -> None:
    told = [verdict("regressed", effect=effect(r)) for r in (1.25, 0.8)]
    assert [words.split(" (")[0] for words in said(*told, units={})] == [
        "regressed: 25 % slower"
    ] * 2


@pytest.mark.parametrize(
    "body",
    [{"state": "nonsense"}, {"state": None}, {"old_driver": 7}, {"new_driver": None}],
)
def test_a_verdict_that_nobody_wrote_is_none(body: dict[str, Any]) -> None:
    told = verdict("regressed", effect="x")
    told.body.update(body)
    assert said(told) == []


def test_alarms_that_are_in_no_alert_are_untold() -> None:
    stream = {
        "gpu": "GPU-1",
        "probe": "launch",
        "mode": "submit",
        "version": 1,
        "on_battery": False,
    }
    alert = {"evidence": [{"stream": stream, "seq": 7}]}
    told = [alarm(1.2), alarm(1.3, seq=8), alarm(0.7), alarm(0.8, TRIAD), alarm(1.2, TRIAD)]
    found = [(one.key.probe, round(one.slowdown, 2)) for one in _untold(told, alert)]
    assert found == [("launch", 1.3), ("triad", 1.25)]
    more = {"evidence": [{"stream": stream, "seq": 8}, 3, {"stream": [[]], "seq": {}}]}
    assert _untold(told[:2], alert, more) == []


def _untold(told: list[Finding], *alerts: dict[str, Any]) -> list[Any]:
    return list(findings.untold(told, alerts, UNITS))


def test_an_untold_alarm_is_over_once_it_is_closed_or_accepted() -> None:
    driver = alarm(1.2, kind="driver")
    back = alarm(0.8, seq=9, closes=[7])
    accepted = Command(1, 501.0, BASELINE_ACCEPTED, 5, Choice(probe="launch"))

    def over(told: list[Finding], *said: Command) -> list[tuple[str, bool]]:
        return [(one.why, one.over) for one in findings.untold(told, (), UNITS, said)]

    assert over([driver]) == [(findings.UNTOLD, False)]
    assert over([driver, back]) == [(findings.UNTOLD, True)]
    assert over([driver], accepted) == [(findings.UNTOLD, True)]
    assert over([driver], replace(accepted, at_s=499.0)) == [(findings.UNTOLD, False)]
    assert over([driver], replace(accepted, choice=Choice(probe="triad"))) == [
        (findings.UNTOLD, False)
    ]
    seen = Command(1, 501.0, ALERT_ACKNOWLEDGED, 5, fingerprint="ab")
    assert over([driver], seen) == [(findings.UNTOLD, False)]


def test_what_was_accepted_out_of_an_alert_was_told() -> None:
    told = [alarm(1.2, kind="driver", old_driver="572.16")]
    alert = {"labels": {"kind": "driver", "old": "572.16", "new": "576.02"}, "evidence": []}
    other = {"labels": {"kind": "driver", "old": "560.94", "new": "572.16"}, "evidence": []}
    accepted = Command(1, 501.0, BASELINE_ACCEPTED, 5, Choice(probe="launch"))
    assert list(findings.untold(told, [alert], UNITS, (accepted,))) == []
    for alerts, said in (([alert], ()), ([other], (accepted,))):
        assert [one.why for one in findings.untold(told, alerts, UNITS, said)] == [findings.UNTOLD]


def test_a_driver_on_trial_is_said_to_be_until_its_last_look() -> None:
    def words(n: int, *told: Finding) -> list[tuple[str, str, str]]:
        found = findings.awaited([track(1.0, n=n)], [OLD, NEW], told)
        return [(one.old, one.new, one.words) for one in found]

    assert words(12) == [("572.16", "576.02", "no verdict yet, 12 runs")]
    assert words(12, verdict("regressed")) == []
    assert words(12, verdict("regressed", since_s=50.0)) != []  # that was the one before
    assert words(120) == []
    assert list(findings.awaited([track(1.0, n=9)], [OLD, NEW, OLD], ())) == []
    cpu = replace(track(1.04), key=StreamKey(None, "cpu_call", "call"))
    assert list(findings.awaited([cpu], [OLD, NEW], ())) == []
    (moved,) = findings.unsaid([cpu], [OLD, NEW], (), ())
    assert moved.words == "at the time of driver 572.16 -> 576.02"


def test_marks_are_of_one_stream_and_say_which_way() -> None:
    told = [alarm(1.2), alarm(0.8, TRIAD), alarm(0.9, kind="driver"), alarm(1.1, since_s="x")]
    found = findings.marks(told, SUBMIT, Unit.SECONDS)
    assert [(one.worse, one.words) for one in found] == [
        (True, "20 % slower at once, under the same driver"),
        (False, "10 % faster with the new driver"),
    ]


def track(after: float, n: int = 500, width: float = 0.02) -> Track:
    levels = (
        Level(0, n, 1.0, 1 - width, 1 + width, 0),
        Level(1, n, after, after * (1 - width), after * (1 + width), 0, after),
    )
    return Track(SUBMIT, Unit.SECONDS, levels, ())


def unsaid(
    one: Track, told: tuple[Finding, ...] = (), alarms: tuple[Finding, ...] = ()
) -> list[str]:
    return [shift.why for shift in findings.unsaid([one], [OLD, NEW], told, alarms)]


def test_a_small_shift_beyond_the_noise_is_told_as_one_that_nobody_was_told_of() -> None:
    assert unsaid(track(1.04)) == [findings.UNDECIDED]
    assert unsaid(track(1.04), (verdict("no_change"),)) == [findings.BELOW]
    assert unsaid(track(0.96)) == [findings.UNDECIDED]


@pytest.mark.parametrize(
    ("one", "told", "alarms"),
    [
        (track(1.01), (), ()),  # too small to matter
        (track(1.04, width=0.3), (), ()),  # within the noise
        (track(1.04, n=19), (), ()),
        (track(1.12), (verdict("regressed"),), ()),
        (track(1.12), (), (alarm(1.12, since_s=100.0),)),
    ],
)
def test_noise_and_what_was_decided_are_no_shifts(
    one: Track, told: tuple[Finding, ...], alarms: tuple[Finding, ...]
) -> None:
    assert unsaid(one, told, alarms) == []


def told(name: str = "GpudSlowdown", *, ends_s: float | None = None, **changes: Any) -> Told:
    known = {"severity": "warning", "summary": "a is slower", "fix": None, "starts_s": 1.0}
    return Told(name, **{**known, **changes}, ends_s=ends_s, acknowledged=False)


ENOUGH = (track(1.0),)


def test_the_top_line_is_what_fires_the_gravest_first() -> None:
    fires = (told(), told("GpudFunctionLost", summary="b is lost", severity="critical"))
    said = headline(fires, (), ENOUGH)
    assert (said.words, said.worse) == ("b is lost (and 1 more)", True)


def test_the_top_line_names_what_was_lost_even_if_nobody_was_told() -> None:
    gone = Lost("GPU-1", "nbody", "572.16", "576.02", 1.0, 9, "ptx_rejected", None)
    said = headline((), (gone,), ENOUGH)
    assert (said.worse, "nbody worked under driver 572.16" in said.words) == (True, True)
    back = Lost("GPU-1", "nbody", "572.16", "576.02", 1.0, 9, "ptx_rejected", 5.0)
    assert headline((), (back,), ENOUGH).words == NOTHING


def test_the_top_line_says_when_nothing_became_slower_or_nothing_is_known() -> None:
    assert headline((), (), ENOUGH).words == NOTHING
    assert headline((told("GpudUnwell"),), (), ENOUGH).words == NOTHING
    over = headline((told(ends_s=9.0), told(ends_s=8.0)), (), ENOUGH)
    assert (over.words, over.worse) == ("nothing is slower now; 2 slowdowns ended", False)
    assert "no runs" in headline((), (), ()).words
    assert "only 18 runs" in headline((), (), (track(1.0, n=9),)).words


def test_the_top_line_tells_of_a_shift_that_no_detector_has_judged() -> None:
    moved = [
        Shift(SUBMIT, 1.0, 1.12, "since driver 572.16 -> 576.02", findings.UNDECIDED),
        Shift(TRIAD, 1.0, 1.4, "since driver 572.16 -> 576.02", findings.BELOW),
        Shift(TRIAD, 1.0, 1.03, "since driver 572.16 -> 576.02", findings.UNDECIDED),
    ]
    said = headline((), (), ENOUGH, moved)
    assert said.words == (
        "submission latency: 12 % slower since driver 572.16 -> 576.02; no verdict was reached"
    )
    assert not said.worse
    assert headline((), (), ENOUGH, moved[1:]).words == NOTHING


def test_the_top_line_tells_of_an_update_that_no_alert_tells_of() -> None:
    moved = [
        Shift(SUBMIT, 1.0, 1.12, "with the new driver", findings.UNTOLD),
        Shift(TRIAD, 1.0, 1.1, "with the new driver", findings.UNTOLD),
    ]
    said = headline((), (), ENOUGH, moved)
    assert said.words == "submission latency: 12 % slower with the new driver (and 1 more)"
    assert said.worse
    assert headline((), (), ENOUGH, [replace(one, over=True) for one in moved]).words == NOTHING
