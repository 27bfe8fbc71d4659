from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.state.gpus import with_devices, with_readings
from gpud.agent.state.snapshot import ProbeKey, Snapshot
from gpud.agent.state.telemetry import WINDOWS_DRIVER
from gpud.agent.telemetry.answers import Answer, current
from gpud.child.summary import summarised
from gpud.core.advice import Platform, Situation, words
from gpud.core.health import Health, Level
from gpud.core.sample import (
    Absent,
    Backend,
    Device,
    Failure,
    Inventory,
    Reading,
    Reason,
    RunReport,
    Unit,
)
from gpud.core.telemetry import LEVELS
from gpud.document.machine import ListedGpu
from tests.events import Event, inventory_taken, made, run_finished, source_answered


def device(index: int, uuid: str, bus: int | None = None) -> Device:
    slot = index if bus is None else bus
    return Device(index, uuid, f"card {uuid}", f"0000:{slot:02x}:00.0", "8.9", 46, 1, 1)


def listed(*uuids: str) -> Inventory:
    return Inventory(tuple(device(i, uuid, ord(uuid[-1])) for i, uuid in enumerate(uuids)))


def nvml_readings(
    index: int, uuid: str | Absent, bus: str = "", value: float = 1.0
) -> tuple[Reading, ...]:
    return (
        Reading(index, "uuid", uuid, "nvml"),
        Reading(index, "pci_bus_id", bus or Absent.UNSUPPORTED, "nvml"),
        Reading(index, "power_watts", value, "nvml"),
    )


def power(readings: tuple[Reading, ...]) -> dict[int | None, object]:
    return {reading.gpu: reading.value for reading in readings if reading.field == "power_watts"}


@given(st.lists(st.lists(st.sampled_from("ABCDE"), unique=True), max_size=12))
def test_a_number_is_one_gpus_for_ever(lists: list[list[str]]) -> None:
    known: dict[str, ListedGpu] = {}
    for uuids in lists:
        before, known = known, with_devices(known, listed(*uuids).devices)
        assert all(known[uuid] == gpu for uuid, gpu in before.items())
        numbers = [gpu.number for gpu in known.values()]
        assert len(set(numbers)) == len(numbers)


def test_a_gpu_that_moves_up_keeps_its_number_and_a_newcomer_gets_a_fresh_one() -> None:
    known = with_devices(with_devices({}, listed("A", "B").devices), listed("B", "C").devices)
    assert {uuid: gpu.number for uuid, gpu in known.items()} == {"A": 0, "B": 1, "C": 2}


@pytest.mark.parametrize(
    ("listed_gpus", "readings", "by_number"),
    [
        (
            "AB",
            (*nvml_readings(0, "B", value=7.0), *nvml_readings(1, "A", value=9.0)),
            {1: 7.0, 0: 9.0},
        ),
        ("AB", nvml_readings(0, Absent.UNSUPPORTED, "00000000:42:00.0"), {1: 1.0}),
        ("AB", (*nvml_readings(0, "A", value=7.0), *nvml_readings(1, "A", value=9.0)), {0: 7.0}),
        (
            "B",
            (*nvml_readings(0, Absent.UNSUPPORTED, value=7.0), *nvml_readings(1, "B", value=9.0)),
            {0: 9.0},
        ),
    ],
    ids=["by UUID", "by slot", "twins: the first", "claimed twice: the one with a UUID"],
)
def test_readings_go_by_uuid_or_slot_and_no_number_to_two_gpus(
    listed_gpus: str, readings: tuple[Reading, ...], by_number: dict[int, float]
) -> None:
    known = with_devices({}, listed(*listed_gpus).devices)
    _, numbered = with_readings(known, readings)
    shown = [(r.gpu, r.value) for r in numbered if r.field == "power_watts"]
    assert sorted(shown) == sorted(by_number.items())


def test_readings_without_anything_keep_their_index() -> None:
    known, readings = with_readings({}, nvml_readings(1, Absent.UNSUPPORTED))
    assert power(readings) == {1: 1.0}
    assert known == {}, "a reason is no UUID"


def test_a_gpu_whose_slot_nobody_knows_has_no_part_in_another_ones_slot() -> None:
    known = {"A": ListedGpu(0, "", "", cuda=True)}
    after, readings = with_readings(known, nvml_readings(3, "B", "00000000:42:00.0"))
    assert power(readings) == {3: 1.0}
    assert after["A"] == known["A"]


def test_a_new_card_in_the_slot_of_an_old_one_does_not_go_on_with_its_series() -> None:
    known = with_devices({}, listed("A").devices)
    after, readings = with_readings(known, nvml_readings(0, "Z", known["A"].pci_bus_id, value=9.0))
    assert power(readings) == {1: 9.0}
    assert after["A"].number == 0


def test_what_nvml_shows_first_has_the_same_number_when_cuda_shows_it() -> None:
    known, _ = with_readings(
        {}, (*nvml_readings(0, "A", "00000000:41:00.0"), *nvml_readings(1, "B", "00000000:42:00.0"))
    )
    after = with_devices(known, listed("B").devices)
    assert after["B"] == ListedGpu(1, "card B", "0000:42:00.0", cuda=True)
    assert not after["A"].cuda


