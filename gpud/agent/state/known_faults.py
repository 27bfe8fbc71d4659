"""Known faults of this machine: the catalogue beside its versions, kernel's log and failures.

An entry that is about the versions is advice. One whose trace was read is seen, and an alarm while
GPU calls fail that began to fail at about the time of the trace: a likely cause of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog
from msgspec.structs import replace

from gpud.agent.state.health import SEVERITY, FailureSeverity
from gpud.agent.telemetry import answers
from gpud.core import advice
from gpud.core.advice import Platform
from gpud.core.health import Level
from gpud.core.sample import Backend
from gpud.core.text import escaped
from gpud.document.alerts import SEEN, FaultReport
from gpud.known_issues import matching
from gpud.known_issues.catalogue import TextOrigin, catalogue
from gpud.known_issues.matching import (
    LONGEST_TEXT,
    MachineFacts,
    Relation,
    by_version,
    explains,
    matches,
    patterns,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpud.agent.state.board import Board
    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.report import FaultTrace
    from gpud.core.sample import Device, Failure
    from gpud.known_issues.catalogue import KnownIssue

NEAR_S: Final = 180.0
"""Before GPU calls are known to fail: a hang is noticed up to two minutes after its call."""
LONGEST_WORDS: Final = 300
ORDER: Final = (SEEN, Relation.APPLIES, Relation.REPORTED)
GPU_PARTS: Final = ("cuda", "gpu", "probes")
"""Components of ``Snapshot.health`` that are unwell while GPU calls fail."""

log = structlog.get_logger()


class GpuError(NamedTuple):
    """A failure of CUDA or NVML that stands. ``at_s``: Unix time."""

    origin: TextOrigin
    what: str  # "launch on GPU 0"
    words: str
    text: str  # for the patterns
    at_s: float


class Inputs(NamedTuple):
    """What the known faults follow from. ``machines``: the facts, once for each kind of GPU.

    ``failing_s``: the Unix time since when GPU calls fail, None while they work.
    """

    machines: tuple[MachineFacts, ...]
    traces: Mapping[str, FaultTrace]
    errors: tuple[GpuError, ...]
    failing_s: float | None


def _errors(snapshot: Snapshot) -> Iterator[GpuError]:
    """Yield the failures that stand: of GPU probes, of the list of GPUs, of NVML."""
    for key, state in snapshot.measure.probes.items():
        failure = state.report.failure
        if state.report.backend is not Backend.CUDA or failure is None:
            continue
        if SEVERITY[failure.reason] > FailureSeverity.INFO:
            yield _of_cuda(str(key), failure, state.finished_s)
    inventory, health = snapshot.measure.inventory, snapshot.health
    cuda, nvml, answer = health.get("cuda"), health.get("nvml"), snapshot.telemetry.answers
    if inventory and inventory.failure and cuda and cuda.level > Level.OK and cuda.since_s:
        yield _of_cuda("cuda", inventory.failure, cuda.since_s)
    if nvml and nvml.level > Level.OK and nvml.since_s and "nvml" in answer:
        reason, detail = answer["nvml"].reason or "", answer["nvml"].detail or ""
        words, text = escaped(detail)[:LONGEST_WORDS], f"{reason} {detail}"[:LONGEST_TEXT]
        yield GpuError(TextOrigin.NVML, "nvml", words, text, nvml.since_s)


def _of_cuda(what: str, failure: Failure, at_s: float) -> GpuError:
    """Put a failure into the words of other programs too: the runtime's name, PyTorch's line."""
    detail = failure.detail[:LONGEST_TEXT]
    name = re.search(r"CUDA_ERROR_(\w{1,80})", detail)
    runtime = "" if name is None else "".join(map(str.capitalize, name[1].split("_")))
    meaning = detail.rpartition("): ")[2]
    text = (
        f"{detail} code={failure.code}(cudaError{runtime}) "
        f"CUDA driver error: {meaning} CUDA error: {meaning}"
    )
    return GpuError(TextOrigin.CUDA, what, escaped(detail)[:LONGEST_WORDS], text, at_s)


class KnownFaultWatch:
    """Publishes the known faults whenever what they follow from has changed.

    Driver and GPUs that cannot be read any more are those that were read last: when they are
    silent is when it matters which they are.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self._driver: str | None = None
        self._capabilities: tuple[str | None, ...] = (None,)
        self._inputs: object = None
        self._looked_at: Snapshot | None = None
        self._regexes = {origin: patterns(origin) for origin in TextOrigin}

    def look(self) -> None:
        """Compare the snapshot with that of the last look, and publish what follows."""
        snapshot = self._board.read()
        if snapshot is self._looked_at:
            return
        self._looked_at = snapshot
        root, errors = snapshot.root.report, tuple(_errors(snapshot))
        traces = {} if root is None or root.kernel_log is None else root.kernel_log.traces
        inputs = Inputs(self._machines(snapshot), traces, errors, _failing_s(snapshot, errors))
        if inputs != self._inputs:
            self._inputs = inputs
            self._publish(snapshot, inputs)

    def _publish(self, snapshot: Snapshot, inputs: Inputs) -> None:
        faults = self._faults(inputs)
        before = {(fault.id, fault.state, fault.alarm) for fault in snapshot.known_faults}
        for fault in faults:
            if fault.state == SEEN and (fault.id, fault.state, fault.alarm) not in before:
                log.warning("known_fault", id=fault.id, alarm=fault.alarm, evidence=fault.evidence)
        if faults != snapshot.known_faults:
            self._board.publish(known_faults=faults)

    def _faults(self, inputs: Inputs) -> tuple[FaultReport, ...]:
        """Return the entries that are about this machine, alarms first."""
        relations = [item for facts in inputs.machines for item in by_version(facts)]
        surest_last = sorted(relations, key=lambda item: -ORDER.index(item[1]))
        by_id = {entry.id: kind for entry, kind in surest_last}
        faults = []
        for entry in catalogue():
            fault = None
            if any(explains(entry, facts) for facts in inputs.machines):
                fault = self._seen(entry, inputs)
            if fault is None and entry.id in by_id:
                fault = _fault(entry, by_id[entry.id])
            if fault is not None:
                faults.append(fault)
        return tuple(sorted(faults, key=lambda f: (not f.alarm, ORDER.index(f.state), f.id)))

    def _seen(self, entry: KnownIssue, inputs: Inputs) -> FaultReport | None:
        """Return an entry whose words a failure has, else one whose trace the kernel's log has."""
        for error in inputs.errors:
            if matches(self._regexes[error.origin].get(entry.id, ()), error.text):
                return replace(
                    _fault(entry, SEEN),
                    evidence=f"{error.what}: {error.words}",
                    at_s=error.at_s,
                    count=1,
                    alarm=inputs.failing_s is not None,
                )
        trace, since_s = inputs.traces.get(entry.id), inputs.failing_s
        if trace is None:
            return None
        return replace(
            _fault(entry, SEEN),
            evidence=f"kernel log: {trace.words}",
            at_s=trace.at_s,
            count=trace.count,
            alarm=bool(trace.at_s and since_s and trace.at_s >= since_s - NEAR_S),
        )

    def _machines(self, snapshot: Snapshot) -> tuple[MachineFacts, ...]:
        """Describe the machine, once for each kind of GPU."""
        read, inventory = snapshot.machine.platform, snapshot.measure.inventory
        where = advice.of(read)
        if where not in {Platform.WSL2, Platform.LINUX}:
            return ()
        self._driver = driver_version(snapshot) or self._driver
        if inventory is not None and inventory.devices:
            devices = inventory.devices
            self._capabilities = tuple(dict.fromkeys(gpu.compute_capability for gpu in devices))
        return tuple(_facts(read, self._driver, capability) for capability in self._capabilities)


