"""What becomes of alarms: one alert a cause, told when it is sure, ended when it is over."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.core import ledger
from gpud.core.alerts import DRIVER_REGRESSION, SLOWDOWN, Alert, Cause, Severity
from gpud.core.detector import Kind
from gpud.core.errors import WireError
from gpud.core.ledger import LATELY_S, Ledger
from gpud.core.ledger_state import restored, saved
from gpud.core.plainalerts import ended, raised
from gpud.core.sample import Unit
from tests.core.findings import GPUS, HOUR_S, NOW_S, UPDATE, alarm, found, standing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpud.core.case import Found

MODES = ("submit", "roundtrip", "pipelined", "graph")


def kept(alarms: Iterable[Found], before: Ledger | None = None, now_s: float = NOW_S) -> Ledger:
    known = before or Ledger(gpus=GPUS)
    for one in alarms:
        known = ledger.with_alarm(known, one, now_s)
    return known


def told(one: Found | None = None, before: Ledger | None = None, now_s: float = NOW_S) -> Ledger:
    """One stream's alarm, and a second window that says the same."""
    one = one or found()
    known = kept([one], before, now_s)
    open_still = [other.alarm for case in known.cases for other in case.open]
    still = standing(one.alarm, *open_still, judged=one.judged + one.alarm.samples)
    return ledger.with_standing(known, one.key, still, now_s)


def firing(known: Ledger, now_s: float = NOW_S) -> list[Alert]:
    return [one for one in ledger.alerts(known, now_s) if one.firing]


def of_update() -> list[Found]:
    return [
        *(found(mode, alarm(ratio=1.1 + number / 10)) for number, mode in enumerate(MODES)),
        found("triad", alarm(ratio=0.9), probe="triad", unit=Unit.BYTES_PER_SECOND),
        found("submit", gpu="GPU-2"),
        found("roundtrip", alarm(Kind.STEP, since_s=NOW_S - 2 * HOUR_S, seq=2000), gpu="GPU-2"),
    ]


def together() -> list[Found]:
    return [
        found(mode, alarm(Kind.STEP, since_s=NOW_S - number * HOUR_S))
        for number, mode in enumerate(MODES[:3])
    ]


@given(st.permutations(of_update()))
def test_the_alarms_of_an_update_are_one_alert_in_any_order(alarms: list[Found]) -> None:
    (one,) = firing(kept(alarms))
    assert (one.name, one.labels) == (
        DRIVER_REGRESSION,
        {"kind": "driver", "old": "572.16", "new": "576.02"},
    )
    assert {row.stream for row in one.evidence} == {one.key for one in alarms}
    slowdowns = [row.slowdown for row in one.evidence]
    assert slowdowns == sorted(slowdowns, reverse=True)


@given(st.permutations(together()))
def test_the_alarms_of_one_gpu_that_began_together_are_one_alert(alarms: list[Found]) -> None:
    (one,) = firing(kept(alarms))
    assert (one.name, one.labels["kind"], one.labels["uuid"]) == (SLOWDOWN, "step", "GPU-1")
    assert len(one.evidence) == 3


@given(st.permutations(of_update()), st.integers(0, 6))
def test_an_alarm_that_is_handed_in_again_changes_nothing(alarms: list[Found], again: int) -> None:
    known = kept(alarms)
    assert kept([alarms[again]], known) == known


@given(st.permutations(of_update()))
def test_an_alert_ends_with_the_last_of_its_alarms_and_not_before(alarms: list[Found]) -> None:
    known = kept(alarms)
    for number, one in enumerate(alarms):
        assert len(firing(known)) == 1
        assert len(firing(known)[0].evidence) == len(alarms) - number
        known = ledger.with_return(known, one.key, [one.alarm.seq], NOW_S + 60)
    (over,) = ledger.alerts(known, NOW_S + 60)
    assert over.ends_s == NOW_S + 60
    assert len(over.evidence) == len(alarms)
    assert ledger.alerts(known, NOW_S + 60 + LATELY_S) == ()


