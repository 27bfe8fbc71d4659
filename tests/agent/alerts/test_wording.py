"""Texts of alerts, harmless, short and plain; and the document that a webhook gets."""

from __future__ import annotations

import json
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec import structs

from gpud import discovery
from gpud.agent.alerts import wording
from gpud.agent.alerts.functions import Lost, Subject, Why
from gpud.agent.alerts.message import MOST, Message, body, document, fingerprint, title
from gpud.agent.alerts.slowdowns import AlarmFinding, Slowdowns
from gpud.agent.alerts.wording import SUMMARY_LIMIT
from gpud.agent.regression.detector import ChangeKind, Effect
from gpud.agent.regression.evaluation import JUDGED
from gpud.agent.state import containers
from gpud.child import probes
from gpud.core.advice import Platform
from gpud.core.alerts import Alert, Cause, Severity
from gpud.core.health import Health, Level
from gpud.core.sample import Unit
from gpud.core.text import escaped
from gpud.words import WORDS
from tests.agent.alerts.alarms import GPUS, NOW_S, alarm, finding, grave
from tests.agent.alerts.telling import LOST, SLOW, ended, firing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


HOSTILE_TEXTS = (
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


def alerts(
    findings: Iterable[AlarmFinding], gpus: Mapping[str, str] = MappingProxyType(GPUS)
) -> list[Alert]:
    """Return the alerts that fire after these alarms."""
    slowdowns = Slowdowns()
    for number, item in enumerate(findings):
        slowdowns.add(item, NOW_S + number)
    return [wording.slowdown(incident, gpus, Platform.WSL2) for incident in slowdowns.firing]


def check_harmless(alert: Alert) -> None:
    assert alert.summary.replace("µ", "u").isascii()
    assert alert.summary.isprintable()
    assert len(alert.summary) <= SUMMARY_LIMIT
    texts = [alert.description, alert.fix or "", *alert.labels.values()]
    texts += [text for c in alert.causes for text in (c.old, c.new, c.detail) if text]
    for text in texts:
        assert escaped(text, lines=True) == text
        assert len(text) < 10_000
        text.encode()
    assert escaped(alert.fix or "") == (alert.fix or "")
    json.dumps(msgspec.to_builtins(alert)).encode()


@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=range(len(HOSTILE_TEXTS)))
def test_hostile_text_in_any_field_stays_harmless(text: str) -> None:
    hostile = Cause("driver_version", text, f"{text}!", text)
    update = [
        finding("submit", alarm(drivers=(text, text)), gpu=text, changed=(hostile,)),
        finding(text, alarm(), probe=text, changed=(hostile, Cause(text, text, text))),
        finding("graph", alarm(drivers=("1", text)), changed=()),
    ]
    steps = [
        finding(mode, alarm(ChangeKind.STEP, drivers=(text, text)), gpu=text, causes=(hostile,))
        for mode in ("submit", text)
    ]
    for findings in (update, steps):
        made = alerts(findings, {text: text, "GPU-1": text})
        assert made
        for alert in made:
            check_harmless(alert)


def test_words_are_of_modes_that_are_judged_and_no_two_modes_have_the_same() -> None:
    specs = [module.SPEC for module in discovery.modules(probes, ("SPEC",))[0].values()]
    judged = {(spec.name, mode) for spec in specs if spec.unit in JUDGED for mode in spec.modes}
    judged |= {(containers.PROBE, containers.MODE)}
    assert WORDS.keys() <= judged | {(probe, "") for probe, _ in judged}  # none is of no probe
    figures = [words for (_, mode), words in WORDS.items() if mode]
    assert len(set(figures)) == len(figures)
    assert all(words.isascii() for words in WORDS.values())


def moved(ratios: dict[str, float], gpu: str = "GPU-1") -> list[AlarmFinding]:
    return [finding(mode, alarm(ratio=ratio), gpu=gpu) for mode, ratio in ratios.items()]


def test_driver_regression_says_how_much_since_what_and_where() -> None:
    (alert,) = alerts(moved({"submit": 1.12, "graph": 1.05}))
    assert alert.summary == (
        "submission latency +12 % (12.4 -> 13.9 µs), graph launch +5 % since driver "
        "572.16 -> 576.02 on GPU 0 (NVIDIA GeForce RTX 4070)"
    )
    assert alert.severity is Severity.WARNING
    assert (
        "- GPU 0 (NVIDIA GeForce RTX 4070): submission latency 12.4 -> 13.9 µs, +12 % "
        "(+9.8 to +14.2 %), 25 samples against 1000 before"
    ) in alert.description.splitlines()
    assert "Roll Back Driver" in (alert.fix or "")
    assert (alert.fix or "").endswith(f"`gpud baseline accept {alert.fingerprint[:8]}`")


