"""Incidents of slowness: one for each cause, opened when it is sure, ended when it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.alerts import wording
from gpud.agent.alerts.slowdowns import AlarmFinding, Incident, Slowdowns
from gpud.agent.regression.detector import ChangeKind
from gpud.core.advice import Platform
from gpud.core.alerts import DRIVER_REGRESSION, SLOWDOWN, Alert, Cause, Severity
from gpud.core.sample import Unit
from tests.agent.alerts.alarms import GPUS, HOUR_S, NOW_S, UPDATE, alarm, finding, standing

if TYPE_CHECKING:
    from collections.abc import Iterable

MODES = ("submit", "roundtrip", "pipelined", "graph")
CALL = finding("call", alarm(ChangeKind.STEP, before=40e-9), probe="cpu_call", gpu=None)


def added(findings: Iterable[AlarmFinding], slowdowns: Slowdowns | None = None) -> Slowdowns:
    slowdowns = slowdowns or Slowdowns()
    for item in findings:
        slowdowns.add(item, NOW_S)
    return slowdowns


def confirmed(
    item: AlarmFinding | None = None, slowdowns: Slowdowns | None = None, at_s: float = NOW_S
) -> Slowdowns:
    """Add one stream's alarm, and a second window that agrees."""
    item = item or finding()
    slowdowns = added([item], slowdowns)
    others = [f.alarm for incident in slowdowns.incidents for f in incident.findings]
    still = standing(item.alarm, *others, judged=item.judged + item.alarm.samples)
    slowdowns.observe(item.key, still, at_s)
    return slowdowns


def alerts(slowdowns: Slowdowns) -> list[Alert]:
    return [
        wording.slowdown(i, GPUS, Platform.WSL2, machine=slowdowns.machine_slowed(i))
        for i in slowdowns.firing
    ]


def stored(slowdowns: Slowdowns) -> list[Incident]:
    """Write and read the state."""
    return msgspec.json.decode(msgspec.json.encode(slowdowns.incidents), type=list[Incident])


def of_update() -> list[AlarmFinding]:
    return [
        *(finding(mode, alarm(ratio=1.1 + number / 10)) for number, mode in enumerate(MODES)),
        finding("triad", alarm(ratio=0.9), probe="triad", unit=Unit.BYTES_PER_SECOND),
        finding("submit", gpu="GPU-2"),
        finding(
            "roundtrip", alarm(ChangeKind.STEP, since_s=NOW_S - 2 * HOUR_S, seq=2000), gpu="GPU-2"
        ),
    ]


def together() -> list[AlarmFinding]:
    return [
        finding(mode, alarm(ChangeKind.STEP, since_s=NOW_S - number * HOUR_S))
        for number, mode in enumerate(MODES[:3])
    ]


@given(st.permutations(of_update()), st.integers(0, 6))
def test_alarms_of_an_update_are_one_alert_in_any_order(
    findings: list[AlarmFinding], again: int
) -> None:
    slowdowns = added(findings)
    (alert,) = alerts(slowdowns)
    labels = {"kind": "driver", "old": "572.16", "new": "576.02"}
    assert (alert.name, alert.labels) == (DRIVER_REGRESSION, labels)
    assert {row.stream for row in alert.evidence} == {each.key for each in findings}
    before = stored(slowdowns)
    assert stored(added([findings[again]], slowdowns)) == before  # as a replay does


@given(st.permutations(together()))
def test_alarms_of_one_gpu_that_began_together_are_one_alert(findings: list[AlarmFinding]) -> None:
    (alert,) = alerts(added(findings))
    labels = alert.labels
    assert (alert.name, labels["kind"], labels["uuid"]) == (SLOWDOWN, "step", "GPU-1")
    assert len(alert.evidence) == 3


