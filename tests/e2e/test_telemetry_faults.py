"""Whatever a telemetry source does, the rest goes on: probes, scrapes, and the truth in them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud.agent.telemetry.nvml import DEADLINE_S, REFUSAL_REST_S
from gpud.core.telemetry import LEVELS
from tests.e2e.program import Program, children_of, cuda, nvml, only, program
from tests.e2e.watching import Scraping, scraping
from tests.standins.build import build_libnvml
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

NVML, CUDA, NOTHING = LEVELS.index("nvml"), LEVELS.index("cuda"), LEVELS.index("nothing")
INTERVAL_S = 0.5
PLAN = {
    "telemetry_interval_s": INTERVAL_S,
    "small_interval_s": 1.0,
    "large_interval_s": 3600.0,
    "jitter_ratio": 0.0,
}
SHORT_S = 0.05
"""Within this an answer is there, whatever the sources do."""
PATIENCE_S = 2.0
"""What a machine with other work may add to an interval."""
HELPER = "gpud.agent.nvml"
LATER = " 3\n"
"""After as many calls: the first collections are well."""
POWER = "nvmlDeviceGetPowerUsage"


@dataclass(frozen=True, slots=True)
class Fault:
    """How NVML fails, by the stand-in's script, and what is said of it."""

    script: str
    reason: str
    well_first: bool = True
    within_s: float = INTERVAL_S


FAULTS = {
    "a hang at its start": Fault(
        "hang nvmlInitWithFlags\nhang nvmlInit_v2\n", "hung", well_first=False, within_s=DEADLINE_S
    ),
    "a hang in a query": Fault(f"hang {POWER}{LATER}", "hung", within_s=DEADLINE_S),
    "an abort": Fault(f"crash {POWER}{LATER}", "crashed"),
    "a segmentation fault": Fault(f"segfault {POWER}{LATER}", "crashed"),
    "a driver that is not loaded": Fault(
        "fail nvmlInitWithFlags 9\nfail nvmlInit_v2 9\n", "driver_not_loaded", well_first=False
    ),
}


@contextlib.contextmanager
def watched(gpud: Program) -> Iterator[Scraping]:
    """Scrape a program that has just been started until the block ends, and hold it to the rest."""
    gpud.status_when(lambda d: (d["cuda"] or {}).get("devices"), "an inventory")
    until(lambda: runs(gpud, "launch") and runs(gpud, "cpu_call"), "the first runs")
    agent = gpud.agent_pid()
    assert agent is not None
    with scraping(gpud.port, agent) as seen:
        yield seen
    unaffected(gpud, seen)


def started(stack: contextlib.ExitStack, script: str = "") -> Program:
    gpud = stack.enter_context(program())
    gpud.settings = {
        "cuda": cuda(gpud.home),
        "nvml": nvml(gpud.home, script),
        "probes": only("launch", "cpu_call"),
        "schedule": PLAN,
    }
    gpud.start()
    return gpud


def runs(gpud: Program, probe: str) -> float:
    return gpud.value("gpud_probe_runs_total", probe=probe) or 0.0


def more_runs(gpud: Program) -> None:
    """Wait until each probe has run twice from now on."""
    before = {probe: runs(gpud, probe) for probe in ("launch", "cpu_call")}
    until(
        lambda: all(runs(gpud, probe) >= count + 2 for probe, count in before.items()),
        "two more runs of each probe",
    )


def unaffected(gpud: Program, seen: Scraping) -> None:
    """Hold that nothing but telemetry noticed anything."""
    assert gpud.agent_pid() == seen.pid
    assert not [name for name, _ in gpud.metrics() if name == "gpud_probe_failures_total"]
    assert gpud.value("gpud_breaker_state", state="closed") == 1
    assert seen.errors == []
    assert max(one.took_s for one in seen.scrapes) < SHORT_S
    for one in seen.scrapes:
        helpers = [line for line in one.processes if HELPER in line]
        assert len(helpers) <= 1, helpers
        assert ("nvml" in one.sources) == (one.level == NVML) == one.warm, one
    logs = gpud.logs()
    for word in ("Traceback", "job_failed", "task_failed"):
        assert word not in logs, logs[-4000:]


