from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.state.gpus import same_slot, with_devices, with_readings
from gpud.agent.state.snapshot import ProbeKey, Snapshot
from gpud.agent.telemetry.answers import Answer
from gpud.child.summary import summarised
from gpud.core.advice import Platform, Situation, words
from gpud.core.health import Level
from gpud.core.sample import (
    Absent,
    Backend,
    Device,
    Inventory,
    Reading,
    RunReport,
    Unit,
)
from gpud.document.machine import ListedGpu
from tests.events import Event, inventory_taken, made, run_finished, source_answered


def device(index: int, uuid: str, bus: int | None = None) -> Device:
    slot = index if bus is None else bus
    return Device(index, uuid, f"card {uuid}", f"0000:{slot:02x}:00.0", "8.9", 46, 1, 1)


def listed(*uuids: str) -> Inventory:
    return Inventory(tuple(device(i, uuid, ord(uuid[-1])) for i, uuid in enumerate(uuids)))


def told(index: int, uuid: str | Absent, bus: str = "", value: float = 1.0) -> tuple[Reading, ...]:
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
        ("AB", (*told(0, "B", value=7.0), *told(1, "A", value=9.0)), {1: 7.0, 0: 9.0}),
        ("AB", told(0, Absent.UNSUPPORTED, "00000000:42:00.0"), {1: 1.0}),
        ("AB", (*told(0, "A", value=7.0), *told(1, "A", value=9.0)), {0: 7.0}),
        ("B", (*told(0, Absent.UNSUPPORTED, value=7.0), *told(1, "B", value=9.0)), {0: 9.0}),
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
    known, readings = with_readings({}, told(1, Absent.UNSUPPORTED))
    assert power(readings) == {1: 1.0}
    assert known == {}, "a reason is no UUID"


def test_a_gpu_whose_slot_nobody_knows_has_no_part_in_another_ones_slot() -> None:
    known = {"A": ListedGpu(0, "", "", cuda=True)}
    after, readings = with_readings(known, told(3, "B", "00000000:42:00.0"))
    assert power(readings) == {3: 1.0}
    assert after["A"] == known["A"]


def test_a_new_card_in_the_slot_of_an_old_one_does_not_go_on_with_its_series() -> None:
    known = with_devices({}, listed("A").devices)
    after, readings = with_readings(known, told(0, "Z", known["A"].pci_bus_id, value=9.0))
    assert power(readings) == {1: 9.0}
    assert after["A"].number == 0


def test_what_nvml_shows_first_has_the_same_number_when_cuda_shows_it() -> None:
    known, _ = with_readings(
        {}, (*told(0, "A", "00000000:41:00.0"), *told(1, "B", "00000000:42:00.0"))
    )
    after = with_devices(known, listed("B").devices)
    assert after["B"] == ListedGpu(1, "card B", "0000:42:00.0", cuda=True)
    assert not after["A"].cuda


def test_what_only_nvml_shows_gives_its_number_to_its_own_slot_and_to_no_other() -> None:
    known, _ = with_readings(
        {}, (*told(0, "X", "00000000:41:00.0"), *told(1, "Y", "00000000:42:00.0"))
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
    known, _ = with_readings({}, told(0, "GPU-1", "00000000:01:00.0"))
    mig = device(0, "MIG-7", 1)
    known = with_devices(known, [mig])
    assert list(known) == ["MIG-7"]
    _, readings = with_readings(known, told(0, "GPU-1", "00000000:01:00.0"))
    assert power(readings) == {known["MIG-7"].number: 1.0}


def test_slots_are_the_same_however_long_the_domain_is_written() -> None:
    assert same_slot("0000:0A:00.0", "00000000:0a:00.0")
    assert not same_slot("0000:0A:00.0", "0001:0A:00.0")
    assert not same_slot("", "")
    assert not same_slot("0:", "")
    assert not same_slot("", "0:")


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


def test_many_gpus_that_vanished_are_named_in_part() -> None:
    health = after(inventory_taken(listed(*"ABCDEFG"), 1.0), inventory_taken(listed("G"), 2.0))
    assert (health.health["devices"].detail or "").endswith("UTC and 2 more")


def test_a_gpu_that_only_nvml_ever_showed_has_not_vanished_from_cuda() -> None:
    readings = (*told(0, "A", "00000000:41:00.0"), *told(1, "X", "00000000:58:00.0"))
    nvml = source_answered(Answer("nvml", 5, 1.0, 1.0, readings), 1.0)
    snapshot = after(nvml, inventory_taken(listed("A"), 2.0))
    assert snapshot.health["devices"].level is Level.OK
