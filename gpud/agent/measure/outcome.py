"""Outcome of a child: the report it wrote, or what its end means.

A child that ends without a document has noted which call of the driver it was in, and the document
as far as it went: the facts of a failed run, or all of a finished one whose driver did not survive
giving the GPU back.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from gpud import processes
from gpud.agent import children
from gpud.core import wire
from gpud.core.advice import Situation
from gpud.core.errors import WireError
from gpud.core.sample import Backend, Failure, Inventory, ProbeSpec, Reason, RunReport

if TYPE_CHECKING:
    from gpud.agent.children import Ended
    from gpud.agent.measure.served import Work
    from gpud.core.progress import Note
    from gpud.core.sample import Job

HANGS = frozenset({Reason.HUNG, Reason.SLOW_START})
_IN_CALL = {
    "cuModuleLoadDataEx": Situation.SLOW_LOAD,
    "cuStreamSynchronize": Situation.HUNG_WAIT,
    "cuEventSynchronize": Situation.HUNG_WAIT,
    "cuCtxSynchronize": Situation.HUNG_WAIT,
}
_CRASHES = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})


class _Listing(msgspec.Struct, frozen=True):
    probes: tuple[ProbeSpec, ...]
    refused: dict[str, str]


def document(answer: bytes, kind: type[wire.Document]) -> wire.Document | Failure:
    """Return the document that a child wrote for a job, or why it is none."""
    try:
        return wire.decode(answer, kind)
    except WireError as error:
        return Failure(Reason.BAD_OUTPUT, str(error))


def spoils(result: wire.Document | Failure) -> bool:
    """Return whether the child of a job is not to be given another one.

    A context that cannot be given back whole after a run has an error that stays, and a driver
    that did not start or list its GPUs is not asked again by the same process.
    """
    if isinstance(result, RunReport):
        unopened = result.backend is Backend.CUDA and result.device is None
        return unopened or "release_errors" in result.conditions
    return not isinstance(result, Inventory) or result.failure is not None


def used_numpy(result: wire.Document | Failure) -> bool:
    """Return whether the run of a job has loaded numpy."""
    return isinstance(result, RunReport) and "numpy" in result.conditions


def failure(ended: Ended, deadline_s: float, work: Work, note: Note) -> Failure:
    """Return the failure that the end of a child means, or that it does not end."""
    killed = ", killed once" if ended.killed else ""
    if not work.gpu and (ended.killed or ended.code == -signal.SIGALRM) and ended.code is not None:
        detail = f"not finished within {work.budget_s:g} s{killed}; the CPU was busy"
        return Failure(Reason.BUDGET_EXCEEDED, detail, advice=Situation.CPU_BUSY)
    if ended.killed or ended.code is None:
        stays = "" if ended.code is not None else f"; {_staying(ended)}"
        detail = f"no answer within {deadline_s:g} s{_inside(note)}{killed}{stays}"
        fix = _of_hang(note.call, start_up=False)
        return Failure(Reason.HUNG, detail, function=note.call, advice=fix)
    if ended.code < 0:
        return _signalled(-ended.code, ended, work.job, note)
    if ended.overflowed:
        return Failure(Reason.BAD_OUTPUT, f"more than {children.STDOUT_BYTES} bytes on stdout")
    if ended.stdout.strip():
        return Failure(Reason.BAD_OUTPUT, "half a document")
    return Failure(Reason.CRASHED if ended.code else Reason.BAD_OUTPUT, silence(ended))


def decode_specs(text: bytes) -> tuple[tuple[ProbeSpec, ...], dict[str, str]]:
    """Read what ``gpud.child --list`` prints: the specs, and the refused modules with reasons."""
    try:
        listing = msgspec.json.decode(text, type=_Listing)
    except wire.UNREADABLE as error:
        raise WireError(f"not a list of probes: {error}") from error
    return listing.probes, listing.refused


def silence(ended: Ended) -> str:
    """Describe the end of a child that wrote no document."""
    return f"exit code {ended.code} and no document{_last_line(ended)}"


def report(
    spec: ProbeSpec, job: Job, result: RunReport | Failure, note: Note, took_s: float
) -> RunReport:
    """Return the report of a run: the child's own, or as much of it as it had noted."""
    nothing = RunReport(spec.name, spec.backend, duration_s=took_s)
    if not isinstance(result, Failure):
        fault = _foreign(result, spec, job)
        if fault is None:
            return result
        return replace(nothing, failure=Failure(Reason.BAD_OUTPUT, fault))
    try:
        draft = wire.decode(note.draft, RunReport)
    except WireError:
        draft = nothing
    if _foreign(draft, spec, job) is not None:
        draft = nothing
    if draft.failure is None and not draft.samples and not draft.missing:
        return replace(draft, failure=result, duration_s=took_s)
    # It was whole, and only giving the GPU back went wrong after it.
    words = f"{note.call}: {result.detail}" if note.call else result.detail
    return replace(draft, conditions={**draft.conditions, "release_errors": words})


