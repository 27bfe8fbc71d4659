"""Incidents of slowness: one for each cause, opened when it is sure, ended when it is over."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.alerts import wording
from gpud.agent.alerts.slowdowns import Finding, Incident, Slowdowns, Suspect
from gpud.agent.regression.detector import ChangeKind
from gpud.core.advice import Platform
from gpud.core.alerts import DRIVER_REGRESSION, SLOWDOWN, Alert, Cause, Severity
from gpud.core.sample import Unit
from tests.agent.alerts.alarms import GPUS, HOUR_S, NOW_S, UPDATE, alarm, finding, standing

if TYPE_CHECKING:
    from collections.abc import Iterable

MODES = ("submit", "roundtrip", "pipelined", "graph")


def added(findings: Iterable[Finding], before: Slowdowns | None = None) -> Slowdowns:
    known = before or Slowdowns()
    for one in findings:
        known.add(one, NOW_S)
    return known


def confirmed(
    one: Finding | None = None, before: Slowdowns | None = None, at_s: float = NOW_S
) -> Slowdowns:
    """Add one stream's alarm, and a second window that agrees."""
    one = one or finding()
    known = added([one], before)
    open_still = [other.alarm for incident in known.incidents for other in incident.open]
    still = standing(one.alarm, *open_still, judged=one.judged + one.alarm.samples)
    known.observe(one.key, still, at_s)
    return known


def alerts(known: Slowdowns) -> list[Alert]:
    return [wording.slowdown(one, GPUS, Platform.WSL2) for one in known.incidents if one.firing]


def stored(known: Slowdowns) -> tuple[list[Incident], list[Suspect]]:
    """Write and read the state."""
    text = msgspec.json.encode((known.incidents, known.suspects))
    return msgspec.json.decode(text, type=tuple[list[Incident], list[Suspect]])


def of_update() -> list[Finding]:
    return [
        *(finding(mode, alarm(ratio=1.1 + number / 10)) for number, mode in enumerate(MODES)),
        finding("triad", alarm(ratio=0.9), probe="triad", unit=Unit.BYTES_PER_SECOND),
        finding("submit", gpu="GPU-2"),
        finding(
            "roundtrip", alarm(ChangeKind.STEP, since_s=NOW_S - 2 * HOUR_S, seq=2000), gpu="GPU-2"
        ),
    ]


def together() -> list[Finding]:
    return [
        finding(mode, alarm(ChangeKind.STEP, since_s=NOW_S - number * HOUR_S))
        for number, mode in enumerate(MODES[:3])
    ]


@given(st.permutations(of_update()), st.integers(0, 6))
def test_alarms_of_an_update_are_one_alert_in_any_order(
    findings: list[Finding], again: int
) -> None:
    known = added(findings)
    (one,) = alerts(known)
    labels = {"kind": "driver", "old": "572.16", "new": "576.02"}
    assert (one.name, one.labels) == (DRIVER_REGRESSION, labels)
    assert {row.stream for row in one.evidence} == {each.key for each in findings}
    before = stored(known)
    assert stored(added([findings[again]], known)) == before  # as a replay does


@given(st.permutations(together()))
def test_alarms_of_one_gpu_that_began_together_are_one_alert(findings: list[Finding]) -> None:
    (one,) = alerts(added(findings))
    assert (one.name, one.labels["kind"], one.labels["uuid"]) == (SLOWDOWN, "step", "GPU-1")
    assert len(one.evidence) == 3


@given(st.permutations(of_update()))
def test_an_alert_ends_with_the_last_of_its_alarms(findings: list[Finding]) -> None:
    known = added(findings)
    for number, one in enumerate(findings):
        assert len(alerts(known)[0].evidence) == len(findings) - number
        known.close(one.key, [one.alarm.seq], NOW_S + 60)
    assert alerts(known) == []
    over = wording.slowdown(known.incidents[-1], GPUS, Platform.WSL2)
    assert (over.ends_s, len(over.evidence)) == (NOW_S + 60, len(findings))


