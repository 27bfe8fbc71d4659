"""A GPU keeps its number and its figures; a GPU that is gone; an NVML that is silent."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.state.snapshot import ProbeKey, Snapshot
from gpud.agent.state.telemetry import WINDOWS_DRIVER
from gpud.agent.telemetry.answers import Answer, current
from gpud.core.advice import Platform, Situation, words
from gpud.core.health import Health, Level
from gpud.core.sample import Absent, Failure, Inventory, Reading, Reason
from gpud.core.telemetry import LEVELS
from tests.agent.state.folding import START, finished, listed, slot
from tests.events import Event, folded, inventory_taken, made, source_answered

CARDS = "ABCD"


def cuda(*cards: str) -> Event:
    return inventory_taken(listed(*cards), 1.0, 1.0)


def answer(
    *cards: str, source: str = "nvml", first: int = 0, turn: int = 0, at_s: float = 1.0
) -> Answer:
    """What a source shows, with a power that tells the card and the turn; "?" has no UUID."""
    readings: list[Reading] = []
    for index, card in enumerate(cards, first):
        uuid, _, at = card.partition("@")
        fields: dict[str, str | float | Absent] = {
            "uuid": Absent.UNSUPPORTED if uuid == "?" else uuid,
            "pci_bus_id": f"0000{slot(at)}" if at else Absent.UNSUPPORTED,
            "power_watts": 100.0 * (ord(card[0]) - ord("A")) + turn,
        }
        readings += [Reading(index, field, value, source) for field, value in fields.items()]
    reason = None if cards else "failed"
    return Answer(source, LEVELS.index(source), at_s, at_s, tuple(readings), reason=reason)


def nvml(*cards: str, first: int = 0, turn: int = 0) -> Event:
    return source_answered(answer(*cards, first=first, turn=turn), 1.0)


def numbers(snapshot: Snapshot) -> dict[str, int]:
    return {uuid: gpu.number for uuid, gpu in snapshot.gpus.items()}


@given(st.lists(st.lists(st.sampled_from("ABCDE"), unique=True), max_size=12))
def test_a_number_is_one_gpus_for_ever(lists: list[list[str]]) -> None:
    now = START
    for cards in lists:
        before, now = numbers(now), cuda(*cards)(now)
        assert numbers(now).items() >= before.items()
        assert len(set(numbers(now).values())) == len(numbers(now))


@pytest.mark.parametrize(
    ("story", "known", "power"),
    [
        ([cuda("A", "B"), cuda("B", "C")], {"A": 0, "B": 1, "C": 2}, {}),
        ([cuda("A", "B"), nvml("B", "A")], {"A": 0, "B": 1}, {0: 0.0, 1: 100.0}),
        ([cuda("A", "B"), nvml("?@B", turn=7)], {"A": 0, "B": 1}, {1: -193.0}),
        ([cuda("A", "B"), nvml("A", "A", turn=7)], {"A": 0, "B": 1}, {0: 7.0}),
        ([cuda("B"), nvml("?", "B")], {"B": 0}, {0: 100.0}),
        ([nvml("?", first=1)], {}, {1: -200.0}),
        ([cuda("A@-"), nvml("B@B", first=3)], {"A": 0, "B": 3}, {3: 100.0}),
        ([cuda("A"), nvml("Z@A")], {"A": 0, "Z": 1}, {1: 2500.0}),
        ([cuda("A"), cuda("B@A")], {"A": 0, "B": 1}, {}),
        ([nvml("A@A", "B@B"), cuda("B")], {"A": 0, "B": 1}, {0: 0.0, 1: 100.0}),
        ([nvml("A@A", "B@B"), cuda("C")], {"A": 0, "B": 1, "C": 2}, {0: 0.0, 1: 100.0}),
        (
            [nvml("A@A", "B@B"), cuda("MIG-7@B"), nvml("A@A", "B@B")],
            {"A": 0, "MIG-7": 1},
            {0: 0.0, 1: 100.0},
        ),
    ],
    ids=[
        "one that moves up keeps its number, a newcomer gets a fresh one",
        "readings by UUID",
        "by slot",
        "twins: the first",
        "claimed twice: the one with a UUID",
        "without anything they keep their index",
        "a slot that nobody knows is not that of another",
        "a new card in an old one's slot has its own series",
        "and its own number",
        "CUDA lists what NVML showed first",
        "CUDA lists another beside them",
        "an instance has the number of its card",
    ],
)
def test_readings_go_by_uuid_or_slot_and_no_number_to_two_gpus(
    story: list[Event], known: dict[str, int], power: dict[int, float]
) -> None:
    now = folded(START, *story)
    assert numbers(now) == known
    shown = [r for r in current(now.telemetry, 1.0) if r.field == "power_watts"]
    assert {r.gpu: r.value for r in shown} == power
    assert len(shown) == len(power)


def test_a_gpu_that_goes_takes_its_series_is_named_and_comes_back_under_its_number() -> None:
    gone = folded(
        START,
        cuda("GPU-0", "GPU-1"),
        finished("launch", 0),
        finished("launch", 1, latency_s=2.0),
        finished("cpu_call", None),
        cuda("GPU-1"),
    )
    assert gone.measure.probes.keys() == {ProbeKey("launch", 1), ProbeKey("cpu_call", None)}
    assert gone.measure.probes[ProbeKey("launch", 1)].report.samples[0].median == 2.0
    assert set(gone.measure.latencies) == {(1, "submit")}
    assert gone.measure.runs == {"launch": 2, "cpu_call": 1}
    health = gone.health["devices"]
    assert (health.level, health.reason) == (Level.FAILED, "gpu_vanished")
    since = "GPU 0 (card GPU-0, GPU-0) since 1970-01-01 00:00 UTC"
    assert health.detail == f"CUDA no longer offers {since}"
    assert health.fix == words(Situation.VANISHED, Platform.LINUX).replace("UUID", "GPU-0")
    again = folded(gone, cuda("GPU-0", "GPU-1"), finished("launch", 0, latency_s=4.0))
    assert again.measure.probes[ProbeKey("launch", 0)].report.samples[0].median == 4.0
    assert again.measure.probes[ProbeKey("launch", 1)].report.samples[0].median == 2.0
    assert again.health["devices"].level is Level.OK


def test_a_gpu_that_only_nvml_ever_showed_has_not_vanished_from_cuda() -> None:
    assert folded(START, nvml("A@A", "X@X"), cuda("A")).health["devices"].level is Level.OK


STEP_S = 25.0
"""An answer holds for 60 s, so the third after it makes it too old."""

looks = st.tuples(st.sampled_from(["list", *LEVELS[2:]]), st.permutations(CARDS), st.integers(0, 4))


@given(st.lists(looks, max_size=12))
def test_a_value_is_its_own_cards_and_that_of_the_last_answer_whoever_counts_how(
    story: list[tuple[str, list[str], int]],
) -> None:
    snapshot = START
    last: dict[str, int] = {}
    for turn, (who, order, count) in enumerate(story):
        cards, now_s = order[:count], turn * STEP_S
        if who == "list":
            snapshot = inventory_taken(listed(*cards), now_s, now_s)(snapshot)
        else:
            shown = answer(*cards, source=who, turn=turn, at_s=now_s)
            snapshot = source_answered(shown, now_s)(snapshot)
            last[who] = turn
        found = {gpu.number: uuid for uuid, gpu in snapshot.gpus.items()}
        assert len(found) == len(snapshot.gpus)
        readings = [r for r in current(snapshot.telemetry, now_s) if r.field != "pci_bus_id"]
        assert len({(r.gpu, r.field) for r in readings}) == len(readings)
        for reading in readings:
            if isinstance(reading.value, Absent):
                assert reading.value is Absent.STALE
                assert (turn - last[reading.source]) * STEP_S > 60.0
            elif reading.field == "uuid":
                assert found[reading.gpu or 0] == reading.value
            else:
                card, of_turn = divmod(float(reading.value), 100.0)
                assert found[reading.gpu or 0] == CARDS[int(card)]
                assert of_turn == last[reading.source]


def test_a_field_that_fails_is_named_with_what_helps_on_that_machine() -> None:
    wsl = made("1", 0.0, platform={"kernel": "6.6.87.2-microsoft-standard-WSL2"})
    readings = (
        Reading(0, "uuid", "GPU-A", "nvml"),
        Reading(0, "power_watts", Absent.FAILED, "nvml", "Unknown Error"),
    )
    health = source_answered(Answer("nvml", 5, 1.0, 1.0, readings), 1.0)(wsl).health["nvml"]
    assert (health.level, health.reason) == (Level.DEGRADED, "fields_failed")
    assert "power_watts" in (health.detail or "")
    assert health.fix == words(Situation.TELEMETRY_SILENT, Platform.WSL2)


# a silent NVML beside Windows' own nvidia-smi.exe

NO_DEVICE = Failure(Reason.NO_DEVICE, "cuInit: no device")
SILENT = Answer("nvml", 5, 0.0, 100.0, reason="driver_not_loaded", detail="NVML: 9", fix="f")
WINDOWS = Answer(
    "nvidia_smi_exe", 4, 0.0, 101.0, (Reading(0, "name", "RTX", "nvidia_smi_exe"),), holds_s=330
)


def nvml_health(*answers: Answer) -> Health:
    snapshot = made("1", 0.0, inventory=Inventory(failure=NO_DEVICE), library_configured=True)
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
