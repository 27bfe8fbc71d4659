"""Run all checks: one that may block in the kernel in a forked child, the others directly.

A Windows drive, a driver, Docker's socket or sudo may not answer for minutes. Such a check has
``MAY_BLOCK``; its child is killed at the deadline, and one that cannot be killed is left behind.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import msgspec

from gpud import discovery
from gpud.doctor import checks
from gpud.doctor.finding import Finding, Verdict, unknown
from gpud.doctor.machine import Machine, Unreadable

if TYPE_CHECKING:
    from types import ModuleType

Look = Callable[[Machine], Finding]

REQUIRED = ("TITLE", "ORDER", "SUMMARY", "look")
DEADLINE_S = 1.4
"""For all checks together. A child that loads the driver ends itself before."""
LONGEST = 600
CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of the report, and one of ``checks`` in its JSON."""

    name: str
    title: str
    verdict: Verdict
    evidence: str
    fix: str | None


@dataclass(frozen=True, slots=True)
class _Child:
    pid: int
    pipe: int


def run_checks(
    machine: Machine, *, package: ModuleType = checks, deadline_s: float = DEADLINE_S
) -> list[CheckResult]:
    """Run all checks of a package and return their results in order.

    Errors: none; a check that does not load, fails, crashes or hangs is a result like the others.
    """
    usable, refused = discovery.modules(package, REQUIRED)
    ends_at = time.monotonic() + deadline_s
    blocking = {name for name, module in usable.items() if getattr(module, "MAY_BLOCK", False)}
    sys.stdout.flush()  # a child must not have it too
    children = {name: _fork(usable[name].look, machine) for name in blocking}
    findings = {name: _look(usable[name].look, machine) for name in usable.keys() - blocking}
    findings |= {name: _result(child, ends_at, deadline_s) for name, child in children.items()}
    ordered = sorted(usable, key=lambda name: (usable[name].ORDER, name))
    results = [_line(name, usable[name].TITLE, findings[name]) for name in ordered]
    lost = {name: unknown(f"the check does not load: {why}") for name, why in refused.items()}
    return results + [_line(name, name, finding) for name, finding in sorted(lost.items())]


def _look(look: Look, machine: Machine) -> Finding:
    try:
        return look(machine)
    except Unreadable as error:
        return unknown(str(error))
    except Exception as error:  # noqa: BLE001  # the boundary: one check never ends the others
        fix = "this is a bug in gpud; please report it with this line"
        return unknown(f"the check failed: {type(error).__name__}: {error}", fix)


def _fork(look: Look, machine: Machine) -> _Child:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _look_and_exit(look, machine, writing)
    os.close(writing)
    return _Child(pid, reading)


def _look_and_exit(look: Look, machine: Machine, pipe: int) -> NoReturn:
    """Write the finding into the pipe and exit, without the parent's clean-up."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):  # a driver library may print
            os.dup2(null, descriptor)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        finding = _look(look, machine)
        with suppress(BrokenPipeError), open(pipe, "wb") as file:  # a pipe
            file.write(msgspec.json.encode(_printable(finding)))
    finally:
        os._exit(0)


def _result(child: _Child, ends_at: float, deadline_s: float) -> Finding:
    answer = _read(child.pipe, ends_at)
    os.close(child.pipe)
    if answer is None:
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)  # not reaped yet, so the pid is still its own
        os.waitpid(child.pid, os.WNOHANG)  # one in state D is left behind
        return unknown(f"no answer within {deadline_s:g} s")
    _, status = os.waitpid(child.pid, 0)
    try:
        return msgspec.json.decode(answer, type=Finding)
    except msgspec.DecodeError:
        how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "no word"
        return unknown(f"the check ended with {how}")


def _read(pipe: int, ends_at: float) -> bytes | None:
    """Read until the pipe is closed; None if it is still open at the deadline."""
    answer = b""
    while select.select([pipe], [], [], max(ends_at - time.monotonic(), 0.0))[0]:
        chunk = os.read(pipe, CHUNK)
        if not chunk:
            return answer
        answer += chunk
    return None


def _line(name: str, title: str, finding: Finding) -> CheckResult:
    finding = _printable(finding)
    return CheckResult(name, title, finding.verdict, finding.evidence, finding.fix)


def _printable(finding: Finding) -> Finding:
    fix = finding.fix
    return Finding(finding.verdict, _shortened(finding.evidence), fix and _shortened(fix))


def _shortened(text: str) -> str:
    # A lone surrogate (a file name that is no UTF-8) cannot be written as JSON.
    clean = text.encode(errors="replace").decode()
    return clean if len(clean) <= LONGEST else clean[: LONGEST - 1] + "…"
