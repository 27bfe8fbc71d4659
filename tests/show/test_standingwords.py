"""How a figure stands: the words, and that one slowdown has one number wherever it is shown."""

from __future__ import annotations

import time
from typing import Any

import pytest
from msgspec import convert

from gpud.agent.state.status import document
from gpud.show import standingwords, status, stream_lines
from gpud.show.document import Stream, read
from gpud.show.headline import headline
from gpud.show.view import View, text
from tests import snapshots

EFFECT = {"ratio": 1.121, "low": 1.102, "high": 1.139}
DRIVER = {"kind": "driver", "new_driver": "572.16", "effect": EFFECT}
FELL = {"kind": "step", "new_driver": "572.16", "effect": {"ratio": 0.8, "low": 0.7, "high": 0.9}}


def stream(**said: Any) -> Stream:
    return convert({"level": 5e-6, "slowdown": 1.004, "seen": 7, **said}, Stream)


@pytest.mark.parametrize(
    ("known", "much", "whole"),
    [
        (None, "", "not judged"),
        (stream(level=None), "", "learning what is usual, 7 runs so far"),
        (stream(slowdown=None), "", "learning what is usual, 7 runs so far"),
        (stream(), "as usual", "as usual"),
        (stream(slowdown=1.051), "5.1 % slower", "5.1 % slower than usual"),
        (stream(slowdown=0.9), "10 % faster", "10 % faster than usual"),
        (stream(slowdown=1.3, open=[DRIVER]), "12 % slower", "12 % slower since driver 572.16"),
        (stream(slowdown=1.0, open=[DRIVER, FELL]), "25 % slower", "25 % slower"),
        (stream(level=None, slowdown=None, open=[FELL]), "25 % slower", "25 % slower"),
    ],
)
def test_a_figure_stands_to_what_is_usual_in_words(
    known: Stream | None, much: str, whole: str
) -> None:
    said = standingwords.standing(known)
    assert (said.much, said.whole) == (much, whole)
    assert said.fires == bool(known and known.open)


def test_a_last_run_that_differs_from_what_was_confirmed_is_told_beside_it() -> None:
    fires = stream(usual=14.2e-6, unit="seconds", open=[DRIVER | {"at_s": 60.0}])
    assert standingwords.standing(fires, 14.2e-6 * 1.13).now == ""
    said = standingwords.standing(fires, 14.2e-6 * 1.73)
    assert (said.much, said.at_s, said.now) == ("12 % slower", 60.0, "73 % slower")
    assert standingwords.standing(fires, 14.2e-6 * 1.01).now == "as usual"
    rate = stream(usual=400e9, unit="bytes_per_second", open=[FELL | {"at_s": 60.0}])
    assert standingwords.standing(rate, 320e9).now == ""
    assert standingwords.standing(rate, 200e9).now == "100 % slower"
    assert standingwords.standing(stream(usual=14.2e-6, unit="seconds"), 17e-6).now == ""


def test_a_status_row_says_of_which_runs_each_number_is() -> None:
    told = document(snapshots.full(), now=snapshots.NOW)
    (one,) = [each for each in told["streams"] if each["open"] and each["probe"] == "launch"]
    one["open"][0]["effect"] = {"ratio": 1.73, "low": 1.6, "high": 1.9}
    (run,) = [each for each in told["probes"] if each["probe"] == "launch"]
    run["flags"] = []
    (sample,) = [each for each in run["samples"] if each["mode"] == "submit"]
    sample["median"] = 1.13 * one["usual"]

    def row(width: int) -> str:
        drawn = status.drawn(read(told), snapshots.NOW.wall_s, View(width, 200))
        (found,) = [text(each) for each in drawn if text(each).startswith("  launch submit ")]
        return " ".join(found.split())

    at = time.strftime("%H:%M", time.localtime(one["open"][0]["at_s"]))
    assert f"usual 4.4 µs now 13 % slower, 73 % at {at}" in row(100)
    assert row(60).endswith(" now 13 % slower")
    one["open"][0]["at_s"] -= 3 * 86400.0
    day = time.strftime("%Y-%m-%d", time.localtime(one["open"][0]["at_s"]))
    assert f"now 13 % slower, 73 % on {day}" in row(100)


def test_one_slowdown_has_one_number_wherever_it_is_shown() -> None:
    told = document(snapshots.full(), now=snapshots.NOW)
    for one in told["streams"]:
        one["slowdown"] = 1.3  # the latest samples say something else, and so does the last run
    for failing in told["health"].values():
        failing["level"] = 0
    now_s = snapshots.NOW.wall_s
    shown = "\n".join(text(one) for one in status.drawn(read(told), now_s, View(80, 24)))
    (line,) = stream_lines.lines(read(told), now_s)[:1]
    assert "+12 %" in headline(read(told)).why
    assert ": 12 % (10.2-13.9 %) slower since driver" in line
    (row,) = [one for one in shown.splitlines() if one.startswith("  launch submit ")]
    assert "12 % slower" in row
    assert "30 % slower" not in row