def test_what_only_nvml_shows_gives_its_number_to_its_own_slot_and_to_no_other() -> None:
    known, _ = with_readings(
        {}, (*nvml_readings(0, "X", "00000000:41:00.0"), *nvml_readings(1, "Y", "00000000:42:00.0"))
    )
    after = with_devices(known, [device(0, "MIG-1", 0x42)])
    assert {uuid: gpu.number for uuid, gpu in after.items()} == {"X": 0, "MIG-1": 1}
    elsewhere = with_devices(known, [device(0, "B", 0x43)])
    assert {uuid: gpu.number for uuid, gpu in elsewhere.items()} == {"X": 0, "Y": 1, "B": 2}


def test_another_card_in_a_slot_that_cuda_has_listed_is_another_gpu() -> None:
    known = with_devices({}, [device(0, "A", 0x41)])
    after = with_devices(known, [device(0, "B", 0x41)])
    assert {uuid: gpu.number for uuid, gpu in after.items()} == {"A": 0, "B": 1}


def test_a_mig_instance_has_the_number_of_the_card_it_lies_on() -> None:
    known, _ = with_readings({}, nvml_readings(0, "GPU-1", "00000000:01:00.0"))
    mig = device(0, "MIG-7", 1)
    known = with_devices(known, [mig])
    assert list(known) == ["MIG-7"]
    _, readings = with_readings(known, nvml_readings(0, "GPU-1", "00000000:01:00.0"))
    assert power(readings) == {known["MIG-7"].number: 1.0}


def run(uuid: str, latency_s: float) -> Event:
    sample = summarised([latency_s], mode="submit", unit=Unit.SECONDS, with_buckets=True)
    return run_finished(RunReport("launch", Backend.CUDA, samples=(sample,)), uuid, 1.0, 1.0)


def medians(snapshot: Snapshot) -> dict[ProbeKey, float]:
    return {key: state.samples[0].median for key, state in snapshot.measure.probes.items()}


def after(*events: Event) -> Snapshot:
    snapshot = made("1", 0.0)
    for event in events:
        snapshot = event(snapshot)
    return snapshot


def test_the_figures_of_one_gpu_never_become_those_of_another_that_moves_into_its_place() -> None:
    story: list[Event] = [
        inventory_taken(listed("A", "B"), 1.0),
        run("A", 1.0),
        run("B", 2.0),
        inventory_taken(listed("B"), 2.0),
    ]
    gone = after(*story)
    assert medians(gone) == {ProbeKey("launch", 1): 2.0}
    assert set(gone.measure.latencies) == {(1, "submit")}
    again = after(*story, run("B", 3.0), inventory_taken(listed("A", "B"), 3.0), run("A", 4.0))
    assert medians(again) == {ProbeKey("launch", 0): 4.0, ProbeKey("launch", 1): 3.0}


def test_a_gpu_that_vanished_is_named_until_it_is_back() -> None:
    taken, lost = inventory_taken(listed("A", "B"), 1.0), inventory_taken(listed("B"), 2.0)
    health = after(taken, lost).health["devices"]
    assert (health.level, health.reason) == (Level.FAILED, "gpu_vanished")
    assert health.detail == "CUDA no longer offers GPU 0 (card A, A) since 1970-01-01 00:00 UTC"
    assert health.fix == words(Situation.VANISHED, Platform.LINUX).replace("UUID", "A")
    assert after(taken, lost, taken).health["devices"].level is Level.OK


def test_a_gpu_that_only_nvml_ever_showed_has_not_vanished_from_cuda() -> None:
    readings = (
        *nvml_readings(0, "A", "00000000:41:00.0"),
        *nvml_readings(1, "X", "00000000:58:00.0"),
    )
    nvml = source_answered(Answer("nvml", 5, 1.0, 1.0, readings), 1.0)
    snapshot = after(nvml, inventory_taken(listed("A"), 2.0))
    assert snapshot.health["devices"].level is Level.OK


CARDS = "ABCD"
STEP_S = 25.0
"""An answer holds for 60 s, so the third after it makes it too old."""

looks = st.tuples(st.sampled_from(["list", *LEVELS[2:]]), st.permutations(CARDS), st.integers(0, 4))


def uuid(card: str) -> str:
    return f"GPU-{card}"


def slot(card: str) -> str:
    return f"00000000:0{CARDS.index(card) + 1}:00.0"


def cards_listed(cards: list[str]) -> Inventory:
    return Inventory(
        devices=tuple(
            Device(index, uuid(card), card, slot(card), "8.9", 46, 1, 1)
            for index, card in enumerate(cards)
        )
    )


def powers(source: str, cards: list[str], turn: int) -> Answer:
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
            snapshot = inventory_taken(cards_listed(cards), now_s, now_s)(snapshot)
        else:
            snapshot = source_answered(powers(who, cards, turn), now_s)(snapshot)
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
                card, of_turn = divmod(float(reading.value), 100.0)
                assert numbers[reading.gpu or 0] == uuid(CARDS[int(card)])
                assert of_turn == last[reading.source]


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