@given(
    st.lists(
        st.builds(
            found,
            st.sampled_from(MODES),
            st.builds(
                alarm,
                st.sampled_from(Kind),
                seq=st.integers(100, 105),
                since_s=st.floats(NOW_S - 9 * HOUR_S, NOW_S),
                worse=st.booleans(),
                closes=st.lists(st.integers(100, 105), max_size=2).map(tuple),
                drivers=st.sampled_from([("a", "b"), ("b", "c"), ("a", "c"), ("c", "a")]),
            ),
            gpu=st.sampled_from(["GPU-1", "GPU-2", None]),
            changed=st.sampled_from([UPDATE, (), (Cause("kernel", "1", "2"),)]),
        ),
        max_size=20,
    ),
    st.lists(st.booleans(), min_size=20, max_size=20),
)
def test_whatever_comes_no_two_alerts_that_fire_are_the_same_and_nothing_is_lost_on_disk(
    alarms: list[Found], windows: list[bool]
) -> None:
    known = Ledger(gpus=GPUS)
    for number, one in enumerate(alarms):
        known = ledger.with_alarm(known, one, NOW_S + number)
        if windows[number]:
            known = ledger.with_standing(known, one.key, standing(seen=50, slowdown=9.9), NOW_S)
        told = [alert.fingerprint for alert in firing(known)]
        assert len(told) == len(set(told))
        every = [case.fingerprint for case in known.cases if case.firing]
        assert len(every) == len(set(every))
    assert restored(json.loads(json.dumps(saved(known)))) == known


def test_an_update_says_how_much_since_what_and_where() -> None:
    (one,) = firing(told())
    assert one.summary == (
        "submission latency +12 % (12.4 -> 13.9 µs) since driver 572.16 -> 576.02 on GPU 0 "
        "(NVIDIA GeForce RTX 4070)"
    )
    assert one.severity is Severity.WARNING
    assert "25 samples against 1000" in one.description
    assert "Roll Back Driver" in (one.fix or "")
    assert f"gpud baseline accept {one.fingerprint[:8]}" in (one.fix or "")


def test_a_rate_that_fell_is_told_as_one_that_fell() -> None:
    slow = alarm(ratio=0.6, before=460e9)
    (one,) = firing(kept([found("triad", slow, probe="triad", unit=Unit.BYTES_PER_SECOND)]))
    assert one.summary.startswith("GPU memory bandwidth -40 % (460 -> 276 GB/s)")
    assert one.severity is Severity.CRITICAL
    assert one.evidence[0].slowdown == pytest.approx(1 / 0.6)
    assert one.evidence[0].low < one.evidence[0].slowdown < one.evidence[0].high


def test_a_new_kernel_under_the_same_driver_is_no_drivers_regression() -> None:
    kernel = (Cause("kernel", "6.6.75-microsoft", "6.6.87-microsoft"),)
    alarms = [found(changed=kernel), found("call", probe="cpu_call", gpu=None, changed=kernel)]
    (one,) = firing(kept(alarms))
    assert (one.name, one.labels["kind"], one.labels["new"]) == (SLOWDOWN, "kernel", "6.6.87")
    assert "since kernel 6.6.75 -> 6.6.87 on GPU 0" in one.summary
    assert "the CPU" in one.summary


CALL = found("call", alarm(Kind.STEP, before=40e-9), probe="cpu_call", gpu=None)


def second_window(known: Ledger) -> Ledger:
    still = standing(CALL.alarm, judged=1000 + CALL.alarm.samples)
    return ledger.with_standing(known, CALL.key, still, NOW_S + HOUR_S)


@pytest.mark.parametrize("first", ["gpu", "cpu"])
def test_a_machine_that_became_slower_is_one_alert_and_two_gpus_are_two(first: str) -> None:
    if first == "gpu":
        known = second_window(kept([CALL, *together()]))
    else:
        known = kept(together(), second_window(kept([CALL])))
    (one,) = firing(known)
    assert {shown.stream.gpu for shown in one.evidence} == {None, "GPU-1"}
    others = [found(mode, alarm(Kind.STEP), gpu="GPU-2") for mode in MODES[:2]]
    assert len(firing(kept([*together(), *others]))) == 2


def test_an_update_is_told_with_the_cpu_that_slowed_at_that_time() -> None:
    known = told()
    assert "the CPU" not in firing(known)[0].description
    alerts = firing(second_window(kept([CALL], known)))
    (update,) = (one for one in alerts if one.name == DRIVER_REGRESSION)
    assert [cause.kind for cause in update.causes] == ["driver", "cpu"]
    assert "the CPU's probes slowed as well" in update.description