UPDATED = "since driver 572.16 -> 576.02 on GPU 0 (NVIDIA GeForce RTX 4070)"
MEMORY = {"probe": "triad", "unit": Unit.BYTES_PER_SECOND}
SM_CLOCK = (("2398 MHz", "1899 MHz"), ("2403 MHz", "1892 MHz"))
SUMMARIES: dict[str, tuple[list[AlarmFinding], str]] = {
    "the worst of many, and how many more": (
        moved({"submit": 1.1, "roundtrip": 1.3, "graph": 1.2, "pipelined": 1.12, "x": 1.4}),
        "launch x +40 % (12.4 -> 17.4 µs), launch round trip +30 %, graph launch +20 % and 2 more "
        + UPDATED,
    ),
    "the simplest of figures that moved alike": (
        moved({"pipelined_cold": 1.13, "graph": 1.07, "submit": 1.12}),
        (
            "submission latency +12 % (12.4 -> 13.9 µs), launches in a row after idling +13 %, "
            f"graph launch +7 % {UPDATED}"
        ),
    ),
    "a rate that fell": (
        [finding("triad", alarm(ratio=0.6, before=460e9), **MEMORY)],  # type: ignore[arg-type]
        f"GPU memory bandwidth -40 % (460 -> 276 GB/s) {UPDATED}",
    ),
    "a figure that moved again, once": (
        [grave(), *(finding(item=alarm(ratio=r, seq=s)) for s, r in ((2000, 1.7), (2100, 1.2)))],
        f"submission latency +70 % (12.4 -> 21.1 µs) {UPDATED}",
    ),
    "how it came, and the cause, which two streams measured a little differently": (
        [
            finding(
                probe,
                alarm(ChangeKind.DRIFT, 0.8, before=2e13),
                probe=probe,
                unit=Unit.FLOPS_PER_SECOND,
                causes=(Cause("sm_clock", *pair),),
            )
            for probe, pair in zip(("matmul", "nbody"), SM_CLOCK, strict=True)
        ],
        (
            "matrix product -20 % (20 -> 16 Tflop/s), arithmetic (n-body) -20 % since "
            "2025-11-13 01:48 UTC, little by little, driver 576.02 on GPU 0 "
            "(NVIDIA GeForce RTX 4070); SM clock 2398 MHz -> 1899 MHz"
        ),
    ),
}


@pytest.mark.parametrize(("findings", "summary"), SUMMARIES.values(), ids=SUMMARIES.keys())
def test_summary_says_what_moved_how_much_since_when_and_where(
    findings: list[AlarmFinding], summary: str
) -> None:
    (alert,) = alerts(findings)
    assert alert.summary == summary
    assert all(row.low < row.slowdown < row.high for row in alert.evidence)
    assert len(alert.causes) == 1


def test_most_certain_figure_leads_the_summary() -> None:
    noisy = replace(alarm(ratio=2.22), effect=Effect(2.22, 1.93, 2.56))
    sure = replace(alarm(ratio=1.145), effect=Effect(1.145, 1.144, 1.146))
    weaker = replace(alarm(ratio=1.11), effect=Effect(1.11, 1.10, 1.12))
    modes = {"pipelined_cold": noisy, "roundtrip": weaker, "submit": sure}
    (alert,) = alerts([finding(mode, each) for mode, each in modes.items()])
    assert alert.summary.startswith(
        "submission latency +15 % (12.4 -> 14.2 µs), launch round trip +11 %, "
        "launches in a row after idling +122 % since driver"
    )
    assert [row.stream.mode for row in alert.evidence] == ["submit", "roundtrip", "pipelined_cold"]


def test_summary_that_grows_too_long_drops_the_least_important_first() -> None:
    long = "NVIDIA " + "X" * 150
    both = [item for gpu in GPUS for item in moved({"submit": 1.12, "graph": 1.12}, gpu)]
    (alert,) = alerts(both, {"GPU-1": f"GPU 0 ({long})", "GPU-2": f"GPU 1 ({long})"})
    first = "submission latency +12 % (12.4 -> 13.9 µs)"
    assert alert.summary == f"{first} since driver 572.16 -> 576.02"


def test_lost_function_is_written_with_both_drivers_its_reason_and_the_way_back() -> None:
    why = Why("init_failed", "cuInit says no", "mend it")
    alert = wording.lost(Lost(Subject("cuda"), "572.16", "576.02", why, 0.0), {}, Platform.WSL2)
    assert alert.summary == "CUDA no longer works since driver 572.16 -> 576.02: cuInit says no"
    assert alert.labels == {"kind": "cuda", "old": "572.16", "new": "576.02"}
    assert (alert.fix or "").startswith("mend it; to go back to driver 572.16 in Windows")
    assert [(cause.old, cause.new) for cause in alert.causes] == [("572.16", "576.02")]