@given(st.permutations(of_update()))
def test_alert_ends_with_the_last_of_its_alarms(findings: list[AlarmFinding]) -> None:
    slowdowns = added(findings)
    for number, item in enumerate(findings):
        assert len(alerts(slowdowns)[0].evidence) == len(findings) - number
        slowdowns.forget(item.key, NOW_S + 60) if number % 2 else slowdowns.observe(
            item.key, standing(), NOW_S + 60
        )
    assert alerts(slowdowns) == []
    over = wording.slowdown(slowdowns.incidents[-1], GPUS, Platform.WSL2)
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
def test_no_two_firing_alerts_are_the_same_and_a_restart_keeps_all(
    findings: list[AlarmFinding], windows: list[bool]
) -> None:
    slowdowns = Slowdowns()
    for number, item in enumerate(findings):
        slowdowns.add(item, NOW_S + number)
        if windows[number]:
            slowdowns.observe(item.key, standing(seen=50, slowdown=9.9), NOW_S)
        firing = [alert.fingerprint for alert in alerts(slowdowns)]
        assert len(firing) == len(set(firing))
    assert stored(slowdowns) == slowdowns.incidents


def test_same_update_once_more_is_a_new_incident_with_the_old_fingerprint() -> None:
    slowdowns = confirmed()
    slowdowns.forget(finding().key, NOW_S + 60)
    confirmed(finding(item=alarm(seq=3000)), slowdowns, NOW_S + HOUR_S)
    old, new = (wording.slowdown(i, GPUS, Platform.WSL2) for i in slowdowns.incidents)
    assert old.fingerprint == new.fingerprint
    assert (old.ends_s, new.ends_s, new.starts_s) == (NOW_S + 60, None, NOW_S + HOUR_S)


def test_new_kernel_under_the_same_driver_is_no_driver_regression() -> None:
    kernel = (Cause("kernel", "6.6.75-microsoft", "6.6.87-microsoft"),)
    cpu = finding("call", probe="cpu_call", gpu=None, changed=kernel)
    (alert,) = alerts(added([finding(changed=kernel), cpu]))
    assert (alert.name, alert.labels["kind"], alert.labels["new"]) == (SLOWDOWN, "kernel", "6.6.87")
    assert "since kernel 6.6.75 -> 6.6.87 on GPU 0" in alert.summary
    assert "the CPU" in alert.summary


def second_window(slowdowns: Slowdowns) -> Slowdowns:
    still = standing(CALL.alarm, judged=1000 + CALL.alarm.samples)
    slowdowns.observe(CALL.key, still, NOW_S + HOUR_S)
    return slowdowns


@pytest.mark.parametrize("first", ["gpu", "cpu"])
def test_machine_that_became_slower_is_one_alert_and_two_gpus_are_two(first: str) -> None:
    if first == "gpu":
        slowdowns = second_window(added([CALL, *together()]))
    else:
        slowdowns = added(together(), second_window(added([CALL])))
    (alert,) = alerts(slowdowns)
    assert {row.stream.gpu for row in alert.evidence} == {None, "GPU-1"}
    assert "cpu" in {cause.kind for cause in alert.causes}
    others = [finding(mode, alarm(ChangeKind.STEP), gpu="GPU-2") for mode in MODES[:2]]
    assert len(alerts(added([*together(), *others]))) == 2


def test_cpu_that_slowed_at_the_time_of_an_update_is_a_cause_and_no_evidence() -> None:
    slowdowns = added([CALL], confirmed())
    assert "the CPU" not in alerts(slowdowns)[0].description
    second_window(slowdowns)
    (update,) = (alert for alert in alerts(slowdowns) if alert.name == DRIVER_REGRESSION)
    assert [row.stream.mode for row in update.evidence] == ["submit"]
    assert [cause.kind for cause in update.causes] == ["driver", "cpu"]
    assert "the CPU's probes slowed as well" in update.description


@pytest.mark.parametrize("left", ["576.02", "577.00"])
def test_driver_that_was_rolled_back_on_mains_is_not_blamed_on_battery(left: str) -> None:
    mains = finding()
    battery = msgspec.structs.replace(
        mains, key=msgspec.structs.replace(mains.key, on_battery=True)
    )
    better = alarm(
        ratio=0.89, worse=False, seq=2000, closes=(mains.alarm.seq,), drivers=(left, "572.16")
    )
    back = finding(item=better, changed=(Cause("driver_version", left, "572.16"),))
    assert len(alerts(added([mains, battery, back]))) == (0 if left == "576.02" else 1)