@pytest.mark.parametrize("left", ["576.02", "577.00"])
def test_a_driver_that_was_taken_back_on_mains_is_blamed_on_battery_no_more(left: str) -> None:
    mains = found()
    battery = replace(mains, key=replace(mains.key, on_battery=True))
    known = kept([mains, battery])
    better = alarm(
        ratio=0.89, worse=False, seq=2000, closes=(mains.alarm.seq,), drivers=(left, "572.16")
    )
    back = found(one=better, changed=(Cause("driver_version", left, "572.16"),))
    assert len(firing(kept([back], known))) == (0 if left == "576.02" else 1)


def test_streams_that_skipped_a_driver_tell_of_the_same_update() -> None:
    skipped = (Cause("driver_version", "566.36", "576.02"),)
    (one,) = firing(kept([found(), found("graph", changed=skipped)]))
    assert one.labels["old"] == "572.16"
    assert len(one.evidence) == 2


def test_the_next_update_is_an_alert_of_its_own() -> None:
    later = alarm(seq=3000, at_s=NOW_S + 9 * HOUR_S, since_s=NOW_S + 8 * HOUR_S)
    changed = (Cause("driver_version", "576.02", "580.1"),)
    known = told(found(one=later, changed=changed), told())
    assert {one.labels["new"] for one in firing(known)} == {"576.02", "580.1"}


def test_an_alarm_of_one_stream_alone_is_told_to_nobody() -> None:
    known = kept([found(one=alarm(Kind.STEP))])
    assert ledger.alerts(known, NOW_S) == ()
    assert ledger.suspects(known) == (found(one=alarm(Kind.STEP)),)


@pytest.mark.parametrize(
    "other",
    [
        found("roundtrip", alarm(Kind.STEP), gpu="GPU-2"),
        found("roundtrip", alarm(Kind.STEP, since_s=NOW_S - 99 * HOUR_S, at_s=NOW_S - 90 * HOUR_S)),
        found("roundtrip", alarm(Kind.STEP, worse=False, ratio=0.9)),
    ],
    ids=["another GPU's", "another day's", "a better one"],
)
def test_what_happened_elsewhere_confirms_nothing(other: Found) -> None:
    assert firing(kept([found(one=alarm(Kind.STEP)), other])) == []


def test_a_stream_alone_is_told_once_a_second_window_has_half_of_the_shift() -> None:
    one = alarm(Kind.DRIFT, ratio=1.2)
    known, key = kept([found(one=one)]), found().key
    early = ledger.with_standing(known, key, standing(one, judged=1024, slowdown=1.2), NOW_S)
    assert firing(early) == []
    (told,) = firing(ledger.with_standing(known, key, standing(one, judged=1025), NOW_S + 60))
    assert (told.labels["kind"], told.starts_s) == ("drift", NOW_S + 60)
    assert ledger.suspects(ledger.with_standing(known, key, standing(one), NOW_S)) == ()


def test_an_update_that_one_stream_tells_of_waits_for_the_second_window_of_that_stream() -> None:
    known = kept([found()])
    assert (firing(known), ledger.suspects(known)) == ([], (found(),))
    gone = ledger.with_standing(known, found().key, standing(found().alarm, slowdown=1.0), NOW_S)
    assert firing(gone) == []
    assert [one.name for one in firing(told())] == [DRIVER_REGRESSION]


@pytest.mark.parametrize(
    "other",
    [found("roundtrip"), found(gpu="GPU-2"), found("graph", alarm(Kind.STEP))],
    ids=["of the update", "on another GPU", "a step at that time"],
)
def test_an_update_that_another_stream_tells_of_too_is_told_at_once(other: Found) -> None:
    for alarms in ([found(), other], [other, found()]):
        (one,) = firing(kept(alarms))
        assert (one.name, len(one.evidence)) == (DRIVER_REGRESSION, 2)


def test_an_update_that_costs_half_as_much_again_is_told_at_once() -> None:
    assert firing(kept([found(one=alarm(ratio=1.49))])) == []
    assert len(firing(kept([found(one=alarm(ratio=1.5))]))) == 1
    rate = found("triad", alarm(ratio=0.66), probe="triad", unit=Unit.BYTES_PER_SECOND)
    assert len(firing(kept([rate]))) == 1


def test_a_window_in_which_it_was_gone_is_followed_by_another() -> None:
    one = alarm(Kind.STEP, ratio=1.2)
    known, key = kept([found(one=one)]), found().key
    gone = ledger.with_standing(known, key, standing(one, judged=1025, slowdown=1.02), NOW_S)
    assert firing(gone) == []
    again = ledger.with_standing(gone, key, standing(one, judged=1049), NOW_S)
    assert firing(again) == []
    assert len(firing(ledger.with_standing(again, key, standing(one, judged=1050), NOW_S))) == 1


