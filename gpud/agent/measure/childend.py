"""The result of a child that ended: its document, or the reason why there is none.

A child that ends without a document has noted which call of the driver it was in, and the document
as far as it went: what it knows of a failed run, or all of a finished one whose driver did not
survive giving the GPU back.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic

from gpud.agent import children
from gpud.agent.children import STDOUT_BYTES
from gpud.core import advice, wire
from gpud.core.advice import Situation
from gpud.core.errors import WireError
from gpud.core.progress import Note
from gpud.core.sample import Failure, Reason, RunReport

if TYPE_CHECKING:
    from gpud.agent.children import Ended
    from gpud.core.sample import Job, ProbeSpec

NOTHING = Note()
HANGS = frozenset({Reason.HUNG, Reason.SLOW_START})
_CRASHES = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})


@dataclass(frozen=True, slots=True)
class Measured(Generic[wire.Document]):
    """What a child brought, what it had noted, and how long it lived. Units: seconds."""

    document: wire.Document | Failure
    note: Note = NOTHING
    took_s: float = 0.0


def foreign(report: RunReport, spec: ProbeSpec) -> str | None:
    """Name what in a report is not of its probe: modes become labels, and are bounded."""
    if report.probe != spec.name:
        return f"{report.probe!r:.60}"
    if report.backend is not spec.backend:
        return f"the {report.backend}"
    named = {sample.mode for sample in report.samples} | {gap.mode for gap in report.missing}
    if strange := sorted(named - set(spec.modes)):
        return f"a mode {strange[0]!r:.60}"
    if any(sample.unit is not spec.unit for sample in report.samples):
        return "another unit"
    return None


def judged(
    ended: Ended, kind: type[wire.Document], deadline_s: float, job: Job, note: Note
) -> wire.Document | Failure:
    """Give the document of a child, or what its end means."""
    if ended.killed:
        gone = "" if ended.code is not None else f"; {_staying(ended.pid)}"
        detail = f"no answer within {deadline_s:g} s{_inside(note)}, killed once{gone}"
        what = advice.of_hang(note.call, start_up=False)
        return Failure(Reason.HUNG, detail, function=note.call, advice=what)
    if ended.code is not None and ended.code < 0:
        return _signalled(-ended.code, ended, job, note)
    if ended.overflowed:
        detail = f"more than {STDOUT_BYTES} bytes on stdout"
        return Failure(Reason.BAD_OUTPUT, detail)
    if not ended.stdout.strip():
        reason = Reason.CRASHED if ended.code else Reason.BAD_OUTPUT
        return Failure(reason, story(ended))
    try:
        return wire.decode(ended.stdout, kind)
    except WireError as error:
        return Failure(Reason.BAD_OUTPUT, str(error))


def _staying(pid: int) -> str:
    process = children.ref(pid)
    condition = children.condition(process) if process is not None else None
    return f"process {pid} does not go away" + (f" ({condition})" if condition else "")


def report(spec: ProbeSpec, job: Job, ended: Measured[RunReport]) -> RunReport:
    """Give the report of a run: the child's own, or as much of it as it had noted."""
    nothing = RunReport(spec.name, spec.backend, duration_s=ended.took_s)
    if not isinstance(ended.document, Failure):
        wrong = _wrong(ended.document, spec, job)
        if wrong is None:
            return ended.document
        return replace(nothing, failure=Failure(Reason.BAD_OUTPUT, wrong))
    failure, note = ended.document, ended.note
    try:
        draft = wire.decode(note.draft, RunReport)
    except WireError:
        draft = nothing
    if _wrong(draft, spec, job) is not None:
        draft = nothing
    if draft.failure is None and not draft.samples and not draft.missing:
        return replace(draft, failure=failure, duration_s=ended.took_s)
    # It was whole, and only giving the GPU back went wrong after it.
    words = f"{note.call}: {failure.detail}" if note.call else failure.detail
    return replace(draft, conditions={**draft.conditions, "release_errors": words})


def _wrong(report: RunReport, spec: ProbeSpec, job: Job) -> str | None:
    if strange := foreign(report, spec):
        return f"asked for {spec.name}, got a report of {strange}"
    if report.device is not None and report.device.uuid != job.gpu:
        return f"asked for {job.gpu}, got a report of {report.device.uuid!r:.60}"
    return None


def _signalled(number: int, ended: Ended, job: Job, note: Note) -> Failure:
    call, words = note.call, _last_words(ended)
    if number == signal.SIGALRM:
        what = advice.of_hang(call, start_up=note.start_up)
        if note.start_up:
            detail = f"not started within {job.start_limit_s:g} s{_inside(note)}{words}"
            return Failure(Reason.SLOW_START, detail, function=call, advice=what)
        where = "a driver call" if call is None else call
        detail = f"ended by its own alarm while {where} hung{words}"
        return Failure(Reason.HUNG, detail, function=call, advice=what)
    detail = f"ended by {children.signal_name(number)}{_inside(note)}{words}"
    if number not in _CRASHES:
        return Failure(Reason.KILLED, detail, function=call)
    if call == "dlopen":  # SIGBUS: the file is shorter than its own table of contents says
        detail = f"{detail}; the driver's library is damaged or cut short"
        return Failure(Reason.CRASHED, detail, function=call, advice=Situation.LIBRARY_MISSING)
    return Failure(
        Reason.CRASHED, detail, function=call, advice=None if call is None else Situation.AGAIN
    )


def _inside(note: Note) -> str:
    return "" if note.call is None else f" in {note.call}"


def story(ended: Ended) -> str:
    """Tell of one that ended by itself and said nothing."""
    return f"exit code {ended.code} and no document{_last_words(ended)}"


def _last_words(ended: Ended) -> str:
    lines = ended.stderr.decode(errors="replace").strip().splitlines()
    return f": {lines[-1][:300]}" if lines else ""
