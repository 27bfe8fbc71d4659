"""Words for figures beside their usual, and for probes that are skipped."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import convert

from gpud import words
from gpud.core.sample import Skip
from gpud.document.runs import StreamReport
from gpud.units import amount

EFFECT = {"ratio": 1.121, "low": 1.102, "high": 1.139}
DRIVER = {"kind": "driver", "new_driver": "572.16", "effect": EFFECT, "at_s": 60.0}
FELL = {"kind": "step", "new_driver": "572.16", "effect": {"ratio": 0.8, "low": 0.7, "high": 0.9}}


def stream(**fields: Any) -> StreamReport:
    return convert(
        {"level": 5e-6, "slowdown": 1.004, "seen": 7, "judged": 4, **fields}, StreamReport
    )


@pytest.mark.parametrize(
    ("judged", "much", "whole"),
    [
        (None, "", "not judged"),
        (stream(level=None), "", "learning what is usual, 4 of 8 runs so far"),
        (stream(slowdown=None), "", "learning what is usual, 4 of 8 runs so far"),
        (stream(level=None, judged=900), "", "learning what is usual, 900 runs so far"),
        (
            stream(level=None, judged=900, verdict={"state": "learning", "samples": 2}),
            "",
            "learning what is usual, 2 of 8 runs so far",
        ),
        (stream(), "as usual", "as usual"),
        (stream(slowdown=1.051), "5.1 % slower", "5.1 % slower than usual"),
        (stream(slowdown=0.9), "10 % faster", "10 % faster than usual"),
        (stream(slowdown=1.3, open=[DRIVER]), "12 % slower", "12 % slower since driver 572.16"),
        (stream(slowdown=1.0, open=[DRIVER, FELL]), "25 % slower", "25 % slower"),
        (stream(level=None, slowdown=None, open=[FELL]), "25 % slower", "25 % slower"),
    ],
)
def test_stream_stands_to_its_usual_in_words(
    judged: StreamReport | None, much: str, whole: str
) -> None:
    stands = words.standing(judged)
    assert (stands.much, stands.whole) == (much, whole)
    assert stands.fires == bool(judged and judged.open)


def test_every_reason_to_skip_a_run_has_words_for_people() -> None:
    assert set(words.BECAUSE) == set(Skip)
    assert words.because("boot_grace") == "WSL has just started"


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("pcie_sent_bytes_per_second", 2.5e6, "2.4 MiB/s"),
        ("memory_used_bytes", 2.5e6, "2.4 MiB"),
        ("fan_ratio", 0.3, "30 %"),
        ("energy_joules_total", 2.5e6, "2500 kJ"),
        ("pcie_replays_total", 3.0, "3"),
        ("pstate", 8.0, "P8"),
    ],
)
def test_value_of_telemetry_has_the_unit_of_its_field(field: str, value: float, shown: str) -> None:
    assert amount(value, field) == shown