def test_a_share_of_slow_samples_is_confirmed_by_being_open_still() -> None:
    one = alarm(Kind.SLOW_STATE, ratio=1.3)
    known = ledger.with_standing(
        kept([found(one=one)]), found().key, standing(one, slowdown=1.0), NOW_S
    )
    (told,) = firing(known)
    assert "more often in a slow power state" in told.summary


def test_what_the_detector_holds_open_no_more_is_over() -> None:
    known = kept([found(), found("graph")])
    after = ledger.with_standing(known, found().key, standing(), NOW_S)
    assert [row.stream.mode for row in firing(after)[0].evidence] == ["graph"]
    assert ledger.with_standing(known, found().key, standing(seen=1024), NOW_S) is known
    suspect = kept([found(one=alarm(Kind.STEP))])
    assert ledger.suspects(ledger.with_standing(suspect, found().key, standing(), NOW_S)) == ()


def test_an_improvement_is_no_alert_and_ends_what_it_ends() -> None:
    better = alarm(ratio=0.89, seq=2000, worse=False, closes=(1024,), drivers=("576.02", "572.16"))
    known = kept([found(one=better)], told())
    assert [one.firing for one in ledger.alerts(known, NOW_S)] == [False]
    assert firing(kept([found(one=better)])) == []


def test_the_same_update_once_more_is_a_new_alert_with_the_old_name() -> None:
    first = told()
    (name,) = {one.fingerprint for one in firing(first)}
    over = ledger.with_return(first, found().key, [1024], NOW_S + HOUR_S)
    known = told(found(one=alarm(seq=4000)), over, NOW_S + 2 * HOUR_S)
    assert [(one.fingerprint, one.firing) for one in ledger.alerts(known, NOW_S)] == [(name, True)]
    assert len(ledger.everything(known)) == 2


def test_what_a_person_accepted_is_over_and_suspected_no_more() -> None:
    known = kept([found(), found("graph", alarm(Kind.STEP, since_s=NOW_S - 9 * HOUR_S))])
    for one in (found().key, found("graph").key):
        known = ledger.forgotten(known, one, NOW_S + 5)
    assert (firing(known), ledger.suspects(known)) == ([], ())


def test_an_acknowledgement_is_kept_whatever_joins_and_through_a_restart() -> None:
    known = told()
    (one,) = firing(known)
    seen = ledger.acknowledged(known, one.fingerprint, NOW_S + 5)
    joined = kept([found("graph")], restored(json.loads(json.dumps(saved(seen)))))
    assert [alert.acknowledged_s for alert in firing(joined)] == [NOW_S + 5]
    assert ledger.acknowledged(joined, one.fingerprint, NOW_S + 9) == joined
    assert ledger.acknowledged(joined, "0" * 16, NOW_S + 9) == joined


def test_a_stream_that_comes_and_goes_for_years_makes_no_alert_grow_for_ever() -> None:
    slower = found("graph", alarm(Kind.STEP))
    known = kept([found(one=alarm(seq=9999)), slower])
    known = ledger.with_return(known, found().key, [9999], NOW_S)
    for seq in range(500):
        known = kept([found(one=alarm(seq=seq))], known)
        known = ledger.with_return(known, found().key, [seq], NOW_S)
    (case,) = known.cases
    assert max(len(case.found), len(case.over)) < 100
    assert case.open == (slower,)
    assert firing(known)[0].summary.startswith("graph launch +12 % (12.4 -> 13.9 µs) since driver")


def test_a_clock_that_was_set_back_ends_nothing_before_it_began() -> None:
    known = ledger.forgotten(told(), found().key, NOW_S - 24 * HOUR_S)
    (one,) = ledger.everything(known)
    assert one.ends_s == one.starts_s == NOW_S


def test_the_first_in_the_list_is_what_nobody_has_seen_and_what_is_gravest() -> None:
    grave = found("triad", alarm(Kind.STEP, 2.0, since_s=NOW_S - 20 * HOUR_S), probe="triad")
    beside = found("copy", alarm(Kind.STEP, 2.0, since_s=NOW_S - 20 * HOUR_S), probe="copy")
    known = kept([grave, beside], told())
    assert [one.severity for one in ledger.alerts(known, NOW_S)] == ["critical", "warning"]
    seen = ledger.acknowledged(known, ledger.alerts(known, NOW_S)[0].fingerprint, NOW_S)
    assert [one.severity for one in ledger.alerts(seen, NOW_S)] == ["warning", "critical"]