def test_next_update_is_an_alert_of_its_own() -> None:
    later = alarm(seq=3000, at_s=NOW_S + 9 * HOUR_S, since_s=NOW_S + 8 * HOUR_S)
    changed = (Cause("driver_version", "576.02", "580.1"),)
    slowdowns = confirmed(finding(item=later, changed=changed), confirmed())
    assert {alert.labels["new"] for alert in alerts(slowdowns)} == {"576.02", "580.1"}


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
def test_alarm_alone_is_a_suspect_whatever_happened_elsewhere(other: AlarmFinding) -> None:
    item = finding(item=alarm(ChangeKind.STEP))
    slowdowns = added([item, other])
    assert alerts(slowdowns) == []
    assert slowdowns.suspects[0].findings == [item]


@pytest.mark.parametrize("item", [finding(), finding(item=alarm(ChangeKind.DRIFT, ratio=1.2))])
def test_suspect_is_confirmed_when_a_second_window_has_half_of_the_shift(
    item: AlarmFinding,
) -> None:
    slowdowns, half = added([item]), item.slowdown**0.5
    for judged, slowdown, count in (
        (1024, half, 0),  # the window is as long as the first one, 25 samples
        (1025, half - 0.01, 0),
        (1049, half, 0),  # another window began
        (1050, half, 1),
    ):
        still = standing(item.alarm, judged=judged, slowdown=slowdown)
        slowdowns.observe(item.key, still, NOW_S + 60)
        assert len(alerts(slowdowns)) == count
    assert (alerts(slowdowns)[0].starts_s, slowdowns.suspects) == (NOW_S + 60, [])


def test_share_of_slow_samples_is_confirmed_by_being_open_still() -> None:
    item = finding(item=alarm(ChangeKind.SLOW_STATE, ratio=1.3))
    slowdowns = added([item])
    slowdowns.observe(item.key, standing(item.alarm, slowdown=1.0), NOW_S)
    assert "more often in a slow power state" in alerts(slowdowns)[0].summary


@pytest.mark.parametrize(
    "other",
    [finding("roundtrip"), finding(gpu="GPU-2"), finding("graph", alarm(ChangeKind.STEP))],
    ids=["of the update", "on another GPU", "a step at that time"],
)
def test_update_that_two_streams_show_is_an_alert_at_once(other: AlarmFinding) -> None:
    for findings in ([finding(), other], [other, finding()]):
        (alert,) = alerts(added(findings))
        assert (alert.name, len(alert.evidence)) == (DRIVER_REGRESSION, 2)


def test_update_that_costs_half_as_much_again_is_an_alert_at_once() -> None:
    assert alerts(added([finding(item=alarm(ratio=1.49))])) == []
    (alert,) = alerts(added([finding(item=alarm(ratio=1.5))]))
    assert alert.severity is Severity.CRITICAL
    rate = finding("triad", alarm(ratio=0.66), probe="triad", unit=Unit.BYTES_PER_SECOND)
    assert len(alerts(added([rate]))) == 1


def test_alarm_that_the_detector_no_longer_has_open_is_over() -> None:
    slowdowns = added([finding(), finding("graph")])
    revision = slowdowns.revision
    slowdowns.observe(finding().key, standing(seen=1024), NOW_S)  # it has not decided yet
    assert slowdowns.revision == revision
    slowdowns.observe(finding().key, standing(), NOW_S)
    assert [row.stream.mode for row in alerts(slowdowns)[0].evidence] == ["graph"]
    assert "1 more was slower and came back" in alerts(slowdowns)[0].description


def test_improvement_is_no_alert_and_ends_what_it_ends() -> None:
    better = alarm(ratio=0.89, seq=2000, worse=False, closes=(1024,), drivers=("576.02", "572.16"))
    slowdowns = added([finding(item=better)], confirmed())
    assert (len(slowdowns.incidents), slowdowns.firing) == (1, [])
    assert added([finding(item=better)]).incidents == []


def test_what_a_person_accepted_is_over_and_suspected_no_more() -> None:
    other = finding("graph", alarm(ChangeKind.STEP, since_s=NOW_S - 9 * HOUR_S), gpu="GPU-2")
    slowdowns = confirmed(finding(), added([other]))
    assert slowdowns.streams == {finding().key}
    for key in (finding().key, other.key):
        slowdowns.forget(key, NOW_S - 24 * HOUR_S)  # by a clock that was set back
    assert (alerts(slowdowns), slowdowns.suspects) == ([], [])
    assert slowdowns.incidents[0].ends_s == slowdowns.incidents[0].starts_s == NOW_S
