"""Debian's Prometheus scrapes the whole gpud."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.child.sweep import A_SMALL_GPU
from tests.e2e import scraping
from tests.e2e.driven import DATA_CENTRE
from tests.e2e.program import Program, cuda, nvml, program
from tests.e2e.scraping import api
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.dockerd import PrivateDockerd

DOCUMENT = Path(__file__).resolve().parent.parent.parent / "docs/metrics.md"

ABSENT_HERE = {
    "gpud_dockerd_restarts_total": "dockerd did not die",
    "gpud_probe_failures_total": "no run failed",
    "gpud_probe_skips_total": "no run was skipped",
    "gpud_health_reason_info": "all is well",
    "gpud_container_flops_ratio": "no container ran on a GPU",
    "gpud_container_verdict_info": "likewise",
    "gpud_breaker_retry_timestamp_seconds": "the driver answers",
    "gpud_probe_flag": "no run was marked",
    "gpud_probe_flagged_runs_total": "likewise",
    "gpud_probe_on_battery": "nobody tells of a battery",
    "gpud_telemetry_absent_info": "the stand-in's card tells everything",
    "gpud_telemetry_source_failures_total": "every source that was asked had an answer",
    "gpud_change_timestamp_seconds": "nothing changed",
    "gpud_gpu_contexts_budget": "this is not WSL2",
    "gpud_known_issue_info": "no known fault is about a container",
    "gpud_probe_latency_peak_seconds": "no latency had two humps",
    "gpud_probe_latency_peak_share_ratio": "likewise",
    "gpud_driver_verdict": "there is one driver",
    "gpud_http_certificate_expiry_timestamp_seconds": "plain HTTP on the loopback address",
    "gpud_baseline_bytes_per_second": "large probes have run a few times only",
    "gpud_baseline_flops_per_second": "likewise",
}
"""Families that docs/metrics.md says are absent when there is nothing to tell."""


@pytest.fixture
def gpud(dockerd: PrivateDockerd) -> Iterator[Program]:
    with program(dockerd=dockerd.settings()) as made:
        made.settings |= {
            "cuda": cuda(made.home, f"{A_SMALL_GPU}launch_ns 5000\n"),
            "gate": {"vram_free_min_bytes": 0},
            "nvml": nvml(made.home, DATA_CENTRE),
            "telemetry": {"pcie_throughput": True},
            "probes": {"disabled": []},
            "detector": {"update_span_s": 0, "window_span_s": 0},  # known after the first runs
        }
        made.start()
        for component in ("dockerd", "cuda", "nvml", "probes", "store"):
            made.health(component, 0)
        yield made


@pytest.fixture
def prometheus(gpud: Program, tmp_path: Path) -> Iterator[int]:
    with scraping.prometheus(gpud.port, tmp_path) as port:
        yield port


def families(port: int) -> set[str]:
    """The names of all series that Prometheus has, histograms by the name of their family."""
    names = set(api(port, "label/__name__/values") or ())
    return names | {name.removesuffix("_bucket") for name in names}


def target(port: int) -> tuple[str, str]:
    """How the last scrape went, and its error."""
    [only] = api(port, "targets")["activeTargets"]
    return only["health"], only["lastError"]


def test_scrapes_have_no_error_and_every_documented_family(gpud: Program, prometheus: int) -> None:
    documented = set(re.findall(r"^\| `(gpud_\w+)`", DOCUMENT.read_text(), re.MULTILINE))
    expected = documented - ABSENT_HERE.keys()
    until(lambda: expected <= families(prometheus), "every documented family", every_s=1)
    until(lambda: target(prometheus) == ("up", ""), "a scrape without an error")
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=gpud.get("/metrics"),
        capture_output=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
