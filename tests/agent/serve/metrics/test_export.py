"""A scrape of a whole snapshot: byte for byte, documented, in both formats, in dcgm's names."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import structs
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from gpud.agent.measure.pace import Beat
from gpud.agent.serve.metrics import dcgm, machineid
from gpud.agent.state.facts import KINDS
from gpud.agent.state.snapshot import PaceState
from gpud.core.clock import Instant
from gpud.core.sample import Absent, Backend, Failure, Inventory, Reading, Reason, RunReport
from gpud.core.sections import ExportSettings
from gpud.document.machine import ChangeReport
from tests import snapshots
from tests.agent.serve.metrics.scraping import (
    OPENMETRICS,
    answer,
    answered,
    promtool,
    scrape,
    series,
    settings,
)
from tests.events import altered, inventory_taken, run_finished
from tests.events import changed as after_changes

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpud.agent.state.snapshot import Snapshot

NOW = snapshots.NOW
GOLDEN = Path(__file__).resolve().parents[3] / "golden"
DOCUMENT = Path(__file__).resolve().parents[4] / "docs/metrics.md"


def later(seconds: float) -> Instant:
    return Instant(NOW.wall_s + seconds, NOW.mono_s + seconds)


@pytest.mark.parametrize("make", [snapshots.full, snapshots.bare])
def test_scrape_is_the_golden_one_and_promtool_finds_no_fault(
    make: Callable[[], Snapshot], request: pytest.FixtureRequest
) -> None:
    path, text = GOLDEN / f"{make.__name__}.txt", scrape(make())
    if request.config.getoption("--update-golden"):
        path.write_text(text)
    assert text == path.read_text()
    assert promtool(text) == (0, "")


def test_openmetrics_has_the_same_series_and_parses() -> None:
    families = list(parse_openmetrics(scrape(snapshots.full(), accept=OPENMETRICS)))
    names = {sample.name for family in families for sample in family.samples}
    lines = [line for line in scrape(snapshots.full()).splitlines() if line[0] != "#"]
    assert names == {re.split(r"[{ ]", line)[0] for line in lines}


def test_every_family_is_documented_and_no_other() -> None:
    documented = re.findall(r"^\| `(gpud_\w+)`", DOCUMENT.read_text(), re.MULTILINE)
    exported = re.findall(r"^# TYPE (\w+)", scrape(snapshots.full()), re.MULTILINE)
    assert set(exported) == set(documented)


def test_failure_takes_the_figures_of_its_probe_away() -> None:
    failed = RunReport("triad", Backend.CUDA, failure=Failure(Reason.HUNG, "silent"))
    event = run_finished(failed, snapshots.DEVICE.uuid, NOW.wall_s, 95.0)
    text = scrape(event(snapshots.full()))
    assert 'gpud_probe_bytes_per_second{gpu="0",mode="triad",probe="triad"}' not in text
    assert 'gpud_probe_failures_total{probe="triad",reason="hung"} 1.0' in text
    assert 'gpud_probe_duration_seconds{gpu="0",probe="triad"}' not in text  # the child is silent


def test_figures_that_are_too_old_are_not_published() -> None:
    woken = scrape(snapshots.full(), Instant(NOW.wall_s + 86400, NOW.mono_s + 10))
    assert "gpud_probe_latency_median_seconds" not in woken
    text = scrape(snapshots.full(), later(86400))
    assert "gpud_gpu_temperature_celsius" not in text
    assert "gpud_probe_latency_median_seconds" not in text
    assert "gpud_probe_last_success_timestamp_seconds" in text


def test_figures_stay_for_three_of_the_intervals_that_hold_now() -> None:
    stretched = PaceState(Beat(600.0, 4 * 3600.0, 60.0, 900.0), 200, 250)
    snapshot = structs.replace(snapshots.full(), pace=stretched)
    text = scrape(snapshot, later(12 * 3600))
    assert 'gpud_probe_latency_median_seconds{gpu="0"' in text
    assert 'probe="cpu_call"' not in "".join(series(text, "gpud_probe_latency_median_seconds"))
    assert series(text, "gpud_probe_interval_seconds")['probe="launch"'] == 4 * 3600
    assert 'gpud_probe_latency_median_seconds{gpu="0"' not in scrape(snapshot, later(13 * 3600))


@pytest.mark.parametrize(("later_s", "published"), [(4000, True), (60_000, True), (70_000, False)])
def test_container_figure_lives_by_its_own_interval(later_s: float, *, published: bool) -> None:
    figure = 'gpud_probe_flops_per_second{gpu="0",mode="nbody",probe="container_nbody"}'
    assert (figure in scrape(snapshots.full(), later(later_s))) is published


@pytest.mark.parametrize("missing", ["roundtrip", "pipelined", None])
def test_ratio_needs_both_latencies_of_one_run(missing: str | None) -> None:
    whole = snapshots.launches()
    samples = tuple(sample for sample in whole.samples if sample.mode != missing)
    report = replace(whole, samples=samples)
    event = run_finished(report, snapshots.DEVICE.uuid, NOW.wall_s, NOW.mono_s)
    ratio = series(scrape(event(snapshots.full())), "gpud_submit_roundtrip_to_pipelined_ratio")
    assert ratio == ({} if missing else {'gpu="0"': 6.0})


def test_silent_root_has_no_dockerd_families() -> None:
    assert "gpud_dockerd" not in scrape(altered(snapshots.full(), report=None))


@pytest.mark.parametrize(
    ("changes", "count", "latest"),
    [
        ((("A", "B", 10.0), ("B", "A", 20.0), ("A", "B", 30.0)), 3.0, {"A": 20.0, "B": 30.0}),
        (((None, "A", 10.0),), 0.0, {}),  # the first sight of a version is no change
        ((("", "," * 5000, 10.0),), 1.0, {"," * 128: 10.0}),
    ],
    ids=["there and back", "first", "a long list"],
)
def test_change_counts_each_time_and_keeps_its_latest_moment(
    changes: tuple[tuple[str | None, str, float], ...], count: float, latest: dict[str, float]
) -> None:
    made = tuple(ChangeReport("driver_version", *change, "boot") for change in changes)
    text = scrape(after_changes(made, NOW.wall_s)(snapshots.bare()))
    counts = {f'kind="{kind}"': 0.0 for kind in KINDS} | {'kind="driver_version"': count}
    assert series(text, "gpud_changes_total") == counts
    assert series(text, "gpud_change_timestamp_seconds") == {
        f'kind="driver_version",to="{to}"': at_s for to, at_s in latest.items()
    }


def test_an_id_is_made_once_and_stays_whatever_the_host_is_called(tmp_path: Path) -> None:
    first = machineid.facts(str(tmp_path), "DESKTOP-1234567")
    again = machineid.facts(str(tmp_path), "renamed")
    assert re.fullmatch(r"[0-9a-f]{32}", first["machine_id"])
    assert again == {"hostname": "renamed", "machine_id": first["machine_id"]}
    [path] = tmp_path.iterdir()
    assert (path.name, path.stat().st_mode & 0o777) == (machineid.NAME, 0o644)
    (tmp_path / "other").mkdir()
    assert machineid.facts(str(tmp_path / "other"), "renamed") != again


def test_a_file_that_holds_no_id_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / machineid.NAME
    for stored in ("", "x" * 32, "0" * 31, '0123"}\n'):
        path.write_text(stored)
        made = machineid.facts(str(tmp_path), "laptop")["machine_id"]
        assert path.read_text() == f"{made}\n"
        assert machineid.ID.fullmatch(made)


def test_an_id_that_cannot_be_kept_is_none(tmp_path: Path) -> None:
    (tmp_path / machineid.NAME).mkdir()
    assert machineid.facts(str(tmp_path), "laptop\x1b[0m") == {"hostname": "laptop[0m"}
    assert [path.name for path in tmp_path.iterdir()] == [machineid.NAME]
    assert machineid.facts("/proc/nowhere", "laptop") == {"hostname": "laptop"}


# --- the names of dcgm-exporter, as its dashboards expect them, and nothing made up for them ---


DCGM_GOLDEN = GOLDEN / "dcgm.txt"
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
        DCGM_GOLDEN.write_text(names)
    assert names == DCGM_GOLDEN.read_text()
    assert others == scrape(whole())


def test_every_name_is_documented_with_its_type() -> None:
    table = re.findall(r"^\| `(DCGM_FI_\w+)` \| (\w+) \|", DOCUMENT.read_text(), re.MULTILINE)
    text = scrape(whole(), given=COMPATIBLE)
    assert re.findall(r"^# TYPE (DCGM_FI_\w+) (\w+)$", text, re.MULTILINE) == table


def test_counter_is_of_unknown_type_where_counters_end_in_total() -> None:
    types = {}
    for family in parse_openmetrics(scrape(whole(), accept=OPENMETRICS, given=COMPATIBLE)):
        types[family.name] = family.type
    counters = [row.name for row in dcgm.ROWS if row.field.endswith("_total")]
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
