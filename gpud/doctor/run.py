"""Every check in a process of its own, all at once, and none of them waited for too long.

A check may read a drive of Windows that does not answer, or load a driver that hangs or crashes:
it is then one line that says so. The processes are forked, which costs a millisecond each; this
program has one thread and holds no library that would mind.
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
from gpud.doctor.finding import Finding, Verdict
from gpud.doctor.machine import Machine, Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

OFFERS = ("TITLE", "ORDER", "SUMMARY", "look")
DEADLINE_S = 1.4
"""For all checks together. A child that loads the driver ends itself before."""
LONGEST = 600
LARGEST_ANSWER = 1 << 16
LAST = 1_000_000


@dataclass(frozen=True, slots=True)
class Line:
    """One check and what it found."""

    name: str
    title: str
    finding: Finding


@dataclass(slots=True)
class _Running:
    pid: int
    pipe: int
    heard: bytes = b""


def everything(
    machine: Machine, *, package: ModuleType = checks, deadline_s: float = DEADLINE_S
) -> list[Line]:
    """Run all checks of a package at once and give their lines in order.

    Errors: none; a check that does not load, fails, crashes or hangs is a line like the others.
    """
    usable, refused = discovery.modules(package, OFFERS)
    order: dict[str, tuple[int, str]] = {
        name: (module.ORDER, module.TITLE) for name, module in usable.items()
    }
    order |= dict.fromkeys(refused, (LAST, ""))
    findings = {
        name: Finding(Verdict.UNKNOWN, f"the check does not load: {why}")
        for name, why in refused.items()
    }
    looks = {name: module.look for name, module in usable.items()}
    findings |= _looked(looks, machine, deadline_s)
    return [
        Line(name, order[name][1] or name, _bounded(findings[name]))
        for name in sorted(findings, key=lambda name: (order[name], name))
    ]


def _looked(
    looks: dict[str, Callable[[Machine], Finding]], machine: Machine, deadline_s: float
) -> dict[str, Finding]:
    ends_at = time.monotonic() + deadline_s
    sys.stdout.flush()
    running = {name: _begun(look, machine) for name, look in looks.items()}
    waiting = {one.pipe: one for one in running.values()}
    ended: set[int] = set()
    while waiting and (left_s := ends_at - time.monotonic()) > 0:
        readable, _, _ = select.select(list(waiting), [], [], left_s)
        for pipe in readable:
            chunk = os.read(pipe, LARGEST_ANSWER)
            waiting[pipe].heard += chunk
            if not chunk:
                ended.add(pipe)
                del waiting[pipe]
    findings = {name: _answer(one, one.pipe in ended, deadline_s) for name, one in running.items()}
    for one in running.values():
        os.close(one.pipe)
    return findings


def _begun(look: Callable[[Machine], Finding], machine: Machine) -> _Running:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _look_and_leave(look, machine, writing)
    os.close(writing)
    return _Running(pid, reading)


def _look_and_leave(look: Callable[[Machine], Finding], machine: Machine, pipe: int) -> NoReturn:
    """Look, answer and end: in the forked process, of whose parent nothing may be touched."""
    try:
        with suppress(BrokenPipeError):
            os.write(pipe, msgspec.json.encode(_bounded(_said(look, machine))))
    finally:
        os._exit(0)


def _said(look: Callable[[Machine], Finding], machine: Machine) -> Finding:
    quiet = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # a driver library that prints must not end up in the report
        os.dup2(quiet, descriptor)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return look(machine)
    except Unreadable as error:
        return Finding(Verdict.UNKNOWN, str(error))
    except Exception as error:  # noqa: BLE001  # the boundary: one check never ends the others
        return Finding(
            Verdict.UNKNOWN,
            f"the check failed: {type(error).__name__}: {error}",
            "this is a bug in gpud; please report it with this line",
        )


def _answer(one: _Running, ended: bool, deadline_s: float) -> Finding:  # noqa: FBT001
    if not ended:
        with suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGKILL)  # it is ours and not reaped: the pid is still its own
        os.waitpid(one.pid, os.WNOHANG)  # one in state D is left behind, not waited for
        return Finding(Verdict.UNKNOWN, f"no answer within {deadline_s:g} s")
    _, status = os.waitpid(one.pid, 0)
    try:
        return msgspec.json.decode(one.heard, type=Finding)
    except msgspec.DecodeError:
        how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "no word"
        return Finding(Verdict.UNKNOWN, f"the check ended with {how}")


def _bounded(finding: Finding) -> Finding:
    fix = finding.fix
    return Finding(finding.verdict, _cut(finding.evidence), None if fix is None else _cut(fix))


def _cut(text: str) -> str:
    # A lone surrogate (a file name that is no UTF-8) cannot be written as JSON.
    clean = text.encode(errors="replace").decode()
    return clean if len(clean) <= LONGEST else clean[: LONGEST - 1] + "…"
