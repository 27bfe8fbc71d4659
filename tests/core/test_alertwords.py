"""What is said: harmless whatever a driver calls itself, short enough, and in people's words."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud import discovery
from gpud.child import probes
from gpud.core import containers, ledger, lostwords
from gpud.core.advice import Platform
from gpud.core.alerts import DRIVER_REGRESSION, Alert, Cause
from gpud.core.alertwords import SUMMARY
from gpud.core.contexts import FOLLOWERS
from gpud.core.detector import Effect, Kind
from gpud.core.errors import WireError
from gpud.core.functions import Lost
from gpud.core.ledger import Ledger
from gpud.core.ledger_state import body, restored, saved
from gpud.core.probewords import WORDS
from gpud.core.sample import Unit
from gpud.core.signs import Subject, Why
from gpud.core.streams import JUDGED
from gpud.core.text import escaped
from tests.core.findings import GPUS, NOW_S, alarm, found, grave

HOSTILE = (
    "x\n\x1b]0;y\x07\x1b[2J",
    "$(reboot) `reboot` ; reboot",
    "<script>alert(1)</script>",
    "\u202egpj.exe \u2066",
    "\x00\x00",
    "half \ud800 a character",
    "\U0001f4a9 \u00e4\u00f6 %s {0} {x}",
    "a" * 1_000_000,
    "\"quoted\" 'twice'",
)


def told(known: Ledger) -> list[Alert]:
    return [one for one in ledger.alerts(known, NOW_S) if one.firing]


def inert(one: Alert) -> None:
    assert one.summary.replace("µ", "u").isascii()
    assert one.summary.isprintable()
    assert len(one.summary) <= SUMMARY
    texts = [one.description, one.fix or "", *one.labels.values()]
    texts += [text for c in one.causes for text in (c.old, c.new, c.detail) if text]
    for text in texts:
        assert escaped(text, lines=True) == text
        assert len(text) < 10_000
        text.encode()
    assert escaped(one.fix or "") == (one.fix or "")
    json.dumps(body(one)).encode()


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_in_any_field_stays_inert_and_one_alert(text: str) -> None:
    hostile = Cause("driver_version", text, f"{text}!", text)
    known = Ledger(gpus={text: text, "GPU-1": text})
    alarms = [
        found("submit", alarm(drivers=(text, text)), gpu=text, changed=(hostile,)),
        found(text, alarm(), probe=text, changed=(hostile, Cause(text, text, text))),
        found("graph", alarm(drivers=("1", text)), changed=()),
    ]
    for one in alarms:
        known = ledger.with_alarm(known, one, NOW_S)
    for alert in told(known):
        inert(alert)
    steps = [
        found(mode, alarm(Kind.STEP, drivers=(text, text)), gpu=text, causes=(hostile,))
        for mode in ("submit", text)
    ]
    for one in steps:
        known = ledger.with_alarm(known, one, NOW_S)
    for alert in told(known):
        inert(alert)
    state = json.loads(json.dumps(saved(known)))
    if text.isascii() or text.encode(errors="replace").decode() == text:
        assert restored(state) == known
    else:  # half a character: nobody could be sent it
        with pytest.raises(WireError, match="damaged"):
            restored(state)


@given(st.text(), st.text(), st.text())
def test_whatever_a_loss_quotes_is_inert(one: str, other: str, detail: str) -> None:
    subject = Subject("probe", one, other)
    lost = Lost(subject, one, other, Why("hung", detail, detail), NOW_S)
    inert(lostwords.alert(lost, {one: detail}, Platform.WSL2))


def test_every_mode_that_is_judged_has_words_of_its_own() -> None:
    specs = [module.SPEC for module in discovery.modules(probes, ("SPEC",))[0].values()]
    judged = {(spec.name, mode) for spec in specs if spec.unit in JUDGED for mode in spec.modes}
    assert WORDS.keys() == judged | {(containers.PROBE, containers.MODE)}
    assert len(set(WORDS.values())) == len(WORDS)
    assert all(words.isascii() for words in WORDS.values())


def test_a_summary_of_many_names_the_worst_and_how_many_more() -> None:
    known = Ledger(gpus=GPUS)
    ratios = {"submit": 1.1, "roundtrip": 1.3, "graph": 1.2, "pipelined": 1.12, "x": 1.4}
    for mode, ratio in ratios.items():
        known = ledger.with_alarm(known, found(mode, alarm(ratio=ratio)), NOW_S)
    (one,) = told(known)
    assert one.summary == (
        "launch x +40 % (12.4 -> 17.4 µs), launch round trip +30 %, graph launch +20 % and 2 more "
        "since driver 572.16 -> 576.02 on GPU 0 (NVIDIA GeForce RTX 4070)"
    )


@pytest.mark.parametrize("kind", FOLLOWERS)
def test_a_driver_whose_version_nobody_names_is_a_driver_all_the_same(kind: str) -> None:
    changed = (Cause(kind, "old", "new"),)
    (one,) = told(ledger.with_alarm(Ledger(), found(one=alarm(ratio=1.6), changed=changed), NOW_S))
    assert one.name == DRIVER_REGRESSION
    assert "Roll Back Driver" in (one.fix or "")


def test_of_figures_that_moved_alike_the_simplest_is_named_first() -> None:
    moved = {"pipelined_cold": 1.13, "graph": 1.07, "submit": 1.12}
    known = Ledger(gpus=GPUS)
    for mode, ratio in moved.items():
        known = ledger.with_alarm(known, found(mode, alarm(ratio=ratio)), NOW_S)
    (one,) = told(known)
    assert one.summary == (
        "submission latency +12 % (12.4 -> 13.9 µs), launches in a row after idling +13 %, graph "
        "launch +7 % since driver 572.16 -> 576.02 on GPU 0 (NVIDIA GeForce RTX 4070)"
    )
    assert [each.stream.mode for each in one.evidence] == ["pipelined_cold", "submit", "graph"]


def test_the_surest_figure_leads_the_summary_and_the_widest_interval_does_not() -> None:
    noisy = replace(alarm(ratio=2.22), effect=Effect(2.22, 1.93, 2.56))
    sure = replace(alarm(ratio=1.145), effect=Effect(1.145, 1.144, 1.146))
    weaker = replace(alarm(ratio=1.11), effect=Effect(1.11, 1.10, 1.12))
    known = Ledger(gpus=GPUS)
    for mode, one in {"pipelined_cold": noisy, "roundtrip": weaker, "submit": sure}.items():
        known = ledger.with_alarm(known, found(mode, one), NOW_S)
    (one_alert,) = told(known)
    assert one_alert.summary.startswith(
        "submission latency +15 % (12.4 -> 14.2 µs), launch round trip +11 %, "
        "launches in a row after idling +122 % since driver"
    )
    modes = [each.stream.mode for each in one_alert.evidence]
    assert modes == ["submit", "roundtrip", "pipelined_cold"]


def test_a_summary_that_grows_too_long_leaves_the_least_out_first() -> None:
    long = "NVIDIA " + "X" * 150
    known = Ledger(gpus={"GPU-1": f"GPU 0 ({long})", "GPU-2": f"GPU 1 ({long})"})
    for gpu in ("GPU-1", "GPU-2"):
        for mode in ("submit", "graph"):
            known = ledger.with_alarm(known, found(mode, gpu=gpu), NOW_S)
    (one,) = told(known)
    first = "submission latency +12 % (12.4 -> 13.9 µs)"
    assert one.summary == f"{first} since driver 572.16 -> 576.02"


def test_a_slowdown_under_one_driver_says_how_it_came_and_what_may_be_why() -> None:
    known = Ledger(gpus=GPUS)
    why = (Cause("power_limit", "115 W", "80 W"), Cause("sm_clock", "2400 MHz", "1900 MHz"))
    for probe in ("matmul", "nbody"):
        slow = alarm(Kind.DRIFT, 0.8, before=2e13)
        one = found(probe, slow, probe=probe, unit=Unit.FLOPS_PER_SECOND, causes=why)
        known = ledger.with_alarm(known, one, NOW_S)
    (alert,) = told(known)
    assert alert.summary == (
        "matrix product -20 % (20 -> 16 Tflop/s), arithmetic (n-body) -20 % since "
        "2025-11-13 01:48 UTC, little by little, driver 576.02 on GPU 0 (NVIDIA GeForce RTX 4070); "
        "power limit 115 W -> 80 W"
    )
    assert alert.causes == why
    assert "- SM clock 2400 MHz -> 1900 MHz" in alert.description
    assert (alert.fix or "").startswith("look at the laptop's performance mode")


def test_what_two_streams_measured_a_little_differently_is_one_cause() -> None:
    clocks = (("2398 MHz", "1899 MHz"), ("2403 MHz", "1892 MHz"))
    both = [
        found(mode, alarm(Kind.STEP), causes=(Cause("sm_clock", *moved),))
        for mode, moved in zip(("submit", "graph"), clocks, strict=True)
    ]
    known = Ledger()
    for one in both:
        known = ledger.with_alarm(known, one, NOW_S)
    (shown,) = told(known)
    assert [cause.kind for cause in shown.causes] == ["sm_clock"]


def test_a_figure_that_moved_again_is_told_once_by_its_largest_move() -> None:
    known = ledger.with_alarm(Ledger(), grave(), NOW_S)
    for seq, ratio in ((2000, 1.7), (2100, 1.2)):
        again = found(one=alarm(ratio=ratio, seq=seq))
        known = ledger.with_alarm(known, again, NOW_S + seq)
    (one,) = told(known)
    assert [piece.slowdown for piece in one.evidence] == [pytest.approx(1.7)]
    assert one.summary.count("submission latency") == 1
