"""What a scrape says of the GPUs, of their driver, and of where it knows that from."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gpud.agent.regression.changes import KINDS, Change
from gpud.agent.serve.metrics import readings as table
from gpud.agent.telemetry import fields
from gpud.agent.telemetry.answers import Answer
from gpud.agent.telemetry.fields import (
    FIELDS,
    LONGEST_TEXT,
    SENTINELS,
    FieldKind,
    plausible,
    scaled,
)
from gpud.core.clock import Instant
from gpud.core.sample import Absent, Device, Inventory, Reading
from gpud.core.telemetry import LEVELS
from tests import snapshots
from tests.agent.serve.metrics.scraping import OPENMETRICS, scrape, settings
from tests.events import changed, inventory_taken, program_started, source_answered

if TYPE_CHECKING:
    from gpud.agent.state.snapshot import Snapshot

NOW = snapshots.NOW
SAID_BY_OTHERS = {
    "uuid": "gpud_gpu_info",
    "name": "gpud_gpu_info",
    "compute_capability": "gpud_gpu_info",
    "pci_bus_id": "gpud_gpu_info",
    "vbios_version": "gpud_gpu_info",
    "driver_version": "gpud_driver_info",
    "nvml_version": "gpud_driver_info",
    "cuda_version": "gpud_driver_info",
    "driver_folder": "gpud_driver_info",
    "exposed": "gpud_gpu_exposed",
    "ecc_mode": "gpud_gpu_ecc_enabled",
    "mig_mode": "gpud_gpu_mig_enabled",
    "throttle_reasons": "gpud_gpu_throttle_reason",
    "xids": "gpud_gpu_xid_errors_total",
}
"""Texts, and the family that says each."""

VALUES = {"exposed": "no", "ecc_mode": "enabled", "mig_mode": "enabled", "xids": "79:1"}


def reading(
    field: str, value: float | str | Absent, gpu: int | None = 0, source: str = "nvml"
) -> Reading:
    return Reading(None if FIELDS[field].machine else gpu, field, value, source)


def answer(
    *said: Reading, source: str = "nvml", reason: str | None = None, holds_s: float = 60.0
) -> Answer:
    level = LEVELS.index(source)
    return Answer(
        source, level, NOW.wall_s, NOW.mono_s, said, holds_s=holds_s, duration_s=0.5, reason=reason
    )


def told(*answers: Answer, before: Snapshot | None = None) -> Snapshot:
    after = snapshots.bare() if before is None else before
    for each in answers:
        after = source_answered(each, NOW.wall_s)(after)
    return after


def series(text: str, name: str) -> dict[str, float]:
    """The values of one family by its labels as they are written."""
    found = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", text, re.MULTILINE)
    return {labels: float(value) for labels, value in found}


@pytest.mark.parametrize("field", sorted(FIELDS))
def test_every_field_is_exported(field: str) -> None:
    numeric = [row for row in table.FAMILIES if field in row.fields]
    value = 1.0 if numeric else VALUES.get(field, "some words")
    said = (reading("name", "a GPU"), reading(field, value))
    [name] = [row.name for row in numeric] or [SAID_BY_OTHERS[field]]
    assert series(scrape(told(answer(*said))), name)
    assert not series(scrape(told(answer(reading(field, Absent.FAILED)))), name)


def test_a_counter_is_called_one_and_a_gauge_is_none() -> None:
    text = scrape(snapshots.full())
    for row in table.FAMILIES:
        kinds = {FIELDS[field].kind for field in row.fields}
        assert len(kinds) == 1
        counts = kinds == {FieldKind.COUNTER}
        assert counts is row.name.endswith("_total")
        assert f"# TYPE {row.name} {'counter' if counts else 'gauge'}\n" in text


def test_a_reading_that_is_too_old_is_absent_and_says_so() -> None:
    snapshot = told(answer(reading("power_watts", 30.0), holds_s=60.0))
    for later_s, published in ((60, True), (61, False)):
        text = scrape(snapshot, Instant(NOW.wall_s + later_s, NOW.mono_s + later_s))
        assert ("gpud_gpu_power_watts" in text) is published
        stale = 'gpud_telemetry_absent_info{field="power_watts",gpu="0",reason="stale"} 1.0'
        assert (stale in text) is not published
        assert series(text, "gpud_telemetry_source_up") == {'source="nvml"': float(published)}
        assert series(text, "gpud_telemetry_level") == {"": 5 if published else 0}


def test_an_absent_field_says_why_and_one_of_the_machine_names_no_gpu() -> None:
    said = (reading("fan_ratio", Absent.UNSUPPORTED), reading("driver_version", Absent.FAILED))
    assert series(scrape(told(answer(*said))), "gpud_telemetry_absent_info") == {
        'field="fan_ratio",gpu="0",reason="unsupported"': 1,
        'field="driver_version",gpu="",reason="failed"': 1,
    }


def test_the_source_of_each_field_is_named_and_two_gpus_may_have_two() -> None:
    uuids = ("GPU-0", "GPU-1")
    both = [reading("uuid", uuid, gpu) for gpu, uuid in enumerate(uuids)]
    exe = [replace(one, source="nvidia_smi_exe") for one in both]
    snapshot = told(
        answer(*both, reading("power_watts", 30.0, 0), reading("power_watts", Absent.FAILED, 1)),
        answer(*exe, reading("power_watts", 20.0, 1, "nvidia_smi_exe"), source="nvidia_smi_exe"),
    )
    text = scrape(snapshot)
    assert series(text, "gpud_gpu_power_watts") == {'gpu="0"': 30, 'gpu="1"': 20}
    assert series(text, "gpud_telemetry_source_info") == {
        'field="power_watts",source="nvidia_smi_exe"': 1,
        'field="power_watts",source="nvml"': 1,
        'field="uuid",source="nvml"': 1,
    }


def test_what_names_no_source_is_told_of_the_best_that_is_not_switched_off() -> None:
    snapshot = told(
        answer(reason="hung"),
        answer(reason="hung"),
        answer(reading("power_watts", 20.0), source="nvidia_smi_exe"),
        answer(reading("name", "a GPU"), source="cuda"),
    )
    alone, when = "gpud_telemetry_failures_total", "gpud_telemetry_last_success_timestamp_seconds"
    text = scrape(snapshot)
    assert (series(text, alone), series(text, when)) == ({"": 2}, {})
    assert series(text, "gpud_telemetry_source_failures_total") == {
        'reason="hung",source="nvml"': 2
    }
    assert series(text, "gpud_telemetry_level") == {"": 4}
    text = scrape(snapshot, given=settings(disabled=("nvml",)))
    assert (series(text, alone), series(text, when)) == ({"": 0}, {"": NOW.wall_s})
    text = scrape(snapshot, given=settings(disabled=LEVELS[1:]))
    assert (series(text, alone), series(text, when)) == ({"": 0}, {})
    assert "gpud_telemetry_program_starts_total" not in text


def test_started_programs_are_counted_from_nothing() -> None:
    name = "gpud_telemetry_program_starts_total"
    none = {'source="nvidia_smi"': 0, 'source="nvidia_smi_exe"': 0}
    assert series(scrape(snapshots.bare()), name) == none
    after = program_started("nvidia_smi")(snapshots.bare())
    assert series(scrape(after), name) == none | {'source="nvidia_smi"': 1}


@pytest.mark.parametrize(
    ("text", "holding"),
    [
        ("none", set()),
        ("power_cap,hw_thermal", {"power_cap", "hw_thermal"}),
        ("idle,unknown", {"idle", "unknown"}),
        ("idle,of_tomorrow", {"idle", "unknown"}),
    ],
)
def test_each_reason_to_throttle_holds_or_does_not(text: str, holding: set[str]) -> None:
    found = series(
        scrape(told(answer(reading("throttle_reasons", text)))), "gpud_gpu_throttle_reason"
    )
    assert found == {
        f'gpu="0",reason="{word}"': float(word in holding)
        for word in (*fields.THROTTLE_REASONS, "unknown")
    }


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("none", {}),
        ("79:1,31:2", {"31": 2, "79": 1}),
        ("31:x,:,31:,79:1,-1:5,31:99999999999999999999", {"79": 1}),
        ("31:2,031:7", {"31": 2}),
        ("31:2," + "," * (LONGEST_TEXT - 11) + "79:123", {"31": 2}),  # was cut: maybe 1234
    ],
)
def test_xids_are_counted_by_their_number(text: str, counts: dict[str, int]) -> None:
    found = series(scrape(told(answer(reading("xids", text)))), "gpud_gpu_xid_errors_total")
    assert found == {f'gpu="0",xid="{code}"': count for code, count in counts.items()}


def test_a_mode_that_nobody_knows_is_left_out() -> None:
    said = (reading("ecc_mode", "half"), reading("exposed", "perhaps"))
    text = scrape(told(answer(*said)))
    assert "gpud_gpu_ecc_enabled" not in text
    assert "gpud_gpu_exposed" not in text


def test_a_gpu_that_only_a_program_shows_has_an_identity_all_the_same() -> None:
    said = (
        reading("uuid", "GPU-1"),
        reading("name", "RTX\n4070"),
        reading("pci_bus_id", "0000:c1:00.0"),
        reading("driver_version", "595.71"),
    )
    snapshot = told(answer(*said, source="nvidia_smi_exe"))
    assert list(series(scrape(snapshot), "gpud_gpu_info")) == [
        'driver_version="595.71",gpu="0",name="RTX4070",pci_bus_id="00000000:C1:00.0",uuid="GPU-1"'
    ]


def test_what_cuda_says_of_itself_counts_before_what_others_read() -> None:
    listed = inventory_taken(Inventory((snapshots.DEVICE,), "12.8"), 0.0)(snapshots.bare())
    said = (
        reading("uuid", snapshots.DEVICE.uuid),
        reading("name", "another name"),
        reading("vbios_version", "95.04"),
        reading("cuda_version", "12.9"),
    )
    [labels] = series(scrape(told(answer(*said), before=listed)), "gpud_gpu_info")
    assert 'cuda_version="12.8"' in labels
    assert "another name" not in labels
    assert 'vbios_version="95.04"' in labels


def test_a_cuda_that_tells_no_version_leaves_that_to_others() -> None:
    listed = inventory_taken(Inventory((snapshots.DEVICE,)), 0.0)(snapshots.bare())
    said = (reading("uuid", snapshots.DEVICE.uuid), reading("cuda_version", "12.9"))
    [labels] = series(scrape(told(answer(*said), before=listed)), "gpud_gpu_info")
    assert 'cuda_version="12.9"' in labels


def test_who_has_neither_name_nor_uuid_has_no_identity() -> None:
    said = (reading("vbios_version", "95.04"), reading("driver_version", "595.71"))
    text = scrape(told(answer(*said)))
    assert "gpud_gpu_info" not in text
    assert series(text, "gpud_driver_info") == {'driver_version="595.71"': 1}


@pytest.mark.parametrize(
    ("device", "labels"),
    [
        (snapshots.DEVICE, set()),
        (replace(snapshots.DEVICE, mig="1g.10gb"), {'mig="1g.10gb"'}),
        (replace(snapshots.DEVICE, mps=True), {'mps="true"'}),
    ],
)
def test_an_instance_and_a_shared_gpu_are_told_from_a_plain_card(
    device: Device, labels: set[str]
) -> None:
    listed = inventory_taken(Inventory((device,), "12.8"), 0.0)(snapshots.bare())
    [found] = series(scrape(listed), "gpud_gpu_info")
    assert set(re.findall(r'm(?:ig|ps)="[^"]*"', found)) == labels


def test_two_gpus_with_everything_have_no_series_twice() -> None:
    one = [said for said in snapshots.READINGS if said.field not in {"uuid", "pci_bus_id"}]
    said = [replace(each, gpu=gpu) for gpu in (0, 1) for each in one if each.gpu is not None]
    said += [reading("uuid", f"GPU-{gpu}", gpu) for gpu in (0, 1)]
    text = scrape(told(answer(*said)), given=settings("dcgm"))
    lines = [line.rpartition(" ")[0] for line in text.splitlines() if line[0] != "#"]
    assert len(lines) == len(set(lines))
    for name in ("gpud_gpu_info", "gpud_gpu_processes", "DCGM_FI_DEV_GPU_TEMP"):
        assert len(series(text, name)) == 2


def change(old: str | None, new: str, at_s: float, kind: str = "driver_version") -> Change:
    return Change(kind, old, new, at_s, "boot")


def test_there_and_back_is_two_changes_of_which_each_has_its_latest_moment() -> None:
    seen = (change("A", "B", 10.0), change("B", "A", 20.0), change("A", "B", 30.0))
    text = scrape(changed(seen, NOW.wall_s)(snapshots.bare()))
    assert series(text, "gpud_changes_total") == {
        f'kind="{kind}"': 3.0 if kind == "driver_version" else 0.0 for kind in KINDS
    }
    assert series(text, "gpud_change_timestamp_seconds") == {
        'kind="driver_version",to="A"': 20,
        'kind="driver_version",to="B"': 30,
    }


def test_what_is_seen_for_the_first_time_is_no_change() -> None:
    text = scrape(changed((change(None, "A", 10.0),), NOW.wall_s)(snapshots.bare()))
    assert set(series(text, "gpud_changes_total").values()) == {0}
    assert "gpud_change_timestamp_seconds" not in text


def test_sixty_four_gpus_are_one_label_of_bearable_length() -> None:
    uuids = ",".join(f"GPU-{number:036}" for number in range(64))
    text = scrape(changed((change("", uuids, 10.0, "gpus"),), NOW.wall_s)(snapshots.bare()))
    [labels] = series(text, "gpud_change_timestamp_seconds")
    assert len(labels) < 160


BEYOND = (*sorted(SENTINELS), *(2**power for power in range(53, 65)), 2**64 - 2, 2**63 - 1025)
"""What no GPU has: the sentinels of drivers, and what lies where theirs lie."""

FACTORS = (1.0, 1e-3, 1e-2, 1e3, 1e6, 2.0**20, 1e-9)
"""Of the conversions to base units."""

RAW = st.one_of(
    st.sampled_from(BEYOND),
    st.sampled_from(BEYOND).map(float),
    st.integers(0, 2**64 - 1),
    st.floats(),
    st.sampled_from(["9223372036854775794", "18446744073709551615:1", "31:9223372036854775807"]),
    st.text("0123456789:,-.eN/A ", max_size=20),
    st.sampled_from(list(Absent)),
)
ASKED = st.tuples(
    st.sampled_from(range(3)), st.sampled_from(sorted(FIELDS)), RAW, st.sampled_from(FACTORS)
)


def converted(gpu: int, field: str, raw: object, factor: float) -> Reading:
    """What a source makes of what a driver gave: by the conversions that all of them share."""
    number = scaled(raw, factor) if isinstance(raw, int | float) else raw
    return reading(field, plausible(field, number), gpu)


def is_sound(snapshot: Snapshot) -> None:
    """Hold what any scrape must: it parses, no series is twice, no number is beyond a reading."""
    for parse, accept in ((parse_text, ""), (parse_openmetrics, OPENMETRICS)):
        seen = set()
        for family in parse(scrape(snapshot, accept=accept, given=settings("dcgm"))):
            for one in family.samples:
                assert 0 <= one.value < 2**53, one
                key = (one.name, tuple(sorted(one.labels.items())))
                assert key not in seen
                seen.add(key)


def test_no_field_of_no_unit_lets_a_sentinel_through() -> None:
    cases = [(raw, factor) for raw in BEYOND for factor in (1.0, 1e-3)]
    said = [
        converted(gpu, field, raw, factor)
        for gpu, (raw, factor) in enumerate(cases)
        for field, known in FIELDS.items()
        if not known.machine
    ]
    numbers = [one.value for one in said if isinstance(one.value, float)]
    assert max(numbers) > 2**53  # plausible for a counter, and no reading
    is_sound(told(answer(*said)))


@hypothesis.settings(max_examples=50)
@given(st.lists(ASKED, max_size=40), st.sampled_from(LEVELS[1:]), st.lists(ASKED, max_size=5))
def test_a_scrape_is_sound_whatever_drivers_give(
    asked: list[Any], source: str, better: list[Any]
) -> None:
    of_one = answer(*(converted(*one) for one in asked), source=source)
    is_sound(told(of_one, answer(*(converted(*one) for one in better))))
