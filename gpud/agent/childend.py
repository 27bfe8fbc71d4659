"""What the end of a child means: its document, or why there is none."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from gpud.agent import processes
from gpud.agent.children import KEPT_STDOUT
from gpud.core import wire
from gpud.core.advice import Situation
from gpud.core.errors import WireError
from gpud.core.sample import Failure, Reason

if TYPE_CHECKING:
    from gpud.agent.children import Ended
    from gpud.core.sample import ProbeSpec, RunReport

_CRASHES = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})


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


def judged(ended: Ended, kind: type[wire.Document], deadline_s: float) -> wire.Document | Failure:
    """Give the document of a child, or what its end means."""
    if ended.killed:
        gone = "" if ended.code is not None else f"; {_staying(ended.pid)}"
        detail = f"no answer within {deadline_s:g} s, killed once{gone}"
        return Failure(Reason.HUNG, detail, advice=Situation.HUNG)
    if ended.code is not None and ended.code < 0:
        return _signalled(-ended.code, ended)
    if ended.overflowed:
        detail = f"more than {KEPT_STDOUT} bytes on stdout"
        return Failure(Reason.BAD_OUTPUT, detail)
    if not ended.stdout.strip():
        reason = Reason.CRASHED if ended.code else Reason.BAD_OUTPUT
        return Failure(reason, story(ended))
    try:
        return wire.decode(ended.stdout, kind)
    except WireError as error:
        return Failure(Reason.BAD_OUTPUT, str(error))


def _staying(pid: int) -> str:
    process = processes.ref(pid)
    condition = processes.condition(process) if process is not None else None
    return f"process {pid} does not go away" + (f" ({condition})" if condition else "")


def _signalled(number: int, ended: Ended) -> Failure:
    if number == signal.SIGALRM:
        detail = f"ended by its own alarm while a driver call hung{_last_words(ended)}"
        return Failure(Reason.HUNG, detail, advice=Situation.HUNG)
    reason = Reason.CRASHED if number in _CRASHES else Reason.KILLED
    return Failure(reason, f"ended by {processes.signal_name(number)}{_last_words(ended)}")


def story(ended: Ended) -> str:
    """Tell of one that ended by itself and said nothing."""
    return f"exit code {ended.code} and no document{_last_words(ended)}"


def _last_words(ended: Ended) -> str:
    lines = ended.stderr.decode(errors="replace").strip().splitlines()
    return f": {lines[-1][:300]}" if lines else ""
