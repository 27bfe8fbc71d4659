"""A scrape of GPUs and their driver, and where each reading comes from."""

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

from gpud.agent.serve.metrics import gpus as table
from gpud.agent.telemetry import fields
from gpud.agent.telemetry.fields import (
    FIELDS,
    SENTINELS,
    plausible,
    scaled,
)
from gpud.core.clock import Instant
from gpud.core.sample import Absent, Inventory, Reading
from gpud.core.telemetry import LEVELS
from tests import snapshots
from tests.agent.serve.metrics.scraping import (
    OPENMETRICS,
    answer,
    answered,
    scrape,
    series,
    settings,
)
from tests.events import inventory_taken, program_started

if TYPE_CHECKING:
    from gpud.agent.state.snapshot import Snapshot

NOW = snapshots.NOW
FAMILY_OF_TEXT = {
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
"""Texts, and the family that has each."""

VALUES = {"exposed": "no", "ecc_mode": "enabled", "mig_mode": "enabled", "xids": "79:1"}


def reading(
    field: str, value: float | str | Absent, gpu: int | None = 0, source: str = "nvml"
) -> Reading:
    return Reading(None if FIELDS[field].machine else gpu, field, value, source)


@pytest.mark.parametrize("field", sorted(FIELDS))
def test_every_field_is_exported(field: str) -> None:
    numeric = [row for row in table.FAMILIES if field in row.fields]
    value = 1.0 if numeric else VALUES.get(field, "some words")
    readings = (reading("name", "a GPU"), reading(field, value))
    [name] = [row.name for row in numeric] or [FAMILY_OF_TEXT[field]]
    assert series(scrape(answered(answer(*readings))), name)
    assert not series(scrape(answered(answer(reading(field, Absent.FAILED)))), name)


def test_counters_alone_end_in_total() -> None:
    text = scrape(snapshots.full())
    for row in table.FAMILIES:
        counts = row.name.endswith("_total")
        assert {field.endswith("_total") for field in row.fields} == {counts}
        assert f"# TYPE {row.name} {'counter' if counts else 'gauge'}\n" in text


def test_reading_that_is_too_old_is_absent_with_its_reason() -> None:
    snapshot = answered(answer(reading("power_watts", 30.0), holds_s=60.0))
    for later_s, published in ((60, True), (61, False)):
        text = scrape(snapshot, Instant(NOW.wall_s + later_s, NOW.mono_s + later_s))
        assert ("gpud_gpu_power_watts" in text) is published
        stale = 'gpud_telemetry_absent_info{field="power_watts",gpu="0",reason="stale"} 1.0'
        assert (stale in text) is not published
        assert series(text, "gpud_telemetry_source_up") == {'source="nvml"': float(published)}
        assert series(text, "gpud_telemetry_level") == {"": 5 if published else 0}


def test_source_of_each_field_is_named_and_two_gpus_may_have_two() -> None:
    uuids = ("GPU-0", "GPU-1")
    both = [reading("uuid", uuid, gpu) for gpu, uuid in enumerate(uuids)]
    exe = [replace(each, source="nvidia_smi_exe") for each in both]
    snapshot = answered(
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


def test_families_without_a_source_are_of_the_best_source_in_use() -> None:
    snapshot = answered(
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
    text = scrape(program_started("nvidia_smi_exe")(snapshots.bare()))
    assert series(text, "gpud_telemetry_program_starts_total") == {'source="nvidia_smi_exe"': 1}


INFO, DRIVER, ABSENT = "gpud_gpu_info", "gpud_driver_info", "gpud_telemetry_absent_info"
THROTTLE, XIDS = "gpud_gpu_throttle_reason", "gpud_gpu_xid_errors_total"


@pytest.mark.parametrize(
    ("field", "value", "name", "labels"),
    [
        ("fan_ratio", Absent.FAILED, ABSENT, ['field="fan_ratio",gpu="0",reason="failed"']),
        ("cuda_version", Absent.FAILED, ABSENT, ['field="cuda_version",gpu="",reason="failed"']),
        ("throttle_reasons", "none", THROTTLE, []),
        ("throttle_reasons", "power_cap,hw_thermal", THROTTLE, ["power_cap", "hw_thermal"]),
        ("throttle_reasons", "idle,unknown", THROTTLE, ["idle", "unknown"]),
        ("throttle_reasons", "idle,of_tomorrow", THROTTLE, ["idle", "unknown"]),
        ("xids", "none", XIDS, []),
        ("xids", "79:1,31:1", XIDS, ['gpu="0",xid="31"', 'gpu="0",xid="79"']),
        ("xids", "31:x,:,31:,79:1,-1:5,31:99999999999999999999", XIDS, ['gpu="0",xid="79"']),
        ("xids", "31:1,031:7", XIDS, ['gpu="0",xid="31"']),
        ("ecc_mode", "half", "gpud_gpu_ecc_enabled", []),
        ("exposed", "perhaps", "gpud_gpu_exposed", []),
        ("vbios_version", "95.04", INFO, []),  # neither a name nor a UUID
        ("driver_version", "595.71", DRIVER, ['driver_version="595.71"']),
    ],
)  # fmt: skip
def test_reading_becomes_series(
    field: str, value: str | Absent, name: str, labels: list[str]
) -> None:
    expected = dict.fromkeys(labels, 1.0)
    if name == THROTTLE:  # every reason is there, and holds or does not
        words = (*fields.THROTTLE_REASONS, "unknown")
        expected = {f'gpu="0",reason="{word}"': float(word in labels) for word in words}
    assert series(scrape(answered(answer(reading(field, value)))), name) == expected


def test_gpu_that_only_a_program_shows_has_an_identity() -> None:
    readings = (
        reading("uuid", "GPU-1"),
        reading("name", "RTX\n4070"),
        reading("pci_bus_id", "0000:c1:00.0"),
        reading("driver_version", "595.71"),
    )
    snapshot = answered(answer(*readings, source="nvidia_smi_exe"))
    assert list(series(scrape(snapshot), INFO)) == [
        'driver_version="595.71",gpu="0",name="RTX4070",pci_bus_id="00000000:C1:00.0",uuid="GPU-1"'
    ]


@pytest.mark.parametrize(
    ("inventory", "expected"),
    [
        (Inventory((snapshots.DEVICE,), "12.8"), {'cuda_version="12.8"'}),
        (Inventory((snapshots.DEVICE,), None), {'cuda_version="12.9"'}),
        (Inventory((replace(snapshots.DEVICE, mig="1g.10gb"),), None), {'mig="1g.10gb"'}),
        (Inventory((replace(snapshots.DEVICE, mps=True),), None), {'mps="true"'}),
    ],
)
def test_identity_of_cuda_comes_before_that_of_others(
    inventory: Inventory, expected: set[str]
) -> None:
    readings = (
        reading("uuid", snapshots.DEVICE.uuid),
        reading("name", "another name"),
        reading("vbios_version", "95.04"),
        reading("cuda_version", "12.9"),
    )
    before = inventory_taken(inventory, 0.0)(snapshots.bare())
    [result] = series(scrape(answered(answer(*readings), before=before)), INFO)
    assert set(re.findall(r'(?:cuda_version|m(?:ig|ps))="[^"]*"', result)) >= expected
    assert ("mig=" in result, "mps=" in result) == (
        "mig=" in str(expected),
        "mps=" in str(expected),
    )
    assert "another name" not in result
    assert 'vbios_version="95.04"' in result


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
READING = st.tuples(
    st.sampled_from(range(3)), st.sampled_from(sorted(FIELDS)), RAW, st.sampled_from(FACTORS)
)


def converted(gpu: int, field: str, raw: object, factor: float) -> Reading:
    """What a source makes of what a driver gave: by the conversions that all of them share."""
    number = scaled(raw, factor) if isinstance(raw, int | float) else raw
    return reading(field, plausible(field, number), gpu)


def is_sound(snapshot: Snapshot) -> None:
    """Hold what any scrape must: it parses, no series is twice, no number is beyond a reading."""
    for parse, accept in ((parse_text, ""), (parse_openmetrics, OPENMETRICS)):
        series_names = set()
        for family in parse(scrape(snapshot, accept=accept, given=settings("dcgm"))):
            for each in family.samples:
                assert 0 <= each.value < 2**53, each
                key = (each.name, tuple(sorted(each.labels.items())))
                assert key not in series_names
                series_names.add(key)


@hypothesis.settings(max_examples=50)
@given(st.lists(READING, max_size=40), st.sampled_from(LEVELS[1:]), st.lists(READING, max_size=5))
def test_scrape_is_valid_whatever_drivers_return(
    asked: list[Any], source: str, better: list[Any]
) -> None:
    first = answer(*(converted(*each) for each in asked), source=source)
    is_sound(answered(first, answer(*(converted(*each) for each in better))))
