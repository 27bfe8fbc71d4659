"""Dashboards made for dcgm-exporter, asked of Debian's Prometheus scraping the whole gpud."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.e2e import scraping
from tests.e2e.program import Program, nvml, only, program
from tests.e2e.scraping import api
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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


@pytest.fixture
def gpud() -> Iterator[Program]:
    with program(export={"compat": ["dcgm"]}, probes=only("cpu_call")) as made:
        made.settings["nvml"] = nvml(made.home, CARDS)
        made.start()
        made.health("nvml", 0)
        yield made


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
