"""Run of all checks: one that may block in the kernel in a forked child, the others directly.

A Windows drive, a driver, Docker's socket or sudo may not answer for minutes. The child of such a
check is killed at the deadline, and one that cannot be killed is left behind.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import msgspec

from gpud import discovery
from gpud.doctor import checks
from gpud.doctor.finding import Check, Finding, Verdict, unknown
from gpud.doctor.machine import Machine, Unreadable

if TYPE_CHECKING:
    from types import ModuleType

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


def collect(package: ModuleType = checks) -> tuple[list[Check], dict[str, str]]:
    """Return the checks of a package in order, and why a module of it cannot be used."""
    usable, refused = discovery.modules(package)
    values = [value for module in usable.values() for value in vars(module).values()]
    found = {value.name: value for value in values if isinstance(value, Check)}
    return sorted(found.values(), key=lambda check: check.order), refused


def run_checks(
    machine: Machine, *, package: ModuleType = checks, deadline_s: float = DEADLINE_S
) -> list[CheckResult]:
    """Run all checks of a package and return their results in order.

    Errors: none; a check that does not load, fails, crashes or hangs is a result like the others.
    """
    ordered, refused = collect(package)
    ends_at = time.monotonic() + deadline_s
    sys.stdout.flush()  # a child must not have it too
    children = {check.name: _fork(check, machine) for check in ordered if check.may_block}
    findings = {check.name: _look(check, machine) for check in ordered if not check.may_block}
    findings |= {name: _result(child, ends_at, deadline_s) for name, child in children.items()}
    results = [_line(check.name, check.title, findings[check.name]) for check in ordered]
    lost = {name: unknown(f"the check does not load: {why}") for name, why in refused.items()}
    return results + [_line(name, name, finding) for name, finding in sorted(lost.items())]


def _look(check: Check, machine: Machine) -> Finding:
    try:
        return check.look(machine)
    except Unreadable as error:
        return unknown(str(error))
    except Exception as error:  # noqa: BLE001  # the boundary: one check never ends the others
        fix = "this is a bug in gpud; please report it with this line"
        return unknown(f"the check failed: {type(error).__name__}: {error}", fix)


def _fork(check: Check, machine: Machine) -> _Child:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _look_and_exit(check, machine, writing)
    os.close(writing)
    return _Child(pid, reading)


def _look_and_exit(check: Check, machine: Machine, pipe: int) -> NoReturn:
    """Write the finding into the pipe and exit, without the parent's clean-up."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):  # a driver library may print
            os.dup2(null, descriptor)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        finding = _look(check, machine)
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
