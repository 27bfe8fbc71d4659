"""Known faults of a machine: by its versions, by traces, and by traces beside failed GPU calls."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from gpud.agent.measure.breaker import State
from gpud.agent.state.board import Board
from gpud.agent.state.known_faults import NEAR_S, KnownFaultWatch
from gpud.agent.telemetry.answers import Answer
from gpud.core.report import FaultTrace, KernelLogReport
from gpud.core.sample import Backend, Failure, Inventory, Reading, Reason, RunReport
from gpud.document.machine import BreakerReport
from tests import snapshots
from tests.events import (
    breaker_changed,
    inventory_taken,
    made,
    platform_read,
    post,
    root_read,
    run_finished,
)
from tests.events import source_answered as answered
from tests.snapshots import DEVICE

if TYPE_CHECKING:
    from gpud.document.alerts import FaultReport

AT_S = 1_700_000_000.0
HUNG = Failure(Reason.HUNG, "hung in cuStreamSynchronize", "cuStreamSynchronize")
VA, SYNC_WAIT = "wsl-41176-va-75", "wsl-41017-sync-wait-hang"
WSL2 = {
    "wsl": "2",
    "kernel": "6.18.33.2-microsoft-standard-WSL2",
    "wsl_version": "2.7.12",
    "windows_build": "10.0.26200.8737",
}


class Machine:
    """A board that is told what a machine does, and the watch that looks at it."""

    def __init__(
        self, capability: str = "8.9", driver: str | None = "610.88", **facts: str
    ) -> None:
        self.board = Board(made(platform=WSL2 | facts), now_s=lambda: AT_S)
        self.watch = KnownFaultWatch(self.board)
        gpu = replace(DEVICE, compute_capability=capability)
        post(self.board, inventory_taken(Inventory((gpu,)), AT_S))
        if driver is not None:
            self.telemetry(driver)

    def telemetry(self, driver: str | None, **answer: Any) -> None:
        reading = Reading(None, "driver_version", driver or "", "nvml")
        readings = () if driver is None else (reading,)
        post(self.board, answered(Answer("nvml", 4, AT_S, 0.0, readings, **answer), AT_S))

    def traces(
        self, at_s: float | None, *entries: str, count: int = 1, words: str = "its line"
    ) -> None:
        traces = {entry: FaultTrace(count, words, at_s) for entry in entries}
        log = KernelLogReport(counts={}, traces=traces)
        post(self.board, root_read(structs.replace(snapshots.ROOT, kernel_log=log), None, AT_S))

    def run(
        self,
        failure: Failure | None,
        at_s: float = AT_S,
        probe: str = "launch",
        backend: Backend = Backend.CUDA,
        duration_s: float = 0.3,
    ) -> None:
        report = RunReport(probe, backend, failure=failure, duration_s=duration_s)
        gpu = DEVICE.uuid if backend is Backend.CUDA else None
        post(self.board, run_finished(report, gpu, at_s, 50.0))

    def faults(self) -> dict[str, FaultReport]:
        self.watch.look()
        return {fault.id: fault for fault in self.board.read().known_faults}

    def states(self) -> dict[str, str]:
        return {name: fault.state for name, fault in self.faults().items()}


def test_versions_alone_are_advice_with_source_and_remedy() -> None:
    fault = Machine(kernel="6.6.75.3-microsoft-standard-WSL2").faults()["wsl-12476-hmgrtable-panic"]
    assert (fault.state, fault.effect, fault.alarm) == ("applies", "crash", False)
    assert (fault.evidence, fault.at_s, fault.count) == (None, None, 0)
    assert fault.fix == "Run `wsl --update`: the kernel has it mended from 6.6.84.1 on"
    assert fault.source == "https://github.com/microsoft/WSL/issues/12476"
    assert fault.confidence == "maintainer_confirmed"


def test_versions_of_a_report_are_reported_and_not_said_to_be_affected() -> None:
    machine = Machine("8.6", "582.70", windows_build="10.0.19045.6500")
    assert machine.states() == {
        "wsl-41525-bsod-vidmm": "reported",
        "wslg-728-shutdown-freeze": "applies",
    }


@pytest.mark.parametrize("facts", [{"container": "1"}, {"kernel": "4.4.0-19041-Microsoft"}])
def test_other_platforms_have_no_known_faults(facts: dict[str, str]) -> None:
    machine = Machine(**facts)
    machine.traces(AT_S, VA)
    machine.run(HUNG)
    assert machine.states() == {}


def test_what_is_not_known_matches_nothing_until_it_is_known() -> None:
    machine = Machine(driver=None, kernel="6.6.114.1-microsoft-standard-WSL2")
    assert machine.states() == {}
    machine.telemetry("510.06")
    assert machine.states() == {"nvml-wsl-old-driver": "applies"}
    machine.telemetry("576.02")
    assert machine.states() == {"win-576.02-stale-temp": "applies"}
    post(machine.board, platform_read({"windows_build": "10.0.20231.1005"}, AT_S))
    assert set(machine.states()) == {"win-20226-no-cuda", "win-576.02-stale-temp"}


def test_driver_and_gpu_of_a_silent_machine_are_those_read_last() -> None:
    machine = Machine()
    machine.faults()
    machine.telemetry(None, reason="hung", detail="no answer")
    post(machine.board, inventory_taken(Inventory((), failure=UNKNOWN), AT_S))
    assert machine.faults()[SYNC_WAIT].alarm


def test_trace_alone_is_seen_and_no_alarm() -> None:
    machine = Machine()
    machine.traces(AT_S, VA, count=3)
    fault = machine.faults()[VA]
    assert (fault.state, fault.alarm, fault.count, fault.at_s) == ("seen", False, 3, AT_S)
    assert fault.evidence == "kernel log: its line"
    assert "likely" not in str(machine.board.read().health)


@pytest.mark.parametrize(
    ("at_s", "alarm"),
    [(AT_S + 600, True), (AT_S - NEAR_S, True), (AT_S - NEAR_S - 1, False), (None, False)],
)
def test_trace_near_the_beginning_of_a_failure_is_its_likely_cause_while_it_lasts(
    at_s: float | None,
    alarm: bool,  # noqa: FBT001  # a parameter of the test
) -> None:
    machine = Machine()
    machine.traces(at_s, VA)
    stuck = BreakerReport(State.STUCK, since_s=AT_S, what="launch on GPU-1", fix="wsl --shutdown")
    for round_s in (AT_S, AT_S + 600):
        machine.run(HUNG, round_s)
        fault = machine.faults()[VA]
        assert (fault.state, fault.alarm) == ("seen", alarm)
    post(machine.board, breaker_changed(stuck, AT_S))
    for component in ("probes", "gpu"):
        health = machine.board.read().health[component]
        assert (f"likely {VA}: kernel log: its line" in (health.detail or "")) is alarm
        assert ((fault.fix or "") in (health.fix or "")) is alarm
    machine.run(None, AT_S + 1800)
    assert machine.states() == {VA: "seen"}
    assert not machine.faults()[VA].alarm


def test_failures_that_are_no_failed_gpu_calls_explain_nothing() -> None:
    machine = Machine()
    machine.traces(AT_S, VA)
    machine.run(HUNG, probe="cpu_call", backend=Backend.CPU)
    machine.run(Failure(Reason.UNSUPPORTED, "not on this GPU"))
    machine.telemetry("610.88", reason="hung", detail="no answer")
    assert not machine.faults()[VA].alarm


def test_trace_of_a_fault_that_its_bounds_exclude_here_is_not_seen() -> None:
    machine = Machine(kernel="6.6.84.1-microsoft-standard-WSL2")
    machine.traces(AT_S, "wsl-12476-hmgrtable-panic")
    machine.run(HUNG)
    assert machine.states() == {}


UNKNOWN = Failure(
    Reason.CUDA_ERROR,
    "cuStreamSynchronize: CUDA_ERROR_UNKNOWN (999): unknown error",
    "cuStreamSynchronize",
    999,
)


def test_error_of_a_probe_is_a_trace_while_it_stands() -> None:
    machine = Machine()
    machine.run(UNKNOWN)
    fault = machine.faults()[SYNC_WAIT]
    assert (fault.state, fault.alarm, fault.count) == ("seen", True, 1)
    assert fault.evidence == f"launch on GPU 0: {UNKNOWN.detail}"
    machine.run(replace(UNKNOWN, detail=f"{UNKNOWN.detail}\x1b[31m\u202e{'y' * 5000}"))
    evidence = machine.faults()[SYNC_WAIT].evidence or ""
    assert not {"\x1b", "\u202e"} & set(evidence)
    assert len(evidence) < 400
    machine.run(None, AT_S + 120)
    assert machine.states() == {}


def out_of_memory(function: str) -> Failure:
    detail = f"{function}: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"
    return Failure(Reason.OUT_OF_MEMORY, detail, function, 2)


INVALIDATED = "cuStreamEndCapture: CUDA_ERROR_STREAM_CAPTURE_INVALIDATED (901): invalidated"
CAPTURE = Failure(Reason.GRAPH_FAILED, INVALIDATED, "cuStreamEndCapture", 901)


@pytest.mark.parametrize(
    ("failure", "states"),
    [
        (CAPTURE, {"wsl-14452-graph-capture": "seen"}),
        (out_of_memory("cuMemHostAlloc"), {"wsl-8447-pinned": "seen"}),
        (out_of_memory("cuMemAlloc_v2"), {}),
    ],
    ids=["as the runtime names the code", "pinned memory is scarce", "a GPU's memory is full"],
)
def test_call_and_code_of_a_failure_name_the_fault(
    failure: Failure, states: dict[str, str]
) -> None:
    machine = Machine(wsl_version="2.6.3", driver="576.80", capability="12.0")
    machine.run(failure)
    assert machine.states() == states


def test_nvml_that_is_blocked_is_a_trace_and_no_alarm_by_itself() -> None:
    machine = Machine(capability="12.0")
    machine.telemetry(
        None,
        reason="blocked_by_the_operating_system",
        detail="NVML: The operating system has blocked the request. (17)",
    )
    fault = machine.faults()["wsl-41062-create-process-75"]
    assert (fault.state, fault.alarm, fault.count) == ("seen", False, 1)
    machine.run(HUNG, AT_S + 1)
    assert machine.faults()["wsl-41062-create-process-75"].alarm


def test_alarms_come_first_then_seen_then_what_only_applies() -> None:
    machine = Machine("8.6", "582.70", windows_build="10.0.19045.6500")
    machine.traces(AT_S - 3600, VA)
    machine.run(replace(UNKNOWN, function="cuMemHostAlloc", detail="cuMemHostAlloc: out of memory"))
    assert list(machine.states()) == [
        "wsl-8447-pinned",
        VA,
        "wslg-728-shutdown-freeze",
        "wsl-41525-bsod-vidmm",
    ]


def test_nothing_is_published_while_nothing_changes() -> None:
    machine = Machine()
    machine.traces(AT_S, VA)
    machine.faults()
    before = machine.board.read()
    machine.watch.look()
    assert machine.board.read() is before
    machine.traces(AT_S, VA)  # the same report again
    before = machine.board.read()
    machine.watch.look()
    assert machine.board.read() is before
