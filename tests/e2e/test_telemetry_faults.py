"""Whatever a telemetry source does, the rest goes on: probes, scrapes, and the truth in them."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud.core.telemetry import LEVELS
from tests.agent.telemetry import smi_world
from tests.agent.telemetry.smi_world import World
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
MORE_KB = 16 << 10
"""By which the agent may grow: a program's answer of a GB is not kept."""

Failures = list[tuple[str, str]]


def hanging_nvml(gpud: Program, stack: contextlib.ExitStack) -> tuple[str, Failures]:
    """NVML hangs in a query after some that were well."""
    del stack
    gpud.settings["nvml"] = nvml(gpud.home, "hang nvmlDeviceGetPowerUsage 3\n")
    return "hung", [("nvml", "hung")]


def broken_program(gpud: Program, stack: contextlib.ExitStack) -> tuple[str, Failures]:
    """WSL without NVML, and an nvidia-smi.exe that never stops writing."""
    gpud.sysroot = str(gpud.home)
    world = World(gpud.home)
    world.kernel(smi_world.WSL2)
    world.file("starts", "", mode=0o666)
    stack.enter_context(world.interop())
    (gpud.home / "run/WSL/8_interop").chmod(0o777)
    world.program(smi_world.EXE, "exec head -c 1000000000 /dev/zero")
    return "library_missing", [("nvidia_smi_exe", "bad_output")]


def peak_kb(pid: int) -> int:
    """The most memory that a process has held."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


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


@pytest.mark.parametrize("fault", [hanging_nvml, broken_program])
def test_whatever_the_sources_do_probes_and_scrapes_go_on(fault: object) -> None:
    with contextlib.ExitStack() as stack:
        gpud = stack.enter_context(program(probes=only(*PROBES), schedule=PLAN))
        gpud.settings["cuda"] = cuda(gpud.home)
        reason, failures = fault(gpud, stack)  # type: ignore[operator]
        gpud.start()
        agent = until(gpud.agent_pid, "the agent")
        for probe in PROBES:
            until(lambda probe=probe: gpud.runs(probe), f"a run of {probe}")  # type: ignore[misc]
        before_kb = peak_kb(agent)
        with watched(gpud) as scrapes:
            for source, why in failures:
                until(
                    lambda source=source, why=why: gpud.value(  # type: ignore[misc]
                        "gpud_telemetry_source_failures_total", source=source, reason=why
                    ),
                    f"{source}: {why}",
                )
            health = gpud.health("nvml", 1, reason)
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
        assert peak_kb(agent) - before_kb < MORE_KB
        assert not {"Traceback", "job_failed", "task_failed"} & set(gpud.logs().split())
