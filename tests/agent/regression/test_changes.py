"""What counts as a change: every story of facts, and the ones that happen to people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.regression.changes import (
    BOOT_ID,
    CUDA_VERSION,
    DRIVER_VERSION,
    GPUS,
    KINDS,
    LONGEST,
    Change,
    Fact,
    Known,
    changed,
    joined,
    real,
    recalled,
)

NVML, EXE, SMI, CUDA = 5, 4, 3, 2


class Story:
    """A machine that is looked at: each ``looks`` is one collection, a second after the last."""

    def __init__(self, known: Known | None = None) -> None:
        self.known = known or Known()
        self.changes: list[Change] = []
        self.now_s = 0.0

    def looks(self, times: int = 1, level: int = NVML, **facts: str | None) -> Story:
        for _ in range(times):
            self.now_s += 1
            said = {k: Fact(v, level, self.now_s) for k, v in facts.items() if v is not None}
            self.known, found = changed(self.known, said, self.now_s, "boot")
            self.changes += found
        return self

    def told(self, kind: str = DRIVER_VERSION) -> list[tuple[str | None, str]]:
        return [(change.old, change.new) for change in self.changes if change.kind == kind]


def test_the_first_sight_is_kept_and_is_no_change() -> None:
    story = Story().looks(2, driver_version="572.16")
    assert story.told() == [(None, "572.16")]
    assert real(story.changes) == ()


def test_a_driver_that_was_replaced_is_one_change_with_old_and_new() -> None:
    story = Story().looks(3, driver_version="572.16").looks(3, driver_version="576.02")
    assert story.told() == [(None, "572.16"), ("572.16", "576.02")]
    assert story.changes[-1] == Change(DRIVER_VERSION, "572.16", "576.02", 4.0, "boot", NVML)


def test_nonsense_that_shows_once_is_no_change() -> None:
    story = Story().looks(2, driver_version="572.16").looks(driver_version="0.0")
    assert story.looks(2, driver_version="572.16").told() == [(None, "572.16")]


def test_the_same_look_told_twice_is_one_look() -> None:
    known, found = changed(Known(), {DRIVER_VERSION: Fact("1.0", NVML, 7.0)}, 0.0, "boot")
    again, found_again = changed(known, {DRIVER_VERSION: Fact("1.0", NVML, 7.0)}, 0.0, "boot")
    assert (found, found_again, again.held) == ((), (), {})


def test_two_sources_that_say_it_once_each_are_no_source_that_says_it_twice() -> None:
    story = Story().looks(2, level=EXE, driver_version="572.16")
    story.looks(level=EXE, driver_version="576.02").looks(level=NVML, driver_version="576.02")
    assert story.told()[1:] == []
    assert story.looks(level=NVML, driver_version="576.02").told()[1:] == [("572.16", "576.02")]


def test_one_source_that_writes_another_number_means_another_driver() -> None:
    story = Story().looks(2, driver_version="572.16").looks(2, driver_version="572.160")
    assert story.told()[1:] == [("572.16", "572.160")]
    whole = Story().looks(2, level=EXE, driver_version="57").looks(2, driver_version="570")
    assert whole.told()[1:] == [("57", "570")]  # without a point a zero at the end counts


def test_what_nobody_says_is_no_change() -> None:
    story = Story().looks(2, driver_version="572.16").looks(5)
    assert story.looks(2, driver_version="572.16").told() == [(None, "572.16")]


def test_two_spellings_of_one_driver_do_not_flap() -> None:
    story = Story().looks(2, driver_version="572.16")
    for _ in range(3):
        story.looks(2, EXE, driver_version="572.160").looks(2, NVML, driver_version="572.16")
    assert story.told() == [(None, "572.16")]


def test_the_number_wsl_gives_its_own_library_does_not_pass_for_windows_driver() -> None:
    story = Story().looks(2, driver_version="595.71").looks(4, SMI, driver_version="595.45.03")
    assert story.looks(2, driver_version="595.71").told() == [(None, "595.71")]


def test_a_source_of_lower_rank_that_counts_alike_tells_of_a_replaced_driver() -> None:
    story = Story().looks(2, driver_version="572.16").looks(2, EXE, driver_version="576.02")
    assert story.looks(4, NVML, driver_version="576.02").told()[1:] == [("572.16", "576.02")]


def test_a_source_of_lower_rank_changes_nothing_else() -> None:
    story = Story().looks(2, cuda_version="12.8").looks(9, CUDA, cuda_version="12.6")
    assert story.looks(2, NVML, cuda_version="12.8").told(CUDA_VERSION) == [(None, "12.8")]


def test_a_source_of_higher_rank_is_believed() -> None:
    story = Story().looks(2, CUDA, cuda_version="12.6").looks(2, NVML, cuda_version="12.8")
    assert story.told(CUDA_VERSION)[-1] == ("12.6", "12.8")


def test_a_new_gpu_is_believed_at_once_and_a_lost_one_when_it_is_missed_twice() -> None:
    story = Story().looks(gpus="A").looks(gpus="A,B").looks(gpus="A")
    assert story.told(GPUS) == [(None, "A"), ("A", "A,B")]
    assert story.looks(gpus="A").told(GPUS)[-1] == ("A,B", "A")
    assert story.looks(2, gpus="").told(GPUS)[-1] == ("A", "")


def test_a_gpu_in_the_place_of_another_is_a_change_when_it_was_seen_twice() -> None:
    story = Story().looks(gpus="A").looks(gpus="B")
    assert story.told(GPUS) == [(None, "A")]
    assert story.looks(gpus="B").told(GPUS)[-1] == ("A", "B")


def test_what_cannot_change_while_gpud_runs_needs_no_second_look() -> None:
    known, found = changed(Known(), {BOOT_ID: Fact("one")}, 1.0, "one")
    assert [(change.old, change.new) for change in found] == [(None, "one")]
    assert changed(known, {BOOT_ID: Fact("one")}, 2.0, "one")[1] == ()


def test_a_fact_of_any_length_is_cut_and_still_one_fact() -> None:
    story = Story().looks(4, driver_version="9" * 2 * LONGEST)
    assert story.told() == [(None, "9" * LONGEST)]


@pytest.mark.parametrize(
    ("kept", "seen", "told"),
    [
        ("572.16", ["572.16"], []),
        ("572.16", ["576.02"], [("572.16", "576.02")]),
        ("572.16", ["572.16", "576.02"], [("572.16", "576.02")]),
        (None, ["572.16", "576.02"], [(None, "572.16"), ("572.16", "576.02")]),
        ("560.94", ["572.16", "576.02"], [("560.94", "572.16"), ("572.16", "576.02")]),
    ],
)
def test_what_was_seen_while_the_history_could_not_be_read_continues_it(
    kept: str | None, seen: list[str], told: list[tuple[str | None, str]]
) -> None:
    story = Story()
    for version in seen:
        story.looks(2, driver_version=version)
    last = {} if kept is None else {DRIVER_VERSION: Change(DRIVER_VERSION, None, kept, 0.0, "b", 5)}
    assert [(change.old, change.new) for change in joined(story.changes, last)] == told


def test_another_spelling_in_the_history_is_the_same_fact() -> None:
    last = {DRIVER_VERSION: Change(DRIVER_VERSION, None, "572.160", 0.0, "b", EXE)}
    story = Story().looks(2, driver_version="572.16").looks(2, driver_version="576.02")
    (change,) = joined(story.changes, last)
    assert (change.old, change.new) == ("572.160", "576.02")


VERSIONS = st.sampled_from(["572.16", "572.160", "576.02", "595.45.03", "12.8", "0", "540", "54"])
SETS = st.sets(st.sampled_from("ABC")).map(lambda found: ",".join(sorted(found)))


@st.composite
def looks(draw: st.DrawFn) -> list[dict[str, Fact]]:
    """Collections in order: of each kind nothing, or what a source of some level says of it."""
    story = []
    for at in range(draw(st.integers(0, 12))):
        said = {}
        for kind in draw(st.sets(st.sampled_from([DRIVER_VERSION, CUDA_VERSION, GPUS, BOOT_ID]))):
            text = draw(SETS if kind == GPUS else VERSIONS)
            look = None if kind == BOOT_ID else float(at // 2)  # some are told twice
            said[kind] = Fact(text, draw(st.sampled_from([CUDA, EXE, NVML])), look)
        story.append(said)
    return story


def replayed(story: list[dict[str, Fact]], known: Known) -> tuple[Known, list[Change]]:
    changes: list[Change] = []
    for at, said in enumerate(story):
        known, found = changed(known, said, float(at), "boot")
        changes += found
    return known, changes


def assert_one_chain(changes: list[Change], known: Known) -> None:
    for kind in KINDS:
        told = [change for change in changes if change.kind == kind]
        assert [change.old for change in told[1:]] == [change.new for change in told[:-1]]
        assert all(change.old != change.new for change in told)
        if told:
            assert known.held[kind].text == told[-1].new


@given(looks())
def test_the_changes_of_any_story_are_one_chain_that_ends_in_what_holds(
    story: list[dict[str, Fact]],
) -> None:
    known, changes = replayed(story, Known())
    assert_one_chain(changes, known)


@given(looks(), looks())
def test_a_restart_between_any_two_looks_doubles_nothing(
    first: list[dict[str, Fact]], second: list[dict[str, Fact]]
) -> None:
    _, before = replayed(first, Known())
    last = {change.kind: change for change in before}
    known, after = replayed(second, recalled(last))
    assert_one_chain(before + after, known)


@given(looks(), looks())
def test_what_waited_for_the_history_makes_one_chain_with_it(
    first: list[dict[str, Fact]], second: list[dict[str, Fact]]
) -> None:
    _, before = replayed(first, Known())
    _, waited = replayed(second, Known())
    chain = [*before, *joined(waited, {change.kind: change for change in before})]
    for kind in KINDS:
        told = [change for change in chain if change.kind == kind]
        assert [change.old for change in told[1:]] == [change.new for change in told[:-1]]
        assert all(change.old != change.new for change in told)
