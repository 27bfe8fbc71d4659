"""Whatever a telemetry source does, the rest goes on: probes, scrapes, and the truth in them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

from gpud.agent.telemetry.sources.nvml import DEADLINE_S
from gpud.core.telemetry import LEVELS
from tests.agent.telemetry import smi_world
from tests.agent.telemetry.smi_world import World
from tests.e2e.program import Program, cuda, nvml, only, program
from tests.e2e.watching import Scrape, Scraping, scraping
from tests.standins.build import build_libnvml
from tests.waiting import until

NVML, CUDA = LEVELS.index("nvml"), LEVELS.index("cuda")
INTERVAL_S = 0.5
PLAN = {
    "telemetry_interval_s": INTERVAL_S,
    "small_interval_s": 2.5,
    "large_interval_s": 3600.0,
    "jitter_ratio": 0.0,
}
PATIENCE_S = 2.0
"""What a machine with other work may add to an interval."""
PROBES = ("launch", "cpu_call")
HELPER = "gpud.agent.telemetry.nvml"
PROGRAM = "nvidia-smi"


PROGRAMS = (
    (smi_world.EXE, "while :; do sleep 1; done", "nvidia_smi_exe", "hung"),
    ("usr/lib/wsl/lib/nvidia-smi", "exec head -c 1000000000 /dev/zero", "nvidia_smi", "bad_output"),
)
"""Where a program lies, its script, and the source and the reason that are reported."""
MANY = 50
MORE = 16 << 20
"""Bytes by which the agent may grow: a program's answer of a GB is not kept."""


class Watched:
    """One program with the settings of these tests, scraped all the time."""

    seen: Scraping

    def __init__(self, stack: contextlib.ExitStack, gpud: Program) -> None:
        self.gpud = gpud
        gpud.settings |= {
            "cuda": cuda(gpud.home),
            "probes": only(*PROBES),
            "schedule": PLAN,
        }
        gpud.start()
        stack.callback(gpud.stop)

    def watch(self, stack: contextlib.ExitStack) -> None:
        """Begin to scrape, and wait for the first runs."""
        agent = until(self.gpud.agent_pid, "the agent")
        until(self.gpud.metrics, "the first answer")
        self.seen = stack.enter_context(scraping(self.gpud.port, agent))
        self.seen.when(lambda one: min(runs(one).values()) > 0, "the first runs")

    def reached(self) -> None:
        """Wait until the fault is there, and look how it is told."""

    def silent(self, reason: str, within_s: float) -> None:
        """Wait until scrapes say that NVML is silent and CUDA is not; the fix is in the status."""
        self.seen.when(
            lambda one: (
                one.has("gpud_health_reason_info", 'component="nvml"', f'reason="{reason}"')
                and one.level == CUDA
            ),
            f"{reason} and the level of CUDA",
            within_s,
        )
        health = self.gpud.health("nvml", 1, reason)
        assert health["detail"]
        assert health["fix"]

    def goes_on(self) -> None:
        """Wait until each probe has run twice from now on."""
        before = runs(self.seen.when(lambda _: True, "a scrape"))
        self.seen.when(
            lambda one: all(count >= before[name] + 2 for name, count in runs(one).items()),
            "two more runs of each probe",
        )

    def unaffected(self) -> None:
        """Hold, when the scraping is over, that nothing but telemetry noticed anything."""
        assert self.gpud.agent_pid() == self.seen.pid
        assert [one.error for one in self.seen.scrapes if one.error] == []
        assert len(self.seen.scrapes) > MANY  # benchmarks/scrape.py --hung prints what one takes
        for one in self.seen.scrapes:
            assert not one.has("gpud_probe_failures_total")
            assert one.series['gpud_breaker_state{state="closed"}'] == 1
            for name in (HELPER, PROGRAM):
                assert sum(name in line for line in one.processes) <= 1, one.processes
            shown = one.has("gpud_telemetry_source_info", 'source="nvml"')
            warm = one.has("gpud_gpu_temperature_celsius")
            assert shown == warm == (one.level == NVML), one
        assert max(one.resident for one in self.seen.scrapes) - self.seen.scrapes[0].resident < MORE
        logs = self.gpud.logs()
        for word in ("Traceback", "job_failed", "task_failed"):
            assert word not in logs, logs[-4000:]


