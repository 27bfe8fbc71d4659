"""Telemetry of two GPUs from NVML to the history, and from there to API and command line."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.program import Program, nvml, only, program
from tests.waiting import until

CARDS = """
devices 2
device.0.temperature_c 61
device.0.power_mw 140500
device.0.clock_sm_mhz 2475
device.0.utilization_gpu_percent 37
device.0.memory_used_bytes 3000000000
device.0.memory_reserved_bytes 0
device.1.temperature_c 52
"""


def both(gpud: Program) -> list[dict[str, Any]]:
    """Give the series once both GPUs have one."""
    series = json.loads(gpud.get("/api/v1/telemetry"))["gpus"]
    return series if len(series) > 1 else []


def test_what_nvml_reads_is_kept_by_the_minute_for_each_gpu() -> None:
    schedule = {"telemetry_interval_s": 60.0, "small_interval_s": 1.0}
    with program(probes=only("cpu_call"), schedule=schedule) as gpud:
        gpud.settings["nvml"] = nvml(gpud.home, CARDS)
        gpud.start()
        gpud.health("nvml", 0)
        first, second = until(lambda: both(gpud), "telemetry of both GPUs", every_s=1.0)
        figures = {name: figure["maximum"] for name, figure in first["figures"].items()}
        assert {name: maximum[-1] for name, maximum in figures.items()} == {
            "temperature_celsius": 61,
            "power_watts": 140.5,
            "clock_sm_hertz": 2475e6,
            "clock_memory_hertz": figures["clock_memory_hertz"][-1],
            "utilization_gpu_ratio": 0.37,
            "memory_used_bytes": 3000000000,
        }
        assert second["figures"]["temperature_celsius"]["mean"][-1] == 52
        assert first["throttle"] is not None
        shown = gpud.cli("history", "--telemetry", "--gpu", "1", "--json")
        rows = json.loads(shown.stdout)["rows"]
        assert {row["gpu_uuid"] for row in rows} == {second["gpu"]}
        assert rows[-1]["temperature_celsius_mean"] == 52
