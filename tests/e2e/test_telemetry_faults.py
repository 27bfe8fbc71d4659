"""Whatever a telemetry source does, the rest goes on: probes, scrapes, and the truth in them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpud.agent.telemetry.sources.nvml import DEADLINE_S
from gpud.core.telemetry import LEVELS
from tests.agent.telemetry import smi_world
from tests.agent.telemetry.smi_world import World
from tests.e2e.program import Program, cuda, nvml, only, program
from tests.e2e.test_nvidia_smi import Machine
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
LATER = " 3\n"
"""After as many calls: the first collections are well."""
POWER = "nvmlDeviceGetPowerUsage"


@dataclass(frozen=True, slots=True)
class Fault:
    """How NVML fails, by the stand-in's script, and what is said of it."""

    script: str
    reason: str
    within_s: float = INTERVAL_S


FAULTS = {
    "a hang at its start": Fault(
        "hang nvmlInitWithFlags\nhang nvmlInit_v2\n", "hung", within_s=DEADLINE_S
    ),
    "a hang in a query": Fault(f"hang {POWER}{LATER}", "hung", within_s=DEADLINE_S),
    "an abort": Fault(f"crash {POWER}{LATER}", "crashed"),
    "a segmentation fault": Fault(f"segfault {POWER}{LATER}", "crashed"),
    "a driver that is not loaded": Fault(
        "fail nvmlInitWithFlags 9\nfail nvmlInit_v2 9\n", "driver_not_loaded"
    ),
}


@dataclass(frozen=True, slots=True)
class Answering:
    """What an nvidia-smi does in place of answering well; None as the script: it is not there."""

    script: str | None
    reason: str


GERMAN = "NVIDIA-SMI ist fehlgeschlagen, da keine Verbindung zum Treiber hergestellt wurde."
PROGRAMS = {
    "absent": Answering(None, "absent"),
    "hanging": Answering("while :; do sleep 1; done", "hung"),
    "endless": Answering("exec head -c 1000000000 /dev/zero", "bad_output"),
    "wrong columns": Answering("echo '0, 7, 48'", "bad_output"),
    "localised": Answering(f"echo '{GERMAN}'", "bad_output"),
    "exit code 6": Answering("echo 'No devices were found' >&2; exit 6", "no_device"),
    "exit code 9": Answering(f"echo '{GERMAN}'; exit 9", "driver_not_loaded"),
    "exit code 12": Answering("exit 12", "library_missing"),
    "exit code 15": Answering(
        "echo 'Unable to determine the device handle'; exit 15", "gpu_is_lost"
    ),
    "exit code 255": Answering("exit 255", "failed"),
}
EXE, LINUX = "nvidia_smi_exe", "nvidia_smi"
PLACES = {EXE: smi_world.EXE, LINUX: "usr/lib/wsl/lib/nvidia-smi"}
SIDE_BY_SIDE = 5
SLOW_S = 1.9
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


class Failing(Watched):
    """A program whose NVML fails as the stand-in's script says."""

    def __init__(self, stack: contextlib.ExitStack, name: str) -> None:
        self.fault = FAULTS[name]
        gpud = stack.enter_context(program())
        gpud.settings["nvml"] = nvml(gpud.home, self.fault.script)
        super().__init__(stack, gpud)

    def reached(self) -> None:
        self.silent(self.fault.reason, self.fault.within_s + DEADLINE_S + PATIENCE_S)
        counted = "gpud_telemetry_source_failures_total"
        why = f'reason="{self.fault.reason}"'
        self.seen.when(lambda one: one.has(counted, 'source="nvml"', why), "the failure counted")


class Slow(Watched):
    """A program whose NVML takes two seconds for each collection."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        gpud = stack.enter_context(program())
        gpud.settings["nvml"] = nvml(gpud.home, f"delay {POWER} 2000 1\n")
        super().__init__(stack, gpud)

    def reached(self) -> None:
        """Wait for a slow collection; the values are shown meanwhile, and probes run."""
        took = 'gpud_telemetry_source_duration_seconds{source="nvml"}'
        slow = self.seen.when(lambda one: one.series.get(took, 0) > SLOW_S, "a slow collection")
        self.goes_on()
        assert {one.level for one in self.seen.since(slow.at_s)} == {NVML}


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
    """A program in WSL that has no NVML, and where each nvidia-smi has its fault."""

    def __init__(self, stack: contextlib.ExitStack, exe: str, linux: str) -> None:
        self.faults = {EXE: exe, LINUX: linux}
        home = stack.enter_context(program()).home
        self.world = World(home)
        self.world.kernel(smi_world.WSL2)
        self.world.file("starts", "", mode=0o666)
        stack.enter_context(self.world.interop())
        (home / "run/WSL/8_interop").chmod(0o777)
        for source, fault in self.faults.items():
            script = PROGRAMS[fault].script
            if script is not None:
                self.world.program(PLACES[source], script)
        super().__init__(stack, Machine(home, {}))

    def reached(self) -> None:
        wanted = [
            (f'source="{source}"', f'reason="{PROGRAMS[fault].reason}"')
            for source, fault in self.faults.items()
        ]
        counted = "gpud_telemetry_source_failures_total"
        self.seen.when(
            lambda one: all(one.has(counted, *labels) for labels in wanted), str(wanted), 45.0
        )
        self.silent("library_missing", 20.0)

    def unaffected(self) -> None:
        super().unaffected()
        last = self.seen.scrapes[-1].series
        for source, fault in self.faults.items():
            counted = last.get(f'gpud_telemetry_program_starts_total{{source="{source}"}}', 0.0)
            assert counted == (PROGRAMS[fault].script is not None)
        scripts = [PROGRAMS[fault].script for fault in self.faults.values()]
        assert len(self.world.starts) == sum(script is not None for script in scripts)


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
            Failing(stack, "a hang in a query"),
            Asking(stack, "hanging", "endless"),
        )


@pytest.mark.soak
@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_of_nvml_beside_a_slow_one(name: str) -> None:
    with contextlib.ExitStack() as stack:
        side_by_side(stack, Failing(stack, name), Slow(stack))


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("exe", PROGRAMS)
def test_every_fault_of_one_nvidia_smi_beside_every_fault_of_the_other(exe: str) -> None:
    faults = list(PROGRAMS)
    for at in range(0, len(faults), SIDE_BY_SIDE):
        with contextlib.ExitStack() as stack:
            some = faults[at : at + SIDE_BY_SIDE]
            side_by_side(stack, *(Asking(stack, exe, linux) for linux in some))
