"""What a scrape says of a snapshot, byte for byte."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from gpud.core.clock import Instant
from gpud.core.sample import Backend, Failure, Reason, RunReport
from tests import snapshots
from tests.agent.serve.metrics import scraping
from tests.agent.serve.metrics.scraping import OPENMETRICS
from tests.events import altered, run_finished

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpud.agent.state.snapshot import Snapshot

GOLDEN = Path(__file__).resolve().parents[3] / "golden"
DOCUMENT = Path(__file__).resolve().parents[4] / "docs/metrics.md"


def scrape(snapshot: Snapshot, now: Instant = snapshots.NOW) -> str:
    return scraping.scrape(snapshot, now)


@pytest.mark.parametrize("make", [snapshots.full, snapshots.bare])
def test_a_scrape_is_the_one_that_was_agreed(
    make: Callable[[], Snapshot], request: pytest.FixtureRequest
) -> None:
    path = GOLDEN / f"{make.__name__}.txt"
    got = scrape(make())
    if request.config.getoption("--update-golden"):
        path.write_text(got)
    assert got == path.read_text()


@pytest.mark.parametrize("make", [snapshots.full, snapshots.bare])
def test_promtool_finds_nothing_to_say(make: Callable[[], Snapshot]) -> None:
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=scrape(make()),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_openmetrics_says_the_same_and_parses() -> None:
    families = list(parse_openmetrics(scraping.scrape(snapshots.full(), accept=OPENMETRICS)))
    names = {sample.name for family in families for sample in family.samples}
    assert names == {
        line.partition("{")[0].partition(" ")[0]
        for line in scrape(snapshots.full()).splitlines()
        if not line.startswith("#")
    }


def test_every_family_is_documented_and_nothing_else_is() -> None:
    documented = set(re.findall(r"^\| `(gpud_\w+)`", DOCUMENT.read_text(), re.MULTILINE))
    exported = {
        line.split()[2]
        for line in scrape(snapshots.full()).splitlines()
        if line.startswith("# TYPE")
    }
    assert exported == documented


def test_a_failure_takes_the_figures_of_its_probe_with_it() -> None:
    failed = RunReport("triad", Backend.CUDA, failure=Failure(Reason.HUNG, "silent"))
    gone = run_finished(failed, snapshots.DEVICE.uuid, snapshots.NOW.wall_s, 95.0)
    after = gone(snapshots.full())
    assert 'gpud_probe_bytes_per_second{gpu="0",mode="triad",probe="triad"}' not in scrape(after)
    assert 'gpud_probe_failures_total{probe="triad",reason="hung"} 1.0' in scrape(after)
    # How long it took is for the child to tell, and this one told nothing.
    assert 'gpud_probe_duration_seconds{gpu="0",probe="triad"}' not in scrape(after)


def test_figures_that_are_too_old_are_not_published() -> None:
    much_later = Instant(snapshots.NOW.wall_s + 86400, snapshots.NOW.mono_s + 86400)
    text = scrape(snapshots.full(), much_later)
    assert "gpud_gpu_temperature_celsius" not in text
    assert "gpud_probe_latency_median_seconds" not in text
    assert "gpud_probe_last_success_timestamp_seconds" in text


@pytest.mark.parametrize("gone", ["roundtrip", "pipelined"])
def test_the_ratio_needs_both_latencies_of_one_run(gone: str) -> None:
    whole = snapshots.launches()
    part = replace(whole, samples=tuple(each for each in whole.samples if each.mode != gone))
    name = "gpud_submit_roundtrip_to_pipelined_ratio"
    for report, published in ((whole, True), (part, False)):
        finished = run_finished(report, snapshots.DEVICE.uuid, 0.0, snapshots.NOW.mono_s)
        text = scrape(finished(snapshots.full()))
        assert (f'{name}{{gpu="0"}} 6.0' in text) is published
        assert (name in text) is published


def test_a_cpu_probe_never_carries_a_gpu() -> None:
    lines = [line for line in scrape(snapshots.full()).splitlines() if 'probe="cpu_' in line]
    assert lines
    assert not [line for line in lines if re.search(r'gpu="[^"]', line)]


def test_without_a_word_from_root_nothing_is_said_about_dockerd() -> None:
    silent = altered(snapshots.full(), report=None)
    assert "gpud_dockerd" not in scrape(silent)


def test_a_container_figure_lives_by_the_interval_of_its_own() -> None:
    figure = 'gpud_probe_flops_per_second{gpu="0",mode="nbody",probe="container_nbody"}'
    for later_s, published in ((4000, True), (60_000, True), (70_000, False)):
        moment = Instant(snapshots.NOW.wall_s + later_s, snapshots.NOW.mono_s + later_s)
        assert (figure in scrape(snapshots.full(), moment)) is published
