"""Run and report of all checks; one that may block in the kernel runs in a forked child.

A Windows drive, a driver, Docker's socket or sudo may not answer for minutes. The child of such a
check is killed at the deadline, and one that cannot be killed is left behind.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import textwrap
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

import gpud
from gpud import discovery
from gpud.core.sample import SCHEMA_VERSION
from gpud.core.text import escaped
from gpud.doctor import checks
from gpud.doctor.finding import Check, Finding, Verdict, unknown
from gpud.doctor.machine import Machine, Unreadable
from gpud.units import plural

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType


DEADLINE_S = 1.4
"""For all checks together. A child that loads the driver ends itself before."""
LONGEST = 600
CHUNK = 1 << 16
STYLES = {Verdict.OK: "32", Verdict.UNKNOWN: "35", Verdict.ADVICE: "33", Verdict.PROBLEM: "1;31"}
"""SGR codes of terminals."""
WIDTH = max(map(len, Verdict))
NARROWEST = 20


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of the report, and one of ``checks`` in its JSON."""

    name: str
    title: str
    verdict: Verdict
    evidence: str
    fix: str | None


def collect(package: ModuleType = checks) -> tuple[list[Check], dict[str, str]]:
    """Return the checks of a package in order, and why a module of it cannot be used."""
    usable, refused = discovery.modules(package)
    values = [value for module in usable.values() for value in vars(module).values()]
    by_name = {value.name: value for value in values if isinstance(value, Check)}
    return sorted(by_name.values(), key=lambda check: check.order), refused


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
    for name, (pid, pipe) in children.items():
        findings[name] = _result(pid, pipe, ends_at) or unknown(
            f"no answer within {deadline_s:g} s"
        )
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


def _fork(check: Check, machine: Machine) -> tuple[int, int]:
    """Start a check in a child. Shapes: its pid, and the pipe it writes its finding into."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _look_and_exit(check, machine, writing)
    os.close(writing)
    return pid, reading


def _look_and_exit(check: Check, machine: Machine, pipe: int) -> NoReturn:
    """Write the finding into the pipe and exit, without the parent's clean-up."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):  # a driver library may print
            os.dup2(null, descriptor)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        result = _line("", "", _look(check, machine))
        finding = Finding(result.verdict, result.evidence, result.fix)
        with suppress(BrokenPipeError), open(pipe, "wb") as file:  # a pipe
            file.write(msgspec.json.encode(finding))
    finally:
        os._exit(0)


def _result(pid: int, pipe: int, ends_at: float) -> Finding | None:
    """Read the finding of a child; None if the pipe is still open at the deadline."""
    answer = b""
    with open(pipe, "rb", buffering=0) as file:  # of a descriptor
        while select.select([pipe], [], [], max(ends_at - time.monotonic(), 0.0))[0]:
            chunk = file.read(CHUNK)
            if not chunk:
                break
            answer += chunk
        else:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # not reaped yet, so the pid is still its own
            os.waitpid(pid, os.WNOHANG)  # one in state D is left behind
            return None
    _, status = os.waitpid(pid, 0)
    try:
        return msgspec.json.decode(answer, type=Finding)
    except msgspec.DecodeError:
        how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "no word"
        return unknown(f"the check ended with {how}")


def _line(name: str, title: str, finding: Finding) -> CheckResult:
    fix = finding.fix and _shortened(finding.fix)
    return CheckResult(name, title, finding.verdict, _shortened(finding.evidence), fix)


def _shortened(text: str) -> str:
    # A lone surrogate (a file name that is no UTF-8) cannot be written as JSON.
    clean = text.encode(errors="replace").decode()
    return clean if len(clean) <= LONGEST else clean[: LONGEST - 1] + "…"


def document(results: Sequence[CheckResult]) -> dict[str, Any]:
    """Return the report as plain JSON data; ``counts`` has every verdict."""
    counts = Counter(result.verdict for result in results)
    return {
        "schema_version": SCHEMA_VERSION,
        "version": gpud.__version__,
        "state": "problem" if counts[Verdict.PROBLEM] else "ok",
        "counts": {verdict: counts[verdict] for verdict in Verdict},
        "checks": msgspec.to_builtins(results),
    }


def lines(results: Sequence[CheckResult], *, columns: int = 0, colour: bool = False) -> list[str]:
    """Return a line for each result, its fix below it, and the counts; 0 columns wrap nothing."""
    titles = max((len(result.title) for result in results), default=0)
    indent = " " * (WIDTH + titles + 4)
    shown = []
    for result in results:
        word = str(result.verdict)
        word = f"{word.upper() if result.verdict is Verdict.PROBLEM else word:<{WIDTH}}"
        if colour:
            word = f"\x1b[{STYLES[result.verdict]}m{word}\x1b[0m"
        body = _wrapped(escaped(result.evidence), columns - len(indent))
        body += _wrapped(f"fix: {escaped(result.fix)}", columns - len(indent)) if result.fix else []
        shown.append(f"{word}  {result.title:<{titles}}  {body[0]}")
        shown += [indent + line for line in body[1:]]
    counts = Counter(result.verdict for result in results)
    problems = plural(counts[Verdict.PROBLEM], "problem")
    others = (Verdict.ADVICE, Verdict.OK, Verdict.UNKNOWN)
    return [*shown, "", ", ".join([problems, *(f"{counts[each]} {each}" for each in others)])]


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width) or [text] if width >= NARROWEST else [text]