def _failing_s(snapshot: Snapshot, errors: tuple[GpuError, ...]) -> float | None:
    """Return since when GPU calls fail: a part that is unwell is so since its first failure."""
    if not any(error.origin is TextOrigin.CUDA for error in errors):
        return None
    parts = (snapshot.health.get(name) for name in GPU_PARTS)
    return min((p.since_s for p in parts if p and p.level > Level.OK and p.since_s), default=None)


def _fault(entry: KnownIssue, state: str) -> FaultReport:
    return FaultReport(
        id=entry.id,
        state=str(state),
        effect=str(entry.effect),
        title=entry.title,
        fix=entry.workaround,
        source=entry.sources[0].url,
        confidence=str(entry.confidence),
    )


def left_out(read: Mapping[str, str], driver: str | None, gpu: Device) -> dict[str, str]:
    """Return the modes of probes that are not to be measured on a GPU, each with the reason.

    ``read``: the facts of the machine, as ``MachineState.platform`` has them.
    """
    return matching.left_out(_facts(read, driver, gpu.compute_capability))


def _facts(
    read: Mapping[str, str], driver: str | None, compute_capability: str | None
) -> MachineFacts:
    return MachineFacts(
        platform=str(advice.of(read)),
        wsl_version=read.get("wsl_version"),
        kernel=read.get("kernel"),
        windows_build=read.get("windows_build"),
        driver=driver,
        compute_capability=compute_capability,
    )


def driver_version(snapshot: Snapshot) -> str | None:
    """Return the driver's version as the best source gave it last; None where none did."""
    readings = (
        reading.value
        for answer in answers.ranked(snapshot.telemetry)
        for reading in answer.readings
        if (reading.gpu, reading.field) == (None, "driver_version")
    )
    return next((value for value in readings if type(value) is str), None)
