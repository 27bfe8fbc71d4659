"""Outcome of a child: the report it wrote, or what its end means.

A child that ends without a document has noted which call of the driver it was in, and the document
as far as it went: the facts of a failed run, or all of a finished one whose driver did not survive
giving the GPU back.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import TYPE_CHECKING

from gpud.agent import children
from gpud.core import advice, wire
from gpud.core.advice import Situation
from gpud.core.errors import WireError
from gpud.core.sample import Failure, Reason, RunReport

if TYPE_CHECKING:
    from gpud.agent.children import Ended
    from gpud.core.progress import Note
    from gpud.core.sample import Job, ProbeSpec

HANGS = frozenset({Reason.HUNG, Reason.SLOW_START})
_CRASHES = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})


def document(
    ended: Ended, kind: type[wire.Document], deadline_s: float, job: Job, note: Note
) -> wire.Document | Failure:
    """Return the document of a child, or the failure that its end means."""
    if ended.killed:
        stays = "" if ended.code is not None else f"; {_staying(ended.pid)}"
        detail = f"no answer within {deadline_s:g} s{_inside(note)}, killed once{stays}"
        fix = advice.of_hang(note.call, start_up=False)
        return Failure(Reason.HUNG, detail, function=note.call, advice=fix)
    if ended.code is not None and ended.code < 0:
        return _signalled(-ended.code, ended, job, note)
    if ended.overflowed:
        return Failure(Reason.BAD_OUTPUT, f"more than {children.STDOUT_BYTES} bytes on stdout")
    if not ended.stdout.strip():
        return Failure(Reason.CRASHED if ended.code else Reason.BAD_OUTPUT, silence(ended))
    try:
        return wire.decode(ended.stdout, kind)
    except WireError as error:
        return Failure(Reason.BAD_OUTPUT, str(error))


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
    """Name what in a report is not of its run: modes become labels, and are bounded."""
    modes = {sample.mode for sample in report.samples} | {gap.mode for gap in report.missing}
    strange = sorted(modes - set(spec.modes))
    if report.probe != spec.name:
        foreign = f"{report.probe!r:.60}"
    elif report.backend is not spec.backend:
        foreign = f"the {report.backend}"
    elif strange:
        foreign = f"a mode {strange[0]!r:.60}"
    elif any(sample.unit is not spec.unit for sample in report.samples):
        foreign = "another unit"
    elif report.device is not None and report.device.uuid != job.gpu:
        return f"asked for {job.gpu}, got a report of {report.device.uuid!r:.60}"
    else:
        return None
    return f"asked for {spec.name}, got a report of {foreign}"


def _signalled(number: int, ended: Ended, job: Job, note: Note) -> Failure:
    call, words = note.call, _last_line(ended)
    if number == signal.SIGALRM:
        fix = advice.of_hang(call, start_up=note.start_up)
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


def _staying(pid: int) -> str:
    process = children.ref(pid)
    condition = children.condition(process) if process is not None else None
    return f"process {pid} does not go away" + (f" ({condition})" if condition else "")


def _inside(note: Note) -> str:
    return "" if note.call is None else f" in {note.call}"


def _last_line(ended: Ended) -> str:
    lines = ended.stderr.decode(errors="replace").strip().splitlines()
    return f": {lines[-1][:300]}" if lines else ""
