"""The names of dcgm-exporter, as its dashboards expect them, and nothing made up for them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import structs
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from gpud.agent.serve.metrics import dcgm
from gpud.agent.telemetry.fields import FIELDS, FieldKind
from gpud.core.sample import Absent, Inventory, Reading
from gpud.core.sections import ExportSettings
from tests import snapshots
from tests.agent.serve.metrics.scraping import (
    OPENMETRICS,
    answer,
    answered,
    promtool,
    scrape,
    settings,
)
from tests.events import inventory_taken

if TYPE_CHECKING:
    from gpud.agent.state.snapshot import Snapshot

TESTS = Path(__file__).resolve().parents[3]
GOLDEN = TESTS / "golden/dcgm.txt"
DOCUMENT = TESTS.parent / "docs/metrics.md"
COMPATIBLE = settings("dcgm")
LINE = re.compile(r"^(DCGM_FI_\w+)\{(.*)\} (\S+)$", re.MULTILINE)


def compatible(*readings: Reading, source: str = "nvml", before: Snapshot | None = None) -> str:
    named = (replace(reading, source=source) for reading in readings)
    return scrape(answered(answer(*named, source=source), before=before), given=COMPATIBLE)


def whole() -> Snapshot:
    """Everything, the one withheld field too."""
    present = {reading.field: reading for reading in snapshots.READINGS}
    present["utilization_memory_ratio"] = Reading(0, "utilization_memory_ratio", 0.29, "nvml")
    return answered(answer(*present.values()), before=snapshots.full())


def apart(text: str) -> tuple[str, str]:
    """The lines of these names, and all others."""
    lines = text.splitlines(keepends=True)
    return (
        "".join(line for line in lines if dcgm.PREFIX in line.partition("{")[0]),
        "".join(line for line in lines if dcgm.PREFIX not in line.partition("{")[0]),
    )


def test_names_are_golden_and_gpuds_own_stay_as_they_are(request: pytest.FixtureRequest) -> None:
    names, others = apart(scrape(whole(), given=COMPATIBLE))
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(names)
    assert names == GOLDEN.read_text()
    assert others == scrape(whole())


def test_every_name_is_documented_with_its_type() -> None:
    table = re.findall(r"^\| `(DCGM_FI_\w+)` \| (\w+) \|", DOCUMENT.read_text(), re.MULTILINE)
    text = scrape(whole(), given=COMPATIBLE)
    assert re.findall(r"^# TYPE (DCGM_FI_\w+) (\w+)$", text, re.MULTILINE) == table


def test_counter_is_of_unknown_type_where_counters_end_in_total() -> None:
    types = {}
    for family in parse_openmetrics(scrape(whole(), accept=OPENMETRICS, given=COMPATIBLE)):
        types[family.name] = family.type
    counters = [row.name for row in dcgm.ROWS if FIELDS[row.field].kind is FieldKind.COUNTER]
    assert {row.name: types[row.name] for row in dcgm.ROWS} == {
        row.name: "unknown" if row.name in counters else "gauge" for row in dcgm.ROWS
    }


@pytest.mark.parametrize("source", ["nvml", "nvidia_smi_exe", "cuda", "dxg"])
def test_only_readings_of_nvml_and_nvidia_smi_are_exported(source: str) -> None:
    gpus = (reading for reading in snapshots.READINGS if reading.gpu is not None)
    assert bool(LINE.findall(compatible(*gpus, source=source))) is (source not in {"cuda", "dxg"})


@pytest.mark.parametrize("half", [0, 1])
def test_missing_reading_is_not_made_from_another(half: int) -> None:
    gone = dcgm.ROWS[half::2]
    fields = {row.field for row in gone}
    present = whole().telemetry.answers["nvml"].readings
    rest = [reading for reading in present if reading.field not in fields]
    text = compatible(*rest, *(Reading(0, name, Absent.UNSUPPORTED, "nvml") for name in fields))
    names = {name for name, _, _ in LINE.findall(text)}
    assert names == {row.name for row in dcgm.ROWS} - {row.name for row in gone}


def test_whole_numbers_are_cut_off_where_dcgm_does_so() -> None:
    text = compatible(
        Reading(0, "memory_used_bytes", 1484783616.0 + 65536, "nvml"),  # 1416 MiB and a bit
        Reading(0, "memory_free_bytes", 2**30 - 1.0, "nvml"),
        Reading(0, "utilization_gpu_ratio", 29 / 100, "nvml"),  # 28.999999999999996 %
        Reading(0, "energy_joules_total", 93154.288, "nvml"),
        Reading(0, "power_watts", 16.42, "nvml"),
    )
    values = {name.removeprefix("DCGM_FI_DEV_"): float(v) for name, _, v in LINE.findall(text)}
    assert values == {
        "FB_USED": 1416,
        "FB_FREE": 1023,
        "GPU_UTIL": 29,
        "TOTAL_ENERGY_CONSUMPTION": 93154288,
        "POWER_USAGE": 16.42,
    }


def test_promtool_finds_fault_with_the_style_of_dcgms_names_alone() -> None:
    _, findings = promtool(scrape(whole(), given=COMPATIBLE))
    parts = [line.partition(" ") for line in findings.splitlines()]
    assert {finding for _, _, finding in parts} == {
        "label names should be written in 'snake_case' not 'camelCase'",
        'counter metrics should have "_total" suffix',
        "metric name should not include type 'counter'",
    }
    assert all(name.startswith(dcgm.PREFIX) for name, _, _ in parts)


@pytest.mark.parametrize(
    ("code", "meaning"),
    [(0, "No Error"), (79, "GPU has fallen off the bus"), (999, "Unknown Error")],
)
def test_xid_has_its_meaning_in_a_label(code: int, meaning: str) -> None:
    [(name, labels, value)] = LINE.findall(compatible(Reading(0, "xid_last", float(code), "nvml")))
    assert (name, value) == ("DCGM_FI_DEV_XID_ERRORS", f"{code}.0")
    assert f'err_code="{code}",err_msg="{meaning}"' in labels


def test_mig_instance_has_its_profile_and_not_the_memory_of_the_whole_card() -> None:
    instance = replace(snapshots.DEVICE, uuid="MIG-1", mig="1g.10gb")
    listed = inventory_taken(Inventory((instance,), "12.8"), 0.0)(snapshots.bare())
    text = compatible(*snapshots.READINGS, before=listed)
    labels = [labels for _, labels, _ in LINE.findall(text)]
    assert labels
    assert all('GPU_I_PROFILE="1g.10gb"' in each for each in labels)
    assert all(f'UUID="{snapshots.DEVICE.uuid}"' in each for each in labels)
    assert not re.search("GPU_I_ID|DCGM_FI_DEV_FB_|gpud_gpu_memory_used_bytes{", text)


def test_withheld_identity_is_no_label() -> None:
    withheld = [Reading(0, field, Absent.UNSUPPORTED, "nvml") for field in ("uuid", "name")]
    [line] = LINE.findall(compatible(*withheld, Reading(0, "power_watts", 1.5, "nvml")))
    labels = 'Hostname="laptop[0m",device="nvidia0",gpu="0"'
    assert line == ("DCGM_FI_DEV_POWER_USAGE", labels, "1.5")


def test_label_of_the_host_may_be_written_small() -> None:
    small = structs.replace(
        COMPATIBLE, export=ExportSettings(compat=("dcgm",), hostname_label="hostname")
    )
    text = scrape(whole(), given=small)
    assert 'Hostname="' not in text
    assert 'hostname="laptop[0m"' in text
