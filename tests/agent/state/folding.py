"""Events for a snapshot, and the snapshot that they fold into."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from gpud.child import summary
from gpud.core.report import DockerdReport
from gpud.core.sample import (
    Backend,
    Device,
    Failure,
    Inventory,
    Reason,
    RunReport,
    Unit,
)
from tests import events as happened
from tests import snapshots
from tests.events import made

if TYPE_CHECKING:
    from gpud.core.sample import Sample


START = made(version="1", started_s=0.0)
PROBES = ("launch", "triad", "cpu_call")


def slot(card: str) -> str:
    return "" if card == "-" else f"0000:{ord(card[-1]):02x}:00.0"


def listed(*cards: str) -> Inventory:
    """What CUDA lists: "A" lies in a slot of its own, "B@A" in that of A, "C@-" in none known."""
    parts = [card.partition("@") for card in cards]
    return Inventory(
        tuple(
            Device(index, uuid, f"card {uuid}", slot(at or uuid), "8.9", 46, 1, 1)
            for index, (uuid, _, at) in enumerate(parts)
        )
    )


def sample(latency_s: float) -> Sample:
    return summary.summarised([latency_s], mode="submit", unit=Unit.SECONDS, with_buckets=True)


def finished(
    probe: str = "launch",
    gpu: int | None = 0,
    reason: Reason | None = None,
    now_s: float = 1.0,
    latency_s: float = 5e-6,
) -> happened.Event:
    backend = Backend.CPU if gpu is None else Backend.CUDA
    if reason is None:
        report = RunReport(probe, backend, samples=(sample(latency_s),), gpu_seconds=0.5)
    else:
        report = RunReport(probe, backend, failure=Failure(reason, "why"))
    return happened.run_finished(report, None if gpu is None else f"GPU-{gpu}", now_s, now_s)


def dockerd_seen(**changes: object) -> happened.Event:
    facts: dict[str, object] = {"state": "up", "policy": "auto", "up": True, **changes}
    dockerd = DockerdReport(**facts)  # type: ignore[arg-type]  # a test chooses by name
    report = structs.replace(snapshots.ROOT, dockerd=dockerd, containers=None, kernel_log=None)
    return happened.root_read(report, None, 1.0)
