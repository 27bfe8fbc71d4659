"""The names of dcgm-exporter, as its dashboards expect them, and nothing made up for them."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from gpud.agent.serve.metrics import dcgm
from gpud.agent.telemetry.answers import Answer
from gpud.agent.telemetry.fields import FIELDS, FieldKind
from gpud.core.clock import Instant
from gpud.core.sample import Absent, Inventory, Reading
from gpud.core.sections import ExportSettings
from gpud.core.telemetry import LEVELS
from tests import snapshots
from tests.agent.serve.metrics.scraping import OPENMETRICS, scrape, settings
from tests.events import inventory_taken, source_answered

if TYPE_CHECKING:
    from gpud.agent.state.snapshot import Snapshot

NOW = snapshots.NOW
TESTS = Path(__file__).resolve().parents[3]
GOLDEN = TESTS / "golden/dcgm.txt"
DOCUMENT = TESTS.parent / "docs/metrics.md"
COMPATIBLE = settings("dcgm")


def told(*readings: Reading, source: str = "nvml", before: Snapshot | None = None) -> Snapshot:
    said = tuple(replace(one, source=source) for one in readings)
    answer = Answer(source, LEVELS.index(source), NOW.wall_s, NOW.mono_s, said)
    return source_answered(answer, NOW.wall_s)(before or snapshots.bare())


def apart(text: str) -> tuple[str, str]:
    """The lines of these names, and all others."""
    lines = text.splitlines(keepends=True)
    ours = [dcgm.PREFIX in line.partition("{")[0] for line in lines]
    return (
        "".join(line for line, is_ours in zip(lines, ours, strict=True) if is_ours),
        "".join(line for line, is_ours in zip(lines, ours, strict=True) if not is_ours),
    )


def whole() -> Snapshot:
    """Everything known, the one withheld field too."""
    known = {one.field: one for one in snapshots.READINGS}
    known["utilization_memory_ratio"] = Reading(0, "utilization_memory_ratio", 0.29, "nvml")
    return told(*known.values(), before=snapshots.full())


def test_the_names_are_those_that_were_agreed(request: pytest.FixtureRequest) -> None:
    got, _ = apart(scrape(whole(), given=COMPATIBLE))
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(got)
    assert got == GOLDEN.read_text()


def test_gpuds_own_names_stay_what_they_are() -> None:
    assert apart(scrape(whole(), given=COMPATIBLE))[1] == scrape(whole())


@pytest.mark.parametrize("accept", ["", "text/plain; version=1.0.0", OPENMETRICS])
def test_they_are_there_only_when_asked_for(accept: str) -> None:
    assert dcgm.PREFIX not in scrape(whole(), accept=accept)
    assert dcgm.PREFIX in scrape(whole(), accept=accept, given=COMPATIBLE)


def test_every_name_is_documented_with_its_type_and_nothing_else_is() -> None:
    table = re.findall(r"^\| `(DCGM_FI_\w+)` \| (\w+) \|", DOCUMENT.read_text(), re.MULTILINE)
    text = scrape(whole(), given=COMPATIBLE)
    assert re.findall(r"^# TYPE (DCGM_FI_\w+) (\w+)$", text, re.MULTILINE) == table


def test_a_counter_is_one_in_text_and_of_unknown_type_where_counters_end_in_total() -> None:
    counters = {row.name for row in dcgm.ROWS if FIELDS[row.field].kind is FieldKind.COUNTER}
    assert len(counters) == 6
    text = scrape(whole(), given=COMPATIBLE)
    for family in parse_openmetrics(scrape(whole(), accept=OPENMETRICS, given=COMPATIBLE)):
        if family.name.startswith(dcgm.PREFIX):
            counts = family.name in counters
            assert family.type == ("unknown" if counts else "gauge")
            assert f"# TYPE {family.name} {'counter' if counts else 'gauge'}\n" in text
            assert [one.name for one in family.samples] == [family.name]


@pytest.mark.parametrize("source", LEVELS[1:])
def test_only_what_nvml_or_nvidia_smi_has_read_is_told(source: str) -> None:
    read = told(*(one for one in snapshots.READINGS if one.gpu is not None), source=source)
    names = set(re.findall(r"^(DCGM_FI_\w+)\{", scrape(read, given=COMPATIBLE), re.MULTILINE))
    assert bool(names) is (source not in {"cuda", "dxg"})


@pytest.mark.parametrize("row", dcgm.ROWS, ids=lambda row: row.name)
def test_what_is_not_read_is_not_made_from_something_else(row: dcgm.Row) -> None:
    known = {one.field: one for one in whole().telemetry.answers["nvml"].readings}
    without = told(
        *(one for field, one in known.items() if field != row.field),
        Reading(0, row.field, Absent.UNSUPPORTED, "nvml"),
    )
    text = scrape(without, given=COMPATIBLE)
    names = set(re.findall(r"^(DCGM_FI_\w+)\{", text, re.MULTILINE))
    assert names == {other.name for other in dcgm.ROWS} - {row.name}


def test_whole_numbers_are_cut_off_where_dcgm_does_so_and_power_is_not() -> None:
    read = told(
        Reading(0, "memory_used_bytes", 1484783616.0 + 65536, "nvml"),  # 1416 MiB and a bit
        Reading(0, "memory_free_bytes", 2**30 - 1.0, "nvml"),
        Reading(0, "utilization_gpu_ratio", 29 / 100, "nvml"),  # 28.999999999999996 %
        Reading(0, "energy_joules_total", 93154.288, "nvml"),
        Reading(0, "power_watts", 16.42, "nvml"),
    )
    text = scrape(read, given=COMPATIBLE)
    found = re.findall(r"^DCGM_FI_DEV_(\w+)\{.*\} (\S+)$", text, re.MULTILINE)
    assert {name: float(value) for name, value in found} == {
        "FB_USED": 1416,
        "FB_FREE": 1023,
        "GPU_UTIL": 29,
        "TOTAL_ENERGY_CONSUMPTION": 93154288,
        "POWER_USAGE": 16.42,
    }


def test_promtool_minds_the_names_that_are_so_and_nothing_else() -> None:
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=scrape(whole(), given=COMPATIBLE),
        capture_output=True,
        text=True,
        check=False,
    )
    words = {
        "label names should be written in 'snake_case' not 'camelCase'",
        'counter metrics should have "_total" suffix',
        "metric name should not include type 'counter'",
    }
    minded = [line.partition(" ") for line in (checked.stdout + checked.stderr).splitlines()]
    assert {said for _, _, said in minded} == words
    assert all(name.startswith(dcgm.PREFIX) for name, _, _ in minded)


def test_what_is_too_old_is_absent() -> None:
    later = Instant(NOW.wall_s + 3600, NOW.mono_s + 3600)
    assert dcgm.PREFIX not in scrape(whole(), later, given=COMPATIBLE)


@pytest.mark.parametrize(
    ("code", "words"), [(0, "No Error"), (79, "GPU has fallen off the bus"), (999, "Unknown Error")]
)
def test_an_xid_says_what_it_means(code: int, words: str) -> None:
    text = scrape(told(Reading(0, "xid_last", float(code), "nvml")), given=COMPATIBLE)
    [line] = re.findall(r"^DCGM_FI_DEV_XID_ERRORS\{.*", text, re.MULTILINE)
    assert f'err_code="{code}",err_msg="{words}"' in line
    assert line.endswith(f" {code}.0")


def test_an_instance_names_its_profile_and_not_the_memory_of_the_whole_card() -> None:
    instance = replace(snapshots.DEVICE, uuid="MIG-1", mig="1g.10gb")
    listed = inventory_taken(Inventory((instance,), "12.8"), 0.0)(snapshots.bare())
    text = scrape(told(*snapshots.READINGS, before=listed), given=COMPATIBLE)
    lines = re.findall(r"^DCGM_FI_\w+\{.*", text, re.MULTILINE)
    assert lines
    assert all('GPU_I_PROFILE="1g.10gb"' in line for line in lines)
    assert all(f'UUID="{snapshots.DEVICE.uuid}"' in line for line in lines)
    assert "GPU_I_ID" not in text
    assert "DCGM_FI_DEV_FB_" not in text
    assert "gpud_gpu_memory_used_bytes{" not in text


def test_an_identity_that_is_withheld_is_no_label() -> None:
    withheld = [Reading(0, field, Absent.UNSUPPORTED, "nvml") for field in ("uuid", "name")]
    text = scrape(told(*withheld, Reading(0, "power_watts", 1.5, "nvml")), given=COMPATIBLE)
    [line] = re.findall(r"^DCGM_FI_\w+\{.*", text, re.MULTILINE)
    assert line == ('DCGM_FI_DEV_POWER_USAGE{Hostname="laptop[0m",device="nvidia0",gpu="0"} 1.5')


def test_the_label_of_the_host_may_be_written_small() -> None:
    small = replace(COMPATIBLE, export=ExportSettings(compat=("dcgm",), hostname_label="hostname"))
    text = scrape(whole(), given=small)
    assert 'Hostname="' not in text
    assert 'hostname="laptop[0m"' in text


def test_a_name_from_outside_cannot_end_its_line() -> None:
    said = (
        Reading(0, "name", 'evil"} 1\n# TYPE DCGM_FI_DEV_X untyped\nX{a="', "nvml"),
        Reading(0, "power_watts", 1.0, "nvml"),
    )
    text = scrape(told(*said), given=COMPATIBLE)
    assert "DCGM_FI_DEV_X untyped" in text
    assert not re.search(r"^(# TYPE DCGM_FI_DEV_X|X)", text, re.MULTILINE)
