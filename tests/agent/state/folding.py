"""Events for a snapshot, and the snapshot that they fold into."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.agent.state.snapshot import Snapshot
from gpud.child import summary
from gpud.core.report import AgentReport, DockerdReport, ProcessRef, RootReport
from gpud.core.sample import (
    Backend,
    Device,
    Failure,
    Flag,
    Reason,
    RunReport,
    Unit,
)
from tests import events as happened
from tests.events import made

if TYPE_CHECKING:
    from gpud.core.sample import Sample


START = made(version="1", started_s=0.0)
PROBES = ("launch", "triad", "cpu_call")


def device(index: int) -> Device:
    return Device(index, f"GPU-{index}", "n", "0000:01:00.0", "8.9", 46, 1, 1)


def sample(latency_s: float = 5e-6) -> Sample:
    return summary.summarised([latency_s], mode="submit", unit=Unit.SECONDS, with_buckets=True)


def finished(
    probe: str = "launch",
    gpu: int | None = 0,
    reason: Reason | None = None,
    now_s: float = 1.0,
    flags: tuple[Flag, ...] = (),
) -> happened.Event:
    backend = Backend.CPU if gpu is None else Backend.CUDA
    if reason is None:
        report = RunReport(probe, backend, samples=(sample(),), gpu_seconds=0.5)
    else:
        report = RunReport(probe, backend, failure=Failure(reason, "why"))
    return happened.run_finished(report, None if gpu is None else f"GPU-{gpu}", now_s, now_s, flags)


def dockerd_seen(**changes: object) -> happened.Event:
    facts: dict[str, object] = {"state": "up", "policy": "auto", "up": True, **changes}
    report = RootReport(
        gpud_version="1",
        process=ProcessRef(1, 1),
        privileged=True,
        boot_id="b",
        started_s=0.0,
        written_s=0.0,
        beat_s=0.0,
        dockerd=DockerdReport(**facts),  # type: ignore[arg-type]  # a test chooses by name
        agent=AgentReport(state="running"),
    )
    return happened.root_read(report, None, 1.0)


def folded(*events: happened.Event, start: Snapshot = START) -> Snapshot:
    for event in events:
        start = event(start)
    return start
