"""The report on a terminal: a kept copy of a month, within the width, and nothing in it steers."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud.report import text, words
from gpud.report.build import build
from gpud.report.rows import Rows
from tests.report import months

if TYPE_CHECKING:
    from gpud.report.model import Report

GOLDEN = Path(__file__).parents[1] / "golden/report.txt"


def shown(report: Report) -> list[str]:
    return [line for line, _ in text.lines(report, UTC)]


def test_a_month_reads_as_the_kept_copy_does(
    report: Report, request: pytest.FixtureRequest
) -> None:
    drawn = "\n".join([*shown(report), ""])
    drawn = drawn.replace(words.size(report.cost.file_bytes if report.cost else 0), "SIZE")
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(drawn)
    assert drawn == GOLDEN.read_text(), "pytest tests/report --update-golden rewrites it"


def test_no_line_is_wider_than_the_terminal_and_no_control_character_is_left(
    report: Report,
) -> None:
    lines = shown(report)
    assert max(map(len, lines)) <= text.WIDTH
    assert not any(character in "".join(lines) for character in "\x1b\u202e")


def test_the_copy_says_what_the_month_was_made_of(report: Report) -> None:
    drawn = " ".join(line.strip() for line in shown(report))
    for said in (
        f"submission latency +12 % (12.4 -> 13.9 µs) since driver {months.OLD} -> {months.NEW}",
        "driver 572.16 -> 576.02, CUDA 12.8 -> 12.9, kernel 6.6.75 -> 6.6.87",
        "regressed: 12 % slower",
        "no change seen",
        "worked under driver 572.16, failed",
        "x ptx_rejected",
        "7.0 days in one pause",
        "the machine was started anew",
    ):
        assert said in drawn


def test_an_empty_history_is_a_report_too() -> None:
    empty = build(Rows(), since_s=0.0, until_s=86400.0, file_bytes=0)
    assert shown(empty)[2] == "too little to say anything: no runs"
    assert len(shown(empty)) == 3


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(12.0, "12 s"), (90.0, "1.5 min"), (3 * 3600.0, "3.0 h"), (7 * 86400.0, "7.0 days")],
)
def test_durations_are_in_their_largest_unit(seconds: float, said: str) -> None:
    assert words.duration(seconds) == said


def test_gpus_of_one_name_are_told_apart() -> None:
    names = {"GPU-11111111-a": "RTX", "GPU-22222222-b": "RTX", "GPU-3": "other", "GPU-4": ""}
    assert words.place("GPU-11111111-a", names) == "RTX (GPU-11111111)"
    assert words.place("GPU-3", names) == "other"
    assert words.place("GPU-4", names) == "GPU-4"
    assert words.place(None, names) == "CPU"
