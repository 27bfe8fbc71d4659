"""Changes of driver and machine: the stories that happen to people, and all others."""

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
    Fact,
    FactsSoFar,
    MachineChange,
    changed,
    real,
    recalled,
)

DRIVER = DRIVER_VERSION
NVML, EXE, CUDA = 5, 4, 2


def story(kind: str, looks: str) -> list[MachineChange]:
    """Look every second: "572.16@4 -" is a text of a source of level 4, and then none."""
    known, changes = FactsSoFar(), list[MachineChange]()
    for now_s, look in enumerate(looks.split(), 1):
        text, _, level = look.partition("@")
        facts = {} if text == "-" else {kind: Fact(text, int(level or NVML), float(now_s))}
        known, more = changed(known, facts, float(now_s), "boot")
        changes += more
    return changes


@pytest.mark.parametrize(
    ("kind", "looks", "changes"),
    [
        pytest.param(DRIVER, "572.16 572.16", [(None, "572.16")], id="first sight"),
        pytest.param(
            DRIVER,
            "572.16 572.16 576.02 576.02 576.02",
            [(None, "572.16"), ("572.16", "576.02")],
            id="replaced driver",
        ),
        pytest.param(
            DRIVER, "572.16 572.16 0.0 572.16 572.16", [(None, "572.16")], id="nonsense once"
        ),
        pytest.param(DRIVER, "572.16 572.16 - - 572.16", [(None, "572.16")], id="silence"),
        pytest.param(
            DRIVER,
            "572.16@4 572.16@4 576.02@4 576.02@5",
            [(None, "572.16")],
            id="two sources, once each",
        ),
        pytest.param(
            DRIVER,
            "572.16 572.16 572.160 572.160",
            [(None, "572.16"), ("572.16", "572.160")],
            id="another number of one source",
        ),
        pytest.param(
            DRIVER,
            "57@4 57@4 570 570",
            [(None, "57"), ("57", "570")],
            id="without a point a zero at the end counts",
        ),
        pytest.param(
            DRIVER,
            "572.16 572.16 572.160@4 572.160@4 572.16 572.16",
            [(None, "572.16")],
            id="two spellings of one driver",
        ),
        pytest.param(
            DRIVER,
            "595.71 595.71 595.45.03@3 595.45.03@3 595.71 595.71",
            [(None, "595.71")],
            id="number of WSL's own library",
        ),
        pytest.param(
            DRIVER,
            "572.16 572.16 576.02@4 576.02@4 576.02 576.02",
            [(None, "572.16"), ("572.16", "576.02")],
            id="lower source that counts alike",
        ),
        pytest.param(
            CUDA_VERSION, "12.8 12.8 12.6@2 12.6@2 12.8", [(None, "12.8")], id="lower source"
        ),
        pytest.param(
            CUDA_VERSION,
            "12.6@2 12.6@2 12.8 12.8",
            [(None, "12.6"), ("12.6", "12.8")],
            id="higher source",
        ),
        pytest.param(
            GPUS,
            "A A,B A A",
            [(None, "A"), ("A", "A,B"), ("A,B", "A")],
            id="new GPU at once, lost GPU when missed twice",
        ),
        pytest.param(GPUS, "A B", [(None, "A")], id="GPU in the place of another, once"),
        pytest.param(
            GPUS, "A B B", [(None, "A"), ("A", "B")], id="GPU in the place of another, twice"
        ),
        pytest.param(
            DRIVER, f"{'9' * 2 * LONGEST} " * 3, [(None, "9" * LONGEST)], id="text of any length"
        ),
    ],
)
def test_fact_that_held_for_two_looks_is_a_change(
    kind: str, looks: str, changes: list[tuple[str | None, str]]
) -> None:
    assert [(change.old, change.new) for change in story(kind, looks)] == changes


def test_change_has_the_moment_of_the_first_look_and_first_sights_are_none() -> None:
    changes = story(DRIVER, "572.16 572.16 572.16 576.02 576.02")
    assert changes[-1] == MachineChange(DRIVER, "572.16", "576.02", 4.0, "boot", NVML)
    assert real(changes) == (changes[-1],)


def test_same_look_twice_is_one_look_and_a_fact_without_looks_needs_no_second() -> None:
    known, changes = changed(FactsSoFar(), {DRIVER: Fact("1.0", NVML, 7.0)}, 0.0, "boot")
    again, more = changed(known, {DRIVER: Fact("1.0", NVML, 7.0)}, 0.0, "boot")
    assert (changes, more, again.held) == ((), (), {})
    _, (boot,) = changed(FactsSoFar(), {BOOT_ID: Fact("one")}, 1.0, "one")
    assert (boot.old, boot.new) == (None, "one")


VERSIONS = st.sampled_from(["572.16", "572.160", "576.02", "595.45.03", "12.8", "0", "540", "54"])
SETS = st.sets(st.sampled_from("ABC")).map(lambda gpus: ",".join(sorted(gpus)))


@st.composite
def stories(draw: st.DrawFn) -> list[dict[str, Fact]]:
    """Collections in order: of each kind nothing, or what a source of some level says of it."""
    looks = []
    for at in range(draw(st.integers(0, 12))):
        facts = {}
        for kind in draw(st.sets(st.sampled_from([DRIVER_VERSION, CUDA_VERSION, GPUS, BOOT_ID]))):
            text = draw(SETS if kind == GPUS else VERSIONS)
            look = None if kind == BOOT_ID else float(at // 2)  # some come twice
            facts[kind] = Fact(text, draw(st.sampled_from([CUDA, EXE, NVML])), look)
        looks.append(facts)
    return looks


def replayed(
    story: list[dict[str, Fact]], known: FactsSoFar
) -> tuple[FactsSoFar, list[MachineChange]]:
    changes: list[MachineChange] = []
    for at, facts in enumerate(story):
        known, more = changed(known, facts, float(at), "boot")
        changes += more
    return known, changes


def assert_one_chain(changes: list[MachineChange], known: FactsSoFar | None = None) -> None:
    for kind in KINDS:
        of_kind = [change for change in changes if change.kind == kind]
        assert [change.old for change in of_kind[1:]] == [change.new for change in of_kind[:-1]]
        assert all(change.old != change.new for change in of_kind)
        if of_kind and known:
            assert known.held[kind].text == of_kind[-1].new


@given(stories())
def test_changes_of_any_story_are_one_chain_that_ends_in_what_holds(
    story: list[dict[str, Fact]],
) -> None:
    known, changes = replayed(story, FactsSoFar())
    assert_one_chain(changes, known)


@given(stories(), stories())
def test_restart_between_any_two_looks_doubles_nothing(
    first: list[dict[str, Fact]], second: list[dict[str, Fact]]
) -> None:
    _, before = replayed(first, FactsSoFar())
    last = {change.kind: change for change in before}
    known, after = replayed(second, recalled(last))
    assert_one_chain(before + after, known)
