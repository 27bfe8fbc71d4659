"""Telemetry of NVML: kept by the minute for each GPU, and the rest goes on while it hangs."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import TYPE_CHECKING, Any

from gpud.core.telemetry import LEVELS
from tests.e2e.program import cuda, nvml, only, program
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.program import Program

    Scrape = dict[tuple[str, tuple[tuple[str, str], ...]], float]

NVML, CUDA = LEVELS.index("nvml"), LEVELS.index("cuda")
PLAN = {
    "telemetry_interval_s": 0.5,
    "small_interval_s": 2.5,
    "large_interval_s": 3600.0,
    "jitter_ratio": 0.0,
}
PROBES = ("launch", "cpu_call")


@contextlib.contextmanager
def watched(gpud: Program) -> Iterator[list[Scrape]]:
    """Scrape until the block ends; a scrape without an answer is empty."""
    scrapes: list[Scrape] = []
    ended = threading.Event()

    def scrape() -> None:
        while not ended.wait(0.2):
            scrapes.append(gpud.metrics())

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield scrapes
    finally:
        ended.set()
        thread.join()


def test_while_nvml_hangs_probes_and_scrapes_go_on() -> None:
    with program(probes=only(*PROBES), schedule=PLAN) as gpud:
        gpud.settings["cuda"] = cuda(gpud.home)
        gpud.settings["nvml"] = nvml(gpud.home, "hang nvmlDeviceGetPowerUsage 3\n")
        gpud.start()
        agent = until(gpud.agent_pid, "the agent")
        for probe in PROBES:
            until(lambda probe=probe: gpud.runs(probe), f"a run of {probe}")  # type: ignore[misc]
        with watched(gpud) as scrapes:
            until(
                lambda: gpud.value(
                    "gpud_telemetry_source_failures_total", source="nvml", reason="hung"
                ),
                "NVML hung",
            )
            health = gpud.health("nvml", 1, "hung")
            assert health["detail"]
            assert health["fix"]
            for probe in PROBES:
                gpud.more_runs(probe, 2)
        assert gpud.agent_pid() == agent
        assert all(scrapes), "every scrape had an answer"
        assert scrapes[-1]["gpud_telemetry_level", ()] == CUDA
        for scrape in scrapes:
            names = {name for name, _ in scrape}
            assert "gpud_probe_failures_total" not in names
            assert scrape["gpud_breaker_state", (("state", "closed"),)] == 1
            answered = scrape["gpud_telemetry_level", ()] == NVML
            assert ("gpud_gpu_temperature_celsius" in names) == answered, scrape
        assert not {"Traceback", "job_failed", "task_failed"} & set(gpud.logs().split())


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
