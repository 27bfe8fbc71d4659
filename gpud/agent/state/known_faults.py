"""Known faults of this machine: the catalogue beside its versions, kernel's log and failures.

An entry that is about the versions is advice. One whose trace was read is seen, and an alarm when a
GPU call failed or hung within a minute of the trace, for as long as that failure stands. A trace
that healthy machines leave too says nothing without such a failure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from gpud.agent.state.health import SEVERITY, FailureSeverity
from gpud.agent.state.snapshot import KnownFault
from gpud.agent.telemetry import answers
from gpud.core import advice
from gpud.core.advice import Platform
from gpud.core.health import Level
from gpud.core.sample import Backend
from gpud.core.text import escaped
from gpud.document.alerts import SEEN
from gpud.known_issues import matching
from gpud.known_issues.catalogue import TextOrigin, catalogue
from gpud.known_issues.matching import (
    LONGEST_TEXT,
    MachineFacts,
    Relation,
    by_version,
    common_regexes,
    explains,
    matches,
    patterns,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpud.agent.state.board import Board
    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.report import FaultTrace
    from gpud.core.sample import Device, Failure
    from gpud.known_issues.catalogue import KnownIssue

NEAR_S: Final = 60.0
"""Between a trace and a failure that it may explain."""
LONGEST_WORDS: Final = 300
ORDER: Final = (SEEN, Relation.APPLIES, Relation.REPORTED)

log = structlog.get_logger()


class GpuError(NamedTuple):
    """A failure of CUDA or NVML that stands. Units: Unix times, from its call to its end."""

    where: TextOrigin
    what: str  # "launch on GPU 0"
    reason: str
    words: str
    text: str  # for the patterns
    begin_s: float
    end_s: float

    def near(self, at_s: float | None) -> bool:
        """Return whether a trace of that moment may explain this failure of a GPU call."""
        if at_s is None:
            return False
        in_time = self.begin_s - NEAR_S <= at_s <= self.end_s + NEAR_S
        return self.where is TextOrigin.CUDA and in_time


class FaultSign(NamedTuple):
    """Traces of one entry in one place. ``common``: healthy machines leave them too."""

    place: str  # "kernel log", or ``GpuError.what``
    words: str
    at_s: float | None  # Unix time of the last one
    times: int = 1
    common: bool = False


Signs = dict[str, tuple[FaultSign, ...]]
Pairs = dict[tuple[str, GpuError], FaultSign]


def known_faults(
    entries: Sequence[KnownIssue], machines: Sequence[MachineFacts], signs: Signs, pairs: Pairs
) -> tuple[KnownFault, ...]:
    """Return the entries that are about this machine, alarms first.

    ``machines``: its facts, once for each GPU. ``pairs``: the failures that a sign explains.
    """
    relations = [item for facts in machines for item in by_version(entries, facts)]
    by_id = {entry.id: kind for entry, kind in sorted(relations, key=lambda item: -_order(item[1]))}
    faults = []
    for entry in entries:
        explained = {error: sign for (name, error), sign in pairs.items() if name == entry.id}
        here = [sign for sign in signs.get(entry.id, ()) if explained or not sign.common]
        if here:
            faults.append(_seen(entry, here, explained))
        elif entry.id in by_id:
            faults.append(_fault(entry, by_id[entry.id]))
    return tuple(sorted(faults, key=lambda f: (not f.alarm, _order(f.state), f.id)))


def explained_signs(
    entries: Iterable[KnownIssue], machines: Sequence[MachineFacts], signs: Signs
) -> Signs:
    """Keep the signs that may be taken for their entry on this machine."""
    kept = {
        entry.id: tuple(
            sign
            for sign in signs.get(entry.id, ())
            if any(explains(entry, facts, common=sign.common) for facts in machines)
        )
        for entry in entries
    }
    return {name: those for name, those in kept.items() if those}


def paired(before: Pairs, signs: Signs, errors: Sequence[GpuError]) -> Pairs:
    """Pair signs with failed GPU calls; a pair holds while the same call fails, however often."""
    latest = {(error.where, error.what): error for error in errors}
    still = {
        (name, latest[error.where, error.what]): sign
        for (name, error), sign in before.items()
        if name in signs and (error.where, error.what) in latest
    }
    new = {
        (name, error): sign
        for name, those in signs.items()
        for sign in those
        for error in errors
        if error.near(sign.at_s)
    }
    return new | still


def with_errors(
    before: Mapping[str, FaultSign],
    errors: Iterable[GpuError],
    regexes: Mapping[TextOrigin, Mapping[str, Sequence[re.Pattern[str]]]],
) -> dict[str, FaultSign]:
    """Count the errors whose text matches an entry, each once."""
    after = dict(before)
    for error in sorted(errors, key=lambda error: error.end_s):
        for name, those in regexes[error.where].items():
            last = after.get(name)
            if (last is None or (last.at_s or 0.0) < error.end_s) and matches(those, error.text):
                times = 1 if last is None else last.times + 1
                after[name] = FaultSign(error.what, error.words, error.end_s, times)
    return after


def gpu_errors(snapshot: Snapshot) -> tuple[GpuError, ...]:
    """Return the failures that stand: of GPU probes, of the list of GPUs, of NVML."""
    return tuple(_errors(snapshot))


def _errors(snapshot: Snapshot) -> Iterator[GpuError]:
    for key, state in snapshot.measure.probes.items():
        failure, end_s = state.failure, state.finished_s
        if state.backend is not Backend.CUDA or failure is None or end_s is None:
            continue
        if SEVERITY[failure.reason] > FailureSeverity.INFO:
            yield _of_cuda(str(key), failure, end_s - (state.duration_s or 0.0), end_s)
    inventory, health = snapshot.measure.inventory, snapshot.health
    cuda, nvml, answer = health.get("cuda"), health.get("nvml"), snapshot.telemetry.answers
    if inventory and inventory.failure and cuda and cuda.level > Level.OK and cuda.since_s:
        yield _of_cuda("cuda", inventory.failure, cuda.since_s, cuda.since_s)
    if nvml and nvml.level > Level.OK and nvml.since_s and "nvml" in answer:
        reason, detail = answer["nvml"].reason or "", answer["nvml"].detail or ""
        words, text = escaped(detail)[:LONGEST_WORDS], f"{reason} {detail}"[:LONGEST_TEXT]
        yield GpuError(TextOrigin.NVML, "nvml", reason, words, text, nvml.since_s, nvml.since_s)


def _of_cuda(what: str, failure: Failure, begin_s: float, end_s: float) -> GpuError:
    """Put a failure into the words of other programs too: the runtime's name, PyTorch's line."""
    detail = failure.detail[:LONGEST_TEXT]
    name = re.search(r"CUDA_ERROR_(\w{1,80})", detail)
    runtime = "" if name is None else "".join(map(str.capitalize, name[1].split("_")))
    said = detail.rpartition("): ")[2]
    text = (
        f"{detail} code={failure.code}(cudaError{runtime}) "
        f"CUDA driver error: {said} CUDA error: {said}"
    )
    words = escaped(detail)[:LONGEST_WORDS]
    return GpuError(TextOrigin.CUDA, what, failure.reason.value, words, text, begin_s, end_s)


def _seen(
    entry: KnownIssue, signs: Sequence[FaultSign], explained: Mapping[GpuError, FaultSign]
) -> KnownFault:
    newest = max(signs, key=lambda sign: sign.at_s or 0.0)
    evidence = f"{newest.place}: {newest.words}"
    if explained:
        error, sign = max(explained.items(), key=lambda pair: pair[0].end_s)
        evidence = f"{sign.place}: {sign.words}"
        if sign.place != error.what and sign.at_s is not None:
            gap_s = error.end_s - sign.at_s
            order = "before" if gap_s >= 0 else "after"
            evidence += f", {abs(gap_s):.0f} s {order} {error.what} failed ({error.reason})"
    return _fault(
        entry,
        SEEN,
        evidence=evidence,
        at_s=newest.at_s,
        count=sum(sign.times for sign in signs),
        alarm=bool(explained),
    )


def _fault(entry: KnownIssue, state: str, **seen: str | float | bool | None) -> KnownFault:
    fault = {
        "id": entry.id,
        "state": str(state),
        "effect": str(entry.effect),
        "title": entry.title,
        "fix": entry.workaround,
        "source": entry.sources[0].url,
        "confidence": str(entry.confidence),
    }
    return KnownFault(**fault, **seen)  # type: ignore[arg-type]


def _order(state: str) -> int:
    return ORDER.index(state)


class KnownFaultWatch:
    """Publishes the known faults whenever what they follow from has changed.

    Driver and GPUs that cannot be read any more are those that were read last: when they are
    silent is when it matters which they are.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self._driver: str | None = None
        self._capabilities: tuple[str | None, ...] = (None,)
        self._errors: dict[str, FaultSign] = {}
        self._pairs: Pairs = {}
        self._inputs: object = None
        self._looked_at: Snapshot | None = None
        self._entries = catalogue()
        self._regexes = {where: patterns(self._entries, where) for where in TextOrigin}
        common = common_regexes(self._entries)
        self._common = {
            name
            for name, those in self._regexes[TextOrigin.KERNEL_LOG].items()
            if all(regex.pattern in common for regex in those)
        }

    def look(self) -> None:
        """Compare the snapshot with that of the last look, and publish what follows."""
        snapshot = self._board.read()
        if snapshot is self._looked_at:
            return
        self._looked_at = snapshot
        root = snapshot.root.report
        log_report = None if root is None else root.kernel_log
        traces = {} if log_report is None else log_report.traces
        inputs = (self._machines(snapshot), traces, gpu_errors(snapshot))
        if inputs != self._inputs:
            self._inputs = inputs
            self._publish(snapshot, *inputs)

    def _publish(
        self,
        snapshot: Snapshot,
        machines: tuple[MachineFacts, ...],
        traces: Mapping[str, FaultTrace],
        errors: tuple[GpuError, ...],
    ) -> None:
        self._errors = with_errors(self._errors, errors, self._regexes)
        signs: Signs = {name: (sign,) for name, sign in self._errors.items()}
        for name, trace in traces.items():
            common = name in self._common
            sign = FaultSign("kernel log", trace.words, trace.at_s, trace.count, common)
            signs[name] = (*signs.get(name, ()), sign)
        signs = explained_signs(self._entries, machines, signs)
        self._pairs = paired(self._pairs, signs, errors)
        faults = known_faults(self._entries, machines, signs, self._pairs)
        before = {(fault.id, fault.state, fault.alarm) for fault in snapshot.known_faults}
        for fault in faults:
            if fault.state == SEEN and (fault.id, fault.state, fault.alarm) not in before:
                log.warning("known_fault", id=fault.id, alarm=fault.alarm, evidence=fault.evidence)
        if faults != snapshot.known_faults:
            self._board.publish(known_faults=faults)

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


def left_out(read: Mapping[str, str], driver: str | None, gpu: Device) -> dict[str, str]:
    """Return the modes of probes that are not to be measured on a GPU, each with the reason.

    ``read``: the facts of the machine, as ``MachineState.platform`` has them.
    """
    return matching.left_out(catalogue(), _facts(read, driver, gpu.compute_capability))


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