@pytest.mark.parametrize(
    ("subject", "drivers", "summary"),
    [
        (
            Subject("nvml"),
            ("572.16", None),
            "NVML, the GPU's telemetry, no longer works, last under driver 572.16: x",
        ),
        (
            Subject("cuda", "GPU-1"),
            ("572.16", "572.16"),
            f"CUDA on {GPUS['GPU-1']} no longer works under driver 572.16: x",
        ),
        (Subject("container"), (None, "576.02"), "the GPU in containers no longer works: x"),
    ],
)
def test_lost_function_names_the_drivers_that_are_known(
    subject: Subject, drivers: tuple[str | None, str | None], summary: str
) -> None:
    alert = wording.lost(Lost(subject, *drivers, Why("x"), 0.0), GPUS, Platform.LINUX)
    assert (alert.summary, alert.causes) == (summary, ())


def test_failed_component_is_one_harmless_line_with_the_fix() -> None:
    failed = Health(Level.FAILED, "down", "the \x1b[31mdisk\nis full", "free it")
    alert = wording.unwell("store", failed, 5.0)
    assert alert.summary == "store has failed: the \\x1b[31mdisk\\x0ais full"
    assert (alert.fix, alert.labels) == ("free it", {"component": "store"})
    alert = wording.unwell("x", Health(Level.FAILED), 5.0)
    assert alert.summary == "x has failed: it does not say why"


def test_fix_is_written_for_the_machine_and_ends_with_how_to_accept() -> None:
    driver = (Cause("driver", "572.16", "576.02"),)
    assert "Roll Back Driver" in wording.fix(driver, Platform.WSL2, "")
    on_linux = wording.fix(driver, Platform.LINUX, "0123abcd")
    assert on_linux.startswith("to go back, install the driver's packages of 572.16")
    both = (*driver, Cause("cpu"))
    assert wording.fix(both, Platform.WSL2, "").startswith("first look at what else runs")
    kernel = (Cause("kernel", "6.6.75", "6.6.87"),)
    assert "wsl --update" in wording.fix(kernel, Platform.WSL2, "")
    assert "wsl" not in wording.fix(kernel, Platform.LINUX, "")
    for kind in ("driver", "power_limit", "thermal", "cpu", "nothing", "python"):
        fix = wording.fix((Cause(kind, "1", "2"),), Platform.WSL2, "0123abcd")
        assert fix.endswith("`gpud baseline accept 0123abcd`")


URL = "http://127.0.0.1:9945"


def of(message: Message, host: str = "ada") -> dict[str, Any]:
    return document(message, host=host, receiver="gpud-webhook", url=URL)


def test_title_says_how_bad_how_many_and_where() -> None:
    assert title(firing(SLOW)) == "gpud: warning"
    assert title(firing(SLOW, LOST), "ada") == "gpud on ada: 2 alerts"
    over = ended(SLOW, SLOW.starts_s + 1)
    assert title(Message((), (over,)), "a\x1bb") == "gpud on a\\x1bb: resolved"


def test_body_says_what_and_what_to_do() -> None:
    message = Message((SLOW,), (ended(LOST, LOST.starts_s + 1),))
    assert body(message, details=False) == f"{SLOW.summary}\nresolved: {LOST.summary}"
    assert body(message) == (
        f"{SLOW.summary}\n{SLOW.description}\nFix: {SLOW.fix}\n\nresolved: {LOST.summary}"
    )


def test_group_is_the_machine_and_has_all_that_fires() -> None:
    over = ended(LOST, LOST.starts_s + 3600.25)
    content = of(Message((), (over,), (SLOW,)))
    assert content["status"] == "firing"  # not over for a receiver that goes by the group
    assert content["groupKey"] == '{}:{instance="ada"}'
    first, second = content["alerts"]
    assert (first["status"], first["endsAt"]) == ("firing", "0001-01-01T00:00:00Z")
    assert (second["status"], second["endsAt"]) == ("resolved", "2026-09-21T15:13:50.25Z")


def test_alerts_that_do_not_fit_are_counted() -> None:
    many = [structs.replace(SLOW, labels={"gpu": str(number)}) for number in range(MOST + 5)]
    content = of(firing(*many))
    assert (len(content["alerts"]), content["truncatedAlerts"]) == (MOST, 5)


def test_fingerprint_is_prometheus_own() -> None:
    # Source: prometheus/common, model/fnv.go: the hash of no label at all is FNV-1a's offset.
    assert fingerprint({}) == "cbf29ce484222325"
