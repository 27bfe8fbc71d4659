"""A scrape of a whole snapshot: byte for byte, documented, in both formats."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from gpud.agent.regression.changes import KINDS, MachineChange
from gpud.core.clock import Instant
from gpud.core.sample import Backend, Failure, Reason, RunReport
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


def test_cpu_probe_never_carries_a_gpu() -> None:
    lines = [line for line in scrape(snapshots.full()).splitlines() if 'probe="cpu_' in line]
    assert lines
    assert not [line for line in lines if re.search(r'gpu="[^"]', line)]


def test_silent_root_has_no_dockerd_families() -> None:
    assert "gpud_dockerd" not in scrape(altered(snapshots.full(), report=None))


def changed(*changes: tuple[str | None, str, float], kind: str = "driver_version") -> str:
    made = tuple(MachineChange(kind, old, new, at_s, "boot") for old, new, at_s in changes)
    return scrape(after_changes(made, NOW.wall_s)(snapshots.bare()))


def test_change_there_and_back_counts_each_time_and_keeps_the_latest_moment() -> None:
    text = changed(("A", "B", 10.0), ("B", "A", 20.0), ("A", "B", 30.0))
    assert series(text, "gpud_changes_total") == {
        f'kind="{kind}"': 3.0 if kind == "driver_version" else 0.0 for kind in KINDS
    }
    assert series(text, "gpud_change_timestamp_seconds") == {
        'kind="driver_version",to="A"': 20,
        'kind="driver_version",to="B"': 30,
    }


def test_first_sight_of_a_version_is_no_change() -> None:
    text = changed((None, "A", 10.0))
    assert set(series(text, "gpud_changes_total").values()) == {0}
    assert "gpud_change_timestamp_seconds" not in text


def test_list_of_sixty_four_gpus_is_cut_in_its_label() -> None:
    uuids = ",".join(f"GPU-{number:036}" for number in range(64))
    [labels] = series(changed(("", uuids, 10.0), kind="gpus"), "gpud_change_timestamp_seconds")
    assert len(labels) < 160