class Hanging(Watched):
    """A program whose NVML hangs in a query after some that were well."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        gpud = stack.enter_context(program())
        gpud.settings["nvml"] = nvml(gpud.home, "hang nvmlDeviceGetPowerUsage 3\n")
        super().__init__(stack, gpud)

    def reached(self) -> None:
        self.silent("hung", 2 * DEADLINE_S + PATIENCE_S)
        counted = "gpud_telemetry_source_failures_total"
        self.seen.when(
            lambda one: one.has(counted, 'source="nvml"', 'reason="hung"'), "the failure counted"
        )


class Returning(Watched):
    """A program whose NVML dies, vanishes, returns, and is replaced by another driver's."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        gpud = stack.enter_context(program())
        gpud.settings["nvml"] = nvml(gpud.home, "driver_version 572.16\n")
        super().__init__(stack, gpud)

    def reached(self) -> None:
        library = Path(self.gpud.settings["nvml"]["library"])
        self.seen.when(lambda one: one.level == NVML, "NVML")
        helper = until(self.gpud.nvml_helper, "the helper")
        killed_s = time.monotonic()
        os.kill(helper, signal.SIGSEGV)
        self.falls_and_rises(killed_s)
        gone_s = time.monotonic()
        library.rename(library.with_name("elsewhere"))
        self.seen.when(lambda one: one.level == CUDA, "another level")
        assert self.gpud.health("nvml", 1, "library_missing")["fix"]
        library.with_name("elsewhere").rename(library)
        self.falls_and_rises(gone_s)
        build_libnvml(library.parent, "driver_version 576.02\n")
        self.gpud.status_when(lambda d: version(d) == "576.02", "the other driver's version")

    def falls_and_rises(self, at_s: float) -> None:
        """Wait for NVML's silence, and for its return after the first rest."""
        fallen_s = until(lambda: self.seen.level_from(CUDA, at_s), "another level")
        until(lambda: self.seen.level_from(NVML, fallen_s), "NVML again")


class Asking(Watched):
    """A program in WSL without NVML: one nvidia-smi hangs, the other never stops writing."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        gpud = stack.enter_context(program())
        gpud.sysroot = str(gpud.home)
        self.world = World(gpud.home)
        self.world.kernel(smi_world.WSL2)
        self.world.file("starts", "", mode=0o666)
        stack.enter_context(self.world.interop())
        (gpud.home / "run/WSL/8_interop").chmod(0o777)
        for place, script, _, _ in PROGRAMS:
            self.world.program(place, script)
        super().__init__(stack, gpud)

    def reached(self) -> None:
        counted = "gpud_telemetry_source_failures_total"
        self.seen.when(
            lambda one: all(
                one.has(counted, f'source="{source}"', f'reason="{reason}"')
                for _, _, source, reason in PROGRAMS
            ),
            "the failures of both programs",
            45.0,
        )
        self.silent("library_missing", 20.0)

    def unaffected(self) -> None:
        super().unaffected()
        last = self.seen.scrapes[-1].series
        for _, _, source, _ in PROGRAMS:
            assert last[f'gpud_telemetry_program_starts_total{{source="{source}"}}'] == 1
        assert len(self.world.starts) == len(PROGRAMS)


def side_by_side(stack: contextlib.ExitStack, *programs: Watched) -> None:
    """Put programs that have been started through what each of them meets."""
    with contextlib.ExitStack() as scrapes:
        for one in programs:
            one.watch(scrapes)
        for one in programs:
            one.reached()
        for one in programs:
            one.goes_on()
    for one in programs:
        one.unaffected()
        assert one.gpud.process is not None
        one.gpud.process.send_signal(signal.SIGTERM)  # all at once
    stack.close()


def runs(scrape: Scrape) -> dict[str, float]:
    """How often each probe has run."""
    return {
        name: scrape.series.get(f'gpud_probe_runs_total{{probe="{name}"}}', 0.0) for name in PROBES
    }


def version(document: dict[str, Any]) -> str | None:
    """Give the driver's version in a status document."""
    readings = document["telemetry"]["readings"]
    return next((one["value"] for one in readings if one["field"] == "driver_version"), None)


def test_whatever_the_sources_do_probes_and_scrapes_go_on() -> None:
    with contextlib.ExitStack() as stack:
        side_by_side(
            stack,
            Returning(stack),
            Hanging(stack),
            Asking(stack),
        )
