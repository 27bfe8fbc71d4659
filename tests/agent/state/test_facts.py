"""Changes of driver and machine: the stories that happen to people, and all others."""

from __future__ import annotations

import pytest

from gpud.agent.state.facts import (
    BOOT_ID,
    CUDA_VERSION,
    DRIVER_VERSION,
    GPUS,
    LONGEST,
    Fact,
    FactsSoFar,
    changed,
    real,
)
from gpud.document.machine import ChangeReport

DRIVER = DRIVER_VERSION
NVML = 5


def story(kind: str, looks: str) -> list[ChangeReport]:
    """Look every second: "572.16@4 -" is a text of a source of level 4, and then none."""
    known, changes = FactsSoFar(), list[ChangeReport]()
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
    assert changes[-1] == ChangeReport(DRIVER, "572.16", "576.02", 4.0, "boot", NVML)
    assert real(changes) == (changes[-1],)


def test_same_look_twice_is_one_look_and_a_fact_without_looks_needs_no_second() -> None:
    known, changes = changed(FactsSoFar(), {DRIVER: Fact("1.0", NVML, 7.0)}, 0.0, "boot")
    again, more = changed(known, {DRIVER: Fact("1.0", NVML, 7.0)}, 0.0, "boot")
    assert (changes, more, again.held) == ((), (), {})
    _, (boot,) = changed(FactsSoFar(), {BOOT_ID: Fact("one")}, 1.0, "one")
    assert (boot.old, boot.new) == (None, "one")