@given(
    st.lists(
        st.builds(
            finding,
            st.sampled_from(MODES),
            st.builds(
                alarm,
                st.sampled_from(ChangeKind),
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
def test_no_two_alerts_that_fire_are_the_same_and_a_restart_keeps_all(
    findings: list[Finding], windows: list[bool]
) -> None:
    known = Slowdowns()
    for number, one in enumerate(findings):
        known.add(one, NOW_S + number)
        if windows[number]:
            known.observe(one.key, standing(seen=50, slowdown=9.9), NOW_S)
        firing = [alert.fingerprint for alert in alerts(known)]
        assert len(firing) == len(set(firing))
    assert stored(known) == (known.incidents, known.suspects)


def test_a_new_kernel_under_the_same_driver_is_no_driver_regression() -> None:
    kernel = (Cause("kernel", "6.6.75-microsoft", "6.6.87-microsoft"),)
    cpu = finding("call", probe="cpu_call", gpu=None, changed=kernel)
    (one,) = alerts(added([finding(changed=kernel), cpu]))
    assert (one.name, one.labels["kind"], one.labels["new"]) == (SLOWDOWN, "kernel", "6.6.87")
    assert "since kernel 6.6.75 -> 6.6.87 on GPU 0" in one.summary
    assert "the CPU" in one.summary


CALL = finding("call", alarm(ChangeKind.STEP, before=40e-9), probe="cpu_call", gpu=None)


def second_window(known: Slowdowns) -> Slowdowns:
    still = standing(CALL.alarm, judged=1000 + CALL.alarm.samples)
    known.observe(CALL.key, still, NOW_S + HOUR_S)
    return known


@pytest.mark.parametrize("first", ["gpu", "cpu"])
def test_a_machine_that_became_slower_is_one_alert_and_two_gpus_are_two(first: str) -> None:
    if first == "gpu":
        known = second_window(added([CALL, *together()]))
    else:
        known = added(together(), second_window(added([CALL])))
    (one,) = alerts(known)
    assert {row.stream.gpu for row in one.evidence} == {None, "GPU-1"}
    others = [finding(mode, alarm(ChangeKind.STEP), gpu="GPU-2") for mode in MODES[:2]]
    assert len(alerts(added([*together(), *others]))) == 2


def test_a_cpu_that_slowed_at_the_time_of_an_update_is_a_cause_and_no_evidence() -> None:
    known = confirmed()
    assert "the CPU" not in alerts(known)[0].description
    added([CALL], known)
    assert [one.finding for one in known.suspects] == [CALL]
    second_window(known)
    (update,) = (one for one in alerts(known) if one.name == DRIVER_REGRESSION)
    assert [row.stream.mode for row in update.evidence] == ["submit"]
    assert [cause.kind for cause in update.causes] == ["driver", "cpu"]
    assert "the CPU's probes slowed as well" in update.description


@pytest.mark.parametrize("left", ["576.02", "577.00"])
def test_a_driver_that_was_rolled_back_on_mains_is_not_blamed_on_battery(left: str) -> None:
    mains = finding()
    battery = msgspec.structs.replace(mains, key=replace(mains.key, on_battery=True))
    better = alarm(
        ratio=0.89, worse=False, seq=2000, closes=(mains.alarm.seq,), drivers=(left, "572.16")
    )
    back = finding(one=better, changed=(Cause("driver_version", left, "572.16"),))
    known = added([mains, battery, back])
    assert len(alerts(known)) == (0 if left == "576.02" else 1)


def test_streams_that_skipped_a_driver_join_the_same_update() -> None:
    skipped = (Cause("driver_version", "566.36", "576.02"),)
    (one,) = alerts(added([finding(), finding("graph", changed=skipped)]))
    assert (one.labels["old"], len(one.evidence)) == ("572.16", 2)


def test_the_next_update_is_an_alert_of_its_own() -> None:
    later = alarm(seq=3000, at_s=NOW_S + 9 * HOUR_S, since_s=NOW_S + 8 * HOUR_S)
    changed = (Cause("driver_version", "576.02", "580.1"),)
    known = confirmed(finding(one=later, changed=changed), confirmed())
    assert {one.labels["new"] for one in alerts(known)} == {"576.02", "580.1"}


@pytest.mark.parametrize(
    "other",
    [
        finding("roundtrip", alarm(ChangeKind.STEP), gpu="GPU-2"),
        finding(
            "roundtrip",
            alarm(ChangeKind.STEP, since_s=NOW_S - 99 * HOUR_S, at_s=NOW_S - 90 * HOUR_S),
        ),
        finding("roundtrip", alarm(ChangeKind.STEP, worse=False, ratio=0.9)),
    ],
    ids=["of another GPU", "of another day", "of an improvement"],
)
def test_an_alarm_alone_is_a_suspect_whatever_happened_elsewhere(other: Finding) -> None:
    one = finding(one=alarm(ChangeKind.STEP))
    known = added([one, other])
    assert alerts(known) == []
    assert known.suspects[0].finding == one


@pytest.mark.parametrize("one", [finding(), finding(one=alarm(ChangeKind.DRIFT, ratio=1.2))])
def test_a_suspect_is_confirmed_when_a_second_window_has_half_of_the_shift(one: Finding) -> None:
    known, half = added([one]), one.slowdown**0.5
    known.observe(one.key, standing(one.alarm, judged=1024, slowdown=half), NOW_S)
    assert alerts(known) == []  # the window is as long as the first one, 25 samples
    known.observe(one.key, standing(one.alarm, judged=1025, slowdown=half - 0.01), NOW_S)
    assert alerts(known) == []
    known.observe(one.key, standing(one.alarm, judged=1049, slowdown=half), NOW_S)
    assert alerts(known) == []  # another window began
    known.observe(one.key, standing(one.alarm, judged=1050, slowdown=half), NOW_S + 60)
    (alert,) = alerts(known)
    assert (alert.labels["kind"], alert.starts_s, known.suspects) == (
        "driver" if one.alarm.kind is ChangeKind.DRIVER else "drift",
        NOW_S + 60,
        [],
    )


def test_a_share_of_slow_samples_is_confirmed_by_being_open_still() -> None:
    one = finding(one=alarm(ChangeKind.SLOW_STATE, ratio=1.3))
    known = added([one])
    known.observe(one.key, standing(one.alarm, slowdown=1.0), NOW_S)
    assert "more often in a slow power state" in alerts(known)[0].summary


@pytest.mark.parametrize(
    "other",
    [finding("roundtrip"), finding(gpu="GPU-2"), finding("graph", alarm(ChangeKind.STEP))],
    ids=["of the update", "on another GPU", "a step at that time"],
)
def test_an_update_that_two_streams_show_is_an_alert_at_once(other: Finding) -> None:
    for findings in ([finding(), other], [other, finding()]):
        (one,) = alerts(added(findings))
        assert (one.name, len(one.evidence)) == (DRIVER_REGRESSION, 2)


def test_an_update_that_costs_half_as_much_again_is_an_alert_at_once() -> None:
    assert alerts(added([finding(one=alarm(ratio=1.49))])) == []
    (one,) = alerts(added([finding(one=alarm(ratio=1.5))]))
    assert one.severity is Severity.CRITICAL
    rate = finding("triad", alarm(ratio=0.66), probe="triad", unit=Unit.BYTES_PER_SECOND)
    assert len(alerts(added([rate]))) == 1


def test_an_alarm_that_the_detector_does_not_hold_open_is_over() -> None:
    known = added([finding(), finding("graph")])
    revision = known.revision
    known.observe(finding().key, standing(seen=1024), NOW_S)  # it has not decided yet
    assert known.revision == revision
    known.observe(finding().key, standing(), NOW_S)
    assert [row.stream.mode for row in alerts(known)[0].evidence] == ["graph"]
    suspect = added([finding(one=alarm(ChangeKind.STEP))])
    suspect.observe(finding().key, standing(), NOW_S)
    assert suspect.suspects == []


def test_an_improvement_is_no_alert_and_ends_what_it_ends() -> None:
    better = alarm(ratio=0.89, seq=2000, worse=False, closes=(1024,), drivers=("576.02", "572.16"))
    known = added([finding(one=better)], confirmed())
    assert [one.firing for one in known.incidents] == [False]
    assert added([finding(one=better)]).incidents == []


def test_the_same_update_once_more_is_a_new_incident_with_the_old_fingerprint() -> None:
    known = confirmed()
    known.close(finding().key, [1024], NOW_S + HOUR_S)
    confirmed(finding(one=alarm(seq=4000)), known, NOW_S + 2 * HOUR_S)
    first, second = known.incidents
    assert first.fingerprint == second.fingerprint
    assert (first.firing, second.firing) == (False, True)


def test_what_a_person_accepted_is_over_and_suspected_no_more() -> None:
    other = finding("graph", alarm(ChangeKind.STEP, since_s=NOW_S - 9 * HOUR_S), gpu="GPU-2")
    known = confirmed(finding(), added([other]))
    assert known.streams == {finding().key}
    for key in (finding().key, other.key):
        known.forget(key, NOW_S - 24 * HOUR_S)  # by a clock that was set back
    assert (alerts(known), known.suspects) == ([], [])
    assert known.incidents[0].ends_s == known.incidents[0].starts_s == NOW_S


def test_an_acknowledgement_is_kept_whatever_joins() -> None:
    known = confirmed()
    known.acknowledge("0" * 16, NOW_S + 4)
    known.acknowledge(known.incidents[0].fingerprint, NOW_S + 5)
    known.acknowledge(known.incidents[0].fingerprint, NOW_S + 9)
    added([finding("graph")], known)
    assert [one.acknowledged_s for one in alerts(known)] == [NOW_S + 5]


def test_a_stream_that_comes_and_goes_for_years_makes_no_alert_grow_for_ever() -> None:
    slower = finding("graph", alarm(ChangeKind.STEP))
    known = added([finding(one=alarm(seq=9999)), slower])
    known.close(finding().key, [9999], NOW_S)
    for seq in range(500):
        added([finding(one=alarm(seq=seq))], known)
        known.close(finding().key, [seq], NOW_S)
    (incident,) = known.incidents
    assert len(incident.findings) < 100
    assert incident.open == [slower]


def test_what_was_found_before_the_past_was_read_joins_it() -> None:
    past = confirmed()
    past.acknowledge(past.incidents[0].fingerprint, NOW_S)
    own = added(
        [finding(), finding("graph"), finding("x", alarm(ChangeKind.STEP, since_s=0.0, at_s=9.0))]
    )
    own.resume(*stored(past))
    (one,) = alerts(own)
    assert (one.acknowledged_s, len(one.evidence), len(own.suspects)) == (NOW_S, 2, 1)