def test_what_came_up_before_the_past_was_read_joins_it() -> None:
    past = ledger.acknowledged(told(), firing(told())[0].fingerprint, NOW_S)
    own = kept([found(), found("graph"), found("x", alarm(Kind.STEP, since_s=0.0, at_s=9.0))])
    own = raised(own, Alert("GpudUnwell", Severity.WARNING, {"component": "store"}, "", "", 1, 1))
    known = ledger.with_past(own, past)
    named = {one.name: one for one in firing(known)}
    assert named.keys() == {"GpudDriverRegression", "GpudUnwell"}
    assert (named["GpudDriverRegression"].acknowledged_s, len(known.suspects)) == (NOW_S, 1)


def test_the_cpu_has_no_part_in_a_drivers_regression() -> None:
    step = alarm(Kind.STEP, since_s=NOW_S - HOUR_S)
    known = kept([found("call", step, probe="cpu_call", gpu=None)], told())
    (one,) = firing(known)
    assert [each.stream.mode for each in one.evidence] == ["submit"]
    assert [each.key.mode for each in ledger.suspects(known)] == ["call"]


def test_what_fires_is_shown_although_a_clock_says_that_what_ended_began_later() -> None:
    one = Alert("GpudUnwell", Severity.WARNING, {"component": "store"}, "", "", NOW_S, NOW_S)
    over = ended(raised(Ledger(), one), one.fingerprint, NOW_S)
    again = raised(over, replace(one, starts_s=NOW_S - HOUR_S))
    assert [each.firing for each in ledger.alerts(again, NOW_S)] == [True]


def test_an_alert_without_streams_begins_once_and_changes_its_words_now_and_then() -> None:
    def made(at_s: float, words: str, severity: Severity = Severity.WARNING) -> Alert:
        return Alert("GpudUnwell", severity, {"component": "store"}, words, words, at_s, at_s)

    first = raised(Ledger(), made(NOW_S, "3 runs wait"))
    assert raised(first, made(NOW_S + 1, "4 runs wait")) is first
    graver = firing(raised(first, made(NOW_S + 1, "4", Severity.CRITICAL)))[0]
    assert (graver.severity, graver.starts_s) == (Severity.CRITICAL, NOW_S)
    seen = ledger.acknowledged(first, graver.fingerprint, NOW_S + 5)
    later = firing(raised(seen, made(NOW_S + 60, "90 runs wait")))[0]
    assert (later.summary, later.starts_s) == ("90 runs wait", NOW_S)
    assert later.acknowledged_s == NOW_S + 5
    assert firing(ended(first, later.fingerprint, NOW_S + 70)) == []


@pytest.mark.parametrize(
    "broken",
    [{}, {"version": 2}, {"version": 1}, {"version": 1, "cases": [{}]}],
)
def test_a_state_that_cannot_be_read_is_refused_by_name(broken: dict[str, object]) -> None:
    with pytest.raises(WireError, match="alerts"):
        restored(broken)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ratio", 0.0),
        ("ratio", float("inf")),
        ("mode", "\ud800"),
        ("old_driver", "\ud800"),
    ],
)
def test_a_state_that_nobody_could_be_told_of_is_damaged(field: str, value: object) -> None:
    text = json.dumps(saved(told()))
    put = f'"{field}": {json.dumps(value)}'
    spoilt = re.sub(rf'"{field}": ("[^"]*"|[0-9.]+)', lambda _: put, text)
    assert spoilt != text
    with pytest.raises(WireError, match="damaged"):
        restored(json.loads(spoilt))


def test_a_suspect_that_could_never_be_weighed_is_damage() -> None:
    text = json.dumps(saved(kept([found()]))).replace('"ratio": 1.12', '"ratio": 0.0')
    with pytest.raises(WireError, match="damaged"):
        restored(json.loads(text))


def test_a_case_of_nothing_and_one_with_foreign_types_are_damage() -> None:
    for field, value in (("found", []), ("starts_s", "now"), ("labels", 3)):
        state = saved(told())
        state["cases"][0][field] = value
        with pytest.raises(WireError, match="damaged"):
            restored(state)
