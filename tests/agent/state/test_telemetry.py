"""Answers of sources that count GPUs in their own ways: each value stays with its own card."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.state.telemetry import WINDOWS_DRIVER
from gpud.agent.telemetry.answers import Answer, current
from gpud.core.advice import Platform, Situation, words
from gpud.core.health import Health, Level
from gpud.core.sample import Absent, Device, Failure, Inventory, Reading, Reason
from gpud.core.telemetry import LEVELS
from tests.events import inventory_taken, made, source_answered

CARDS = "ABCD"
STEP_S = 25.0
"""An answer holds for 60 s, so the third after it makes it too old."""

looks = st.tuples(st.sampled_from(["list", *LEVELS[2:]]), st.permutations(CARDS), st.integers(0, 4))


def uuid(card: str) -> str:
    return f"GPU-{card}"


def slot(card: str) -> str:
    return f"00000000:0{CARDS.index(card) + 1}:00.0"


def listed(cards: list[str]) -> Inventory:
    return Inventory(
        devices=tuple(
            Device(index, uuid(card), card, slot(card), "8.9", 46, 1, 1)
            for index, card in enumerate(cards)
        )
    )


def told(source: str, cards: list[str], turn: int) -> Answer:
    """A value tells its card and its turn: 203.0 is of the third card, in the fourth."""
    readings = tuple(
        reading
        for index, card in enumerate(cards)
        for reading in (
            Reading(index, "uuid", uuid(card), source),
            Reading(index, "power_watts", 100.0 * CARDS.index(card) + turn, source),
        )
    )
    reason = None if cards else "failed"
    at_s = turn * STEP_S
    return Answer(source, LEVELS.index(source), at_s, at_s, readings, reason=reason)


@given(st.lists(looks, max_size=12))
def test_a_value_is_its_own_cards_and_that_of_the_last_answer_whoever_counts_how(
    story: list[tuple[str, list[str], int]],
) -> None:
    snapshot = made("1", 0.0)
    last: dict[str, int] = {}
    for turn, (who, order, count) in enumerate(story):
        cards, now_s = order[:count], turn * STEP_S
        if who == "list":
            snapshot = inventory_taken(listed(cards), now_s, now_s)(snapshot)
        else:
            snapshot = source_answered(told(who, cards, turn), now_s)(snapshot)
            last[who] = turn
        numbers = {gpu.number: found for found, gpu in snapshot.gpus.items()}
        assert len(numbers) == len(snapshot.gpus)
        shown = current(snapshot.telemetry, now_s)
        assert len({(r.gpu, r.field) for r in shown}) == len(shown)
        for reading in shown:
            if isinstance(reading.value, Absent):
                assert reading.value is Absent.STALE
                assert (turn - last[reading.source]) * STEP_S > 60.0
            elif reading.field == "uuid":
                assert numbers[reading.gpu or 0] == reading.value
            else:
                card, said = divmod(float(reading.value), 100.0)
                assert numbers[reading.gpu or 0] == uuid(CARDS[int(card)])
                assert said == last[reading.source]


def test_a_field_that_fails_is_named_with_what_helps_on_that_machine() -> None:
    wsl = made("1", 0.0, platform={"kernel": "6.6.87.2-microsoft-standard-WSL2"})
    readings = (
        Reading(0, "uuid", uuid("A"), "nvml"),
        Reading(0, "power_watts", Absent.FAILED, "nvml", "Unknown Error"),
    )
    answer = Answer("nvml", LEVELS.index("nvml"), 1.0, 1.0, readings)
    health = source_answered(answer, 1.0)(wsl).health["nvml"]
    assert (health.level, health.reason) == (Level.DEGRADED, "fields_failed")
    assert "power_watts" in (health.detail or "")
    assert health.fix == words(Situation.TELEMETRY_SILENT, Platform.WSL2)


# a silent NVML beside Windows' own nvidia-smi.exe

CUDA = Failure(Reason.NO_DEVICE, "cuInit: no device")
SILENT = Answer("nvml", 5, 0.0, 100.0, reason="driver_not_loaded", detail="NVML: 9", fix="f")
WINDOWS = Answer(
    "nvidia_smi_exe", 4, 0.0, 101.0, (Reading(0, "name", "RTX", "nvidia_smi_exe"),), holds_s=330
)


def nvml_health(*answers: Answer, cuda: Failure | None = CUDA) -> Health:
    snapshot = made("1", 0.0, inventory=Inventory(failure=cuda), library_configured=True)
    for answer in answers:
        snapshot = source_answered(answer, 0.0)(snapshot)
    return snapshot.health["nvml"]


def test_an_answer_in_windows_alone_shows_that_wsl_is_broken() -> None:
    health = nvml_health(SILENT, WINDOWS)
    assert health.reason == "driver_not_loaded"
    assert str(health.detail).startswith("NVML: 9; neither NVML (driver_not_loaded) nor CUDA")
    assert "--shutdown" in str(health.fix)
    assert "--update" in str(health.fix)


@pytest.mark.parametrize("reason", sorted(WINDOWS_DRIVER))
def test_a_failure_in_windows_too_is_not_wsls(reason: str) -> None:
    windows = replace(WINDOWS, readings=(), reason=reason, detail="d", fix="in Windows")
    health = nvml_health(SILENT, windows)
    assert "it is not WSL" in str(health.detail)
    assert health.fix == "in Windows"


@pytest.mark.parametrize(
    "answers",
    [
        (SILENT,),
        (WINDOWS, replace(SILENT, taken_s=1.0, reason=None), SILENT),  # NVML answered after it
        *(
            (SILENT, replace(WINDOWS, readings=(), reason=reason, detail="d"))
            for reason in ("absent", "hung", "interop_off")
        ),
    ],
)
def test_without_an_answer_from_windows_since_nvml_fell_silent_nothing_is_blamed(
    answers: tuple[Answer, ...],
) -> None:
    health = nvml_health(*answers)
    assert (health.detail, health.fix) == ("NVML: 9", "f")