def nvml_helper(gpud: Program) -> int | None:
    agent = gpud.agent_pid()
    for pid in children_of(agent) if agent else []:
        with contextlib.suppress(OSError):
            if HELPER.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    return None


def through(names: list[str]) -> None:
    """Put several programs, side by side, through one fault each."""
    with contextlib.ExitStack() as stack:
        programs = {name: started(stack, FAULTS[name].script) for name in names}
        scrapings = {name: stack.enter_context(watched(gpud)) for name, gpud in programs.items()}
        for name, gpud in programs.items():
            fault, seen = FAULTS[name], scrapings[name]
            within_s = fault.within_s + DEADLINE_S + PATIENCE_S
            health = gpud.health("nvml", 1, fault.reason, within_s=within_s)
            assert health["detail"], name
            level = gpud.value("gpud_telemetry_level")
            assert level == CUDA, name
            failed = gpud.value(
                "gpud_telemetry_source_failures_total", source="nvml", reason=fault.reason
            )
            assert failed, name
            assert seen.scrapes, name
        for gpud in programs.values():
            more_runs(gpud)


def test_an_nvml_that_hangs_or_ends_its_process_takes_nothing_with_it() -> None:
    through(["a hang at its start", "a hang in a query", "a segmentation fault"])


@pytest.mark.soak
@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_of_nvml_alone(name: str) -> None:
    through([name])


def test_a_slow_nvml_is_waited_for_and_nothing_else_waits() -> None:
    with contextlib.ExitStack() as stack:
        gpud = started(stack, f"delay {POWER} 2000 1\n")
        seen = stack.enter_context(watched(gpud))
        gpud.health("nvml", 0)
        begun_s = time.monotonic()
        more_runs(gpud)
        assert {one.level for one in seen.since(begun_s)} == {NVML}
        assert gpud.value("gpud_telemetry_source_duration_seconds", source="nvml") > 1.9  # type: ignore[operator]


def test_an_nvml_that_comes_back_is_noticed_without_a_restart() -> None:
    """Its process dies, its library vanishes and returns, and one of another driver follows."""
    with contextlib.ExitStack() as stack:
        gpud = started(stack, "driver_version 572.16\n")
        library = Path(gpud.settings["nvml"]["library"])
        seen = stack.enter_context(watched(gpud))
        gpud.health("nvml", 0)
        helper = until(lambda: nvml_helper(gpud), "the helper")
        killed_s = time.monotonic()
        os.kill(helper, signal.SIGSEGV)
        left(seen, killed_s)
        back(seen, killed_s, REFUSAL_REST_S[0])

        gone_s = time.monotonic()
        library.rename(library.with_name("elsewhere"))
        left(seen, gone_s)
        assert gpud.health("nvml", 1, "library_missing")["fix"]
        returned_s = time.monotonic()
        library.with_name("elsewhere").rename(library)
        back(seen, returned_s, REFUSAL_REST_S[1])

        build_libnvml(library.parent, "driver_version 576.02\n")
        gpud.status_when(lambda d: version(d) == "576.02", "the other driver's version")
        more_runs(gpud)


def version(document: dict[str, object]) -> str | None:
    telemetry = document["telemetry"]
    assert isinstance(telemetry, dict)
    found = [r["value"] for r in telemetry["readings"] if r["field"] == "driver_version"]
    return str(found[0]) if found else None


def left(seen: Scraping, at_s: float) -> None:
    """Wait until scrapes say that NVML is silent, and hold that to one interval."""
    gone_s = until(lambda: seen.level_from(CUDA, at_s), "another level")
    assert gone_s - at_s < INTERVAL_S + PATIENCE_S


def back(seen: Scraping, at_s: float, rest_s: float) -> None:
    """Wait until scrapes have NVML's values again."""
    again_s = seen.level_from(CUDA, at_s) or at_s
    found_s = until(lambda: seen.level_from(NVML, again_s), "NVML again", rest_s + 10.0)
    assert found_s - at_s < rest_s + INTERVAL_S + PATIENCE_S
