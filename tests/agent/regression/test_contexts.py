"""Generations: what makes a new one, what does not, and what people call them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.regression.contexts import FOLLOWERS, OF_A_GPU, OF_THE_CPU, UNKNOWN, Contexts
from gpud.core.alerts import Cause

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.core.sample import Condition

A = {"driver_version": "572.16", "nvml_version": "570.86", "cuda_version": "12.8"}
B = {"driver_version": "576.02", "nvml_version": "575.51", "cuda_version": "12.9"}
MACHINE = {"kernel": "6.6.75.1-microsoft-standard-WSL2", "windows_build": "10.0.26100.4349"}


def after(*runs: Mapping[str, Condition], of: tuple[str, ...] = OF_A_GPU) -> Contexts:
    known = Contexts(of)
    for run in runs:
        known = known.after(run)
    return known


def names(*runs: Mapping[str, Condition], of: tuple[str, ...] = OF_A_GPU) -> list[str]:
    return [after(*runs[: n + 1], of=of).present.name for n in range(len(runs))]


LATE = A | {"driver_version": "576.02"}
"""Windows' half is replaced, WSL's not yet."""
WSL = {**A, **MACHINE, "wsl_version": "2.5.7"}
NEWER_WSL, NEWER_KERNEL = {"wsl_version": "2.6.1"}, {"kernel": "6.6.87.2"}


@pytest.mark.parametrize(
    ("runs", "generations"),
    [
        ([A | MACHINE, B | MACHINE, A | MACHINE, B | MACHINE], "g1 g2 g1 g2"),
        ([A, LATE, B, LATE], "g1 g2 g2 g2"),
        ([WSL, NEWER_WSL, A | NEWER_WSL, B | NEWER_WSL], "g1 g2 g2 g3"),
        ([{"kernel": "6.6.75.1"}, B | A | NEWER_KERNEL, A | {"kernel": "6.6.75.1"}], "g1 g2 g3"),
        ([A, {"driver_version": "572.160"}, {"driver_version": "572.161"}], "g1 g1 g2"),
    ],
    ids=[
        "the old driver comes back",
        "what follows a driver comes late or is told otherwise",
        "what an update leaves as it was is still known of the new one",
        "one of which no driver is known is none that has one",
        "two spellings of a driver are one",
    ],
)
def test_generation_is_a_driver_and_a_machine(
    runs: list[Mapping[str, Condition]], generations: str
) -> None:
    assert names(*runs) == generations.split()


@pytest.mark.parametrize("gone", [*A, *MACHINE])
def test_a_part_that_becomes_known_or_unknown_is_no_change(gone: str) -> None:
    whole = A | MACHINE
    part = {kind: text for kind, text in whole.items() if kind != gone}
    assert names(whole, part, whole, {}, part) == ["g1"] * 5
    assert names(part, whole, part) == ["g1"] * 3


@pytest.mark.parametrize("of", [OF_A_GPU, OF_THE_CPU])
@pytest.mark.parametrize("kind", [*MACHINE, "wsl_version"])
def test_the_machine_may_change_by_itself(kind: str, of: tuple[str, ...]) -> None:
    assert names(WSL, WSL | {kind: "2.6.1"}, WSL, of=of) == ["g1", "g2", "g1"]


@pytest.mark.parametrize("kind", FOLLOWERS)
def test_without_the_drivers_name_what_follows_it_tells_that_it_is_another(kind: str) -> None:
    first: dict[str, Condition] = {"driver_version": "572.16", kind: "old"}
    known = after(first, {kind: "new"}, {kind: "new"}, {"driver_version": "576.02", kind: "new"})
    assert [one.name for one in known.generations] == ["g1", "g2"]
    assert known.present.label == "576.02"  # its name is heard later
    assert known.after({kind: "old"}).present.name == "g1"


def test_a_driver_that_is_heard_of_late_gives_its_name_to_what_was_before() -> None:
    known = after(MACHINE, A | MACHINE)
    assert [one.name for one in known.generations] == ["g1"]
    assert known.label("g1") == "572.16"


def test_where_two_generations_have_one_driver_the_later_one_says_what_differs() -> None:
    known = after(A | MACHINE, A | MACHINE | {"kernel": "6.6.87.2-microsoft-standard-WSL2"})
    assert [one.label for one in known.generations] == ["572.16", "572.16, kernel 6.6.87.2"]
    assert after(MACHINE, of=OF_THE_CPU).present.label == "kernel 6.6.75.1"
    assert after({}).present.label == UNKNOWN
    assert after({"cuda_version": "12.8"}).present.label == "CUDA 12.8"
    assert known.label("g77") == UNKNOWN


def test_the_difference_names_what_both_know_and_leaves_the_followers_to_the_driver() -> None:
    known = after(A | MACHINE, B | {"kernel": "6.6.87.2"}, {"cuda_version": "13.0"})
    assert known.difference("g1", "g2") == (
        Cause("driver_version", "572.16", "576.02"),
        Cause("kernel", MACHINE["kernel"], "6.6.87.2"),
    )
    assert known.difference("g2", "g3") == (Cause("cuda_version", "12.9", "13.0"),)
    assert known.difference("g1", "g9") == ()


CONDITIONS: st.SearchStrategy[dict[str, Condition]] = st.dictionaries(
    st.sampled_from((*OF_A_GPU, *FOLLOWERS, "temperature")),
    st.one_of(st.sampled_from(("1.1", "1.2", "1.10", "", "x\x1b[31m")), st.integers(), st.none()),
)


@given(st.lists(CONDITIONS, max_size=40), st.sampled_from((OF_A_GPU, OF_THE_CPU)))
def test_whatever_comes_labels_differ_and_a_restart_changes_nothing(
    runs: list[dict[str, Condition]], of: tuple[str, ...]
) -> None:
    known = Contexts(of)
    for run in runs:
        before, known = known, known.after(run)
        assert known.after(run) == known  # the same run again is no news
        assert known.after({}) == known
        if before.generations and known.begun > before.begun:
            heard = {kind for kind in (*of, *FOLLOWERS) if isinstance(run.get(kind), str)}
            assert any(run[kind] != before.present.parts.get(kind, run[kind]) for kind in heard)
        assert msgspec.json.decode(msgspec.json.encode(known), type=Contexts) == known
    labels = [one.label for one in known.generations]
    assert len(set(labels)) == len(labels)
    assert len({one.name for one in known.generations}) == len(known.generations)
