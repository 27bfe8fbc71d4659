"""Traces of known faults in the kernel's log, on single lines and on frames of many records."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.known_issues.catalogue import TextOrigin, catalogue
from gpud.known_issues.matching import LONGEST_TEXT, patterns
from gpud.root.dxg import FRAME_S, LONGEST_FRAME, LONGEST_WORDS, KnownTraces, Line
from tests.known_issues.frames import CUT, FIELD_SPANNING, HANDLE_TABLE, HEALTHY, UVM

HANG = "a warning"
PATTERNS = {
    **patterns(catalogue(), TextOrigin.KERNEL_LOG),
    HANG: (re.compile("field-spanning write"),),
}
BOOT_S = 1_700_000_000.0
VA = "misc dxg: dxgk: dxgkio_reserve_gpu_va: Ioctl failed: -75"


def traces(*lines: str, at_s: float = 90.0, settled_s: float = 900.0) -> KnownTraces:
    known = KnownTraces(PATTERNS)
    for line in lines:
        known.take(Line(at_s, line), BOOT_S + at_s)
    known.settle(settled_s)
    return known


def counts(known: KnownTraces) -> dict[str, int]:
    return {entry: trace.count for entry, trace in known.found.items()}


def test_line_is_counted_for_its_entry_with_words_and_moment() -> None:
    known = traces("EXT4-fs: mounted", VA, VA)
    assert list(known.found) == ["wsl-41176-va-75"]
    trace = known.found["wsl-41176-va-75"]
    assert (trace.count, trace.words, trace.at_s) == (2, VA, BOOT_S + 90.0)


def test_frame_of_a_warning_is_one_trace() -> None:
    known = traces(*HEALTHY, *HEALTHY)
    assert counts(known) == {HANG: 2}
    assert known.found[HANG].words == FIELD_SPANNING


def test_frame_of_an_oops_is_known_by_a_function_within_it() -> None:
    known = traces(*HANDLE_TABLE)
    assert counts(known) == {"wsl-12476-hmgrtable-panic": 1}
    assert known.found["wsl-12476-hmgrtable-panic"].words == HANDLE_TABLE[4]


def test_pattern_that_needs_two_records_of_a_frame_matches_the_frame() -> None:
    oops = "ublue-1895-uvm"
    assert not any(pattern.search(line) for pattern in PATTERNS[oops] for line in UVM)
    assert counts(traces(*UVM)) == {oops: 1}
    elsewhere = (line.replace(" [nvidia_uvm]", " [snd_hda_codec]") for line in UVM)
    assert counts(traces(*elsewhere)) == {}


def test_what_is_written_after_the_end_of_a_frame_is_a_line_again() -> None:
    assert counts(traces(*HEALTHY, VA, VA)) == {HANG: 1, "wsl-41176-va-75": 2}


def test_frame_without_its_end_is_over_after_a_while() -> None:
    unfinished = HEALTHY[:4]
    known = traces(*unfinished, at_s=10.0, settled_s=10.0 + FRAME_S)
    assert counts(known) == {}
    known.settle(10.0 + FRAME_S + 0.1)
    assert counts(known) == {HANG: 1}
    late = traces(*unfinished, at_s=10.0, settled_s=10.0)
    late.take(Line(10.0 + FRAME_S + 0.1, VA), BOOT_S)
    assert counts(late) == {HANG: 1, "wsl-41176-va-75": 1}


def test_frame_that_begins_within_another_ends_that() -> None:
    assert counts(traces(*HEALTHY[:4], *HANDLE_TABLE[:-1], HANDLE_TABLE[-1])) == {
        HANG: 1,
        "wsl-12476-hmgrtable-panic": 1,
    }
    assert counts(traces(*HEALTHY[:4], *HEALTHY)) == {HANG: 2}


def test_frame_is_read_up_to_its_longest() -> None:
    filler = ("R08: " + "0" * 95,) * (LONGEST_FRAME // 100 + 1)
    assert counts(traces(CUT, *filler, HANDLE_TABLE[4], HANDLE_TABLE[-1])) == {}
    assert counts(traces(CUT, HANDLE_TABLE[4], *filler, HANDLE_TABLE[-1])) != {}


def test_every_frame_of_a_flood_is_counted() -> None:
    assert counts(traces(*HEALTHY * 25)) == {HANG: 25}


def test_trace_of_a_line_without_a_moment_has_none() -> None:
    known = KnownTraces(PATTERNS)
    for line in (VA, *HEALTHY):
        known.take(Line(90.0, line), None)
    assert {entry: trace.at_s for entry, trace in known.found.items()} == {
        "wsl-41176-va-75": None,
        HANG: None,
    }


@pytest.mark.parametrize("line", [f"{'x' * LONGEST_TEXT}{VA}", CUT, HEALTHY[-1], "BUG", ""])
def test_what_matches_nothing_leaves_nothing(line: str) -> None:
    assert counts(traces(line)) == {}


def test_words_are_harmless_and_short() -> None:
    known = traces(f"\x1b[31m\u202e{VA}{'y' * 300}")
    (trace,) = known.found.values()
    assert "\x1b" not in trace.words
    assert "\u202e" not in trace.words
    assert len(trace.words) == LONGEST_WORDS


@given(st.lists(st.one_of(st.text(max_size=80), st.sampled_from([CUT, *HEALTHY, *UVM, VA]))))
def test_no_order_of_lines_is_too_strange(lines: list[str]) -> None:
    assert counts(traces(*lines)).get("wsl-41176-va-75", 0) <= lines.count(VA)