def _foreign(report: RunReport, spec: ProbeSpec, job: Job) -> str | None:
    """Describe a report that is not of its run: modes become labels, and are bounded."""
    modes = {sample.mode for sample in report.samples} | {gap.mode for gap in report.missing}
    strange = "".join(f", mode {mode!r:.60}" for mode in sorted(modes - set(spec.modes))[:1])
    gpu = job.gpu if report.device is None else report.device.uuid
    subject = (report.probe, report.backend, gpu) == (spec.name, spec.backend, job.gpu)
    if subject and not strange and all(sample.unit is spec.unit for sample in report.samples):
        return None
    place = f"{report.backend} {gpu or ''}".strip()
    return f"asked for {spec.name}, got a report of {report.probe!r:.60} on {place!r:.60}{strange}"


def _signalled(number: int, ended: Ended, job: Job, note: Note) -> Failure:
    call, words = note.call, _last_line(ended)
    if number == signal.SIGALRM:
        fix = _of_hang(call, start_up=note.start_up)
        if note.start_up:
            detail = f"not started within {job.start_limit_s:g} s{_inside(note)}{words}"
            return Failure(Reason.SLOW_START, detail, function=call, advice=fix)
        detail = f"ended by its own alarm while {call or 'a driver call'} hung{words}"
        return Failure(Reason.HUNG, detail, function=call, advice=fix)
    detail = f"ended by {children.signal_name(number)}{_inside(note)}{words}"
    if number not in _CRASHES:
        return Failure(Reason.KILLED, detail, function=call)
    if call == "dlopen":  # SIGBUS: the file is shorter than its own table of contents says
        detail = f"{detail}; the driver's library is damaged or cut short"
        return Failure(Reason.CRASHED, detail, function=call, advice=Situation.LIBRARY_MISSING)
    return Failure(
        Reason.CRASHED, detail, function=call, advice=None if call is None else Situation.AGAIN
    )


def _of_hang(call: str | None, *, start_up: bool) -> Situation:
    """Name the situation of a process that a call of the driver did not return to."""
    return _IN_CALL.get(call or "", Situation.SLOW_START if start_up else Situation.HUNG)


def _staying(ended: Ended) -> str:
    process = processes.ref(ended.pid)
    condition = children.condition(process) if process is not None else None
    state = f", {condition}" if condition else ""
    if ended.killed:
        return f"gpud's probe (process {ended.pid}{state}) does not go away"
    why = "because killing it can take the GPU of all of WSL away"
    return f"gpud's probe (process {ended.pid}{state}) is left alone, {why}"


def _inside(note: Note) -> str:
    return "" if note.call is None else f" in {note.call}"


def _last_line(ended: Ended) -> str:
    lines = ended.stderr.decode(errors="replace").strip().splitlines()
    return f": {lines[-1][:300]}" if lines else ""
