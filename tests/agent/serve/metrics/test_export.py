"""A scrape of a whole snapshot: byte for byte, documented, in both formats."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import structs
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from gpud.agent.measure.pace import Beat
from gpud.agent.serve.metrics import machineid
from gpud.agent.state.facts import KINDS
from gpud.agent.state.snapshot import PaceState
from gpud.core.clock import Instant
from gpud.core.sample import Backend, Failure, Reason, RunReport
from gpud.document.machine import ChangeReport
from tests import snapshots
from tests.agent.serve.metrics.scraping import OPENMETRICS, promtool, scrape, series
from tests.events import altered, run_finished
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
    event = run_finished(report, snapshots.DEVICE.uuid, 0.0, NOW.mono_s)
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
