"""Debian's Prometheus scrapes the whole gpud, also for dashboards made for dcgm-exporter."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.child.sweep import A_SMALL_GPU
from tests.e2e import scraping
from tests.e2e.driven import DATA_CENTRE
from tests.e2e.program import Program, cuda, nvml, only, program
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
def whole(dockerd: PrivateDockerd) -> Iterator[Program]:
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
def prometheus(whole: Program, tmp_path: Path) -> Iterator[int]:
    with scraping.prometheus(whole.port, tmp_path) as port:
        yield port


def families(port: int) -> set[str]:
    """The names of all series that Prometheus has, histograms by the name of their family."""
    names = set(api(port, "label/__name__/values") or ())
    return names | {name.removesuffix("_bucket") for name in names}


def target(port: int) -> tuple[str, str]:
    """How the last scrape went, and its error."""
    [only] = api(port, "targets")["activeTargets"]
    return only["health"], only["lastError"]


def test_scrapes_have_no_error_and_every_documented_family(whole: Program, prometheus: int) -> None:
    documented = set(re.findall(r"^\| `(gpud_\w+)`", DOCUMENT.read_text(), re.MULTILINE))
    expected = documented - ABSENT_HERE.keys()
    until(lambda: expected <= families(prometheus), "every documented family", every_s=1)
    until(lambda: target(prometheus) == ("up", ""), "a scrape without an error")
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=whole.get("/metrics"),
        capture_output=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


DASHBOARD = {
    'DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"}': 61,
    'avg(DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"})': 56.5,
    'DCGM_FI_DEV_POWER_USAGE{instance=~"$instance", gpu=~"$gpu"}': 140.5,
    'sum(DCGM_FI_DEV_POWER_USAGE{instance=~"$instance", gpu=~"$gpu"})': 220.5,
    'DCGM_FI_DEV_SM_CLOCK{instance=~"$instance", gpu=~"$gpu"} * 1000000': 2475e6,
    'DCGM_FI_DEV_GPU_UTIL{instance=~"$instance", gpu=~"$gpu"}': 37,
    'DCGM_FI_DEV_FB_USED{instance=~"$instance", gpu=~"$gpu"}': 3072,
}
"""The expressions of dashboard 12239 as it writes them, with the value of GPU 0, or of both."""

PROFILED = 'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{instance=~"$instance", gpu=~"$gpu"}'

BY_HOST = (
    'max(DCGM_FI_DEV_GPU_TEMP{Hostname=~"$Hostname", gpu=~"$gpu"}) by (Hostname, gpu, uuid)',
    'sum(max(DCGM_FI_DEV_POWER_USAGE{Hostname=~"$Hostname", gpu=~"$gpu"}) by (gpu))',
    'max(DCGM_FI_DEV_SM_CLOCK{Hostname=~"$Hostname", gpu=~"$gpu"}) by (Hostname, UUID, gpu)',
)
"""What versions of its file ask that choose the machine by another label."""

VARIABLES = ("instance", "gpu", "Hostname")
"""Each is label_values(DCGM_FI_DEV_GPU_TEMP, NAME)."""

CARDS = """
devices 2
device.0.temperature_c 61
device.1.temperature_c 52
device.0.power_mw 140500
device.1.power_mw 80000
device.0.memory_used_bytes 3221225472
device.0.memory_reserved_bytes 0
device.0.utilization_gpu_percent 37
device.0.clock_sm_mhz 2475
"""


def chosen(port: int, expression: str) -> str:
    """Fill in the variables as Grafana does with "All" chosen: every value it knows, as a regex."""
    for name in VARIABLES:
        values = api(port, f"label/{name}/values", **{"match[]": "DCGM_FI_DEV_GPU_TEMP"})
        either = "|".join(re.escape(value).replace("\\", "\\\\") for value in values)
        expression = expression.replace(f"${name}", f"({either})")
    return expression


def request(port: int, expression: str) -> list[float]:
    """The values of an expression, by GPU."""
    result = api(port, "query", query=chosen(port, expression))["result"]
    result.sort(key=lambda item: item["metric"].get("gpu", ""))
    return [float(item["value"][1]) for item in result]


def test_the_dashboard_of_dcgm_exporter_has_its_data(gpud: Program, tmp_path: Path) -> None:
    gpud.settings = {"export": {"compat": ["dcgm"]}, "probes": only("cpu_call")}
    gpud.settings["nvml"] = nvml(gpud.home, CARDS)
    gpud.start()
    gpud.health("nvml", 0)
    with scraping.prometheus(gpud.port, tmp_path) as port:
        until(
            lambda: (api(port, "query", query="DCGM_FI_DEV_FB_USED") or {}).get("result"),
            "the first scrape in Prometheus",
        )
        assert {item: request(port, item)[:1] for item in DASHBOARD} == {
            item: [value] for item, value in DASHBOARD.items()
        }
        for item in DASHBOARD:
            both = not item.startswith(("avg", "sum"))
            assert len(request(port, item)) == (2 if both else 1), item
        assert [len(request(port, item)) for item in BY_HOST] == [2, 1, 2]
        assert request(port, PROFILED) == []  # measured by nobody here, and made up by nobody
        types = api(port, "metadata", metric="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
        assert [item["type"] for item in types["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"]] == [
            "unknown"
        ]
