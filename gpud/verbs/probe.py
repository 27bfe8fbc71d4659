"""``gpud probe``: run probes now, by the agent that runs or, where none does, by this process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from gpud import client, gpu_lock
from gpud.arguments import INTERRUPTED, OK, PROBLEM
from gpud.core.errors import NotRunningError
from gpud.core.sample import SCHEMA_VERSION
from gpud.core.text import escaped
from gpud.output import plain
from gpud.requests import BeginLine, ProbeRequest, RanLine, WaitLine
from gpud.verbs.probe_outcome import ProbeOutcome

if TYPE_CHECKING:
    import argparse
    from types import FrameType

    from gpud.core.settings import Settings
    from gpud.place import Place
    from gpud.requests import AnswerLine

TERMINATED: Final = 128 + signal.SIGTERM
LOOK_S: Final = 0.25
"""How long a run waits for the lock before it is said for whom."""
UNLOCKED: Final = "gpud has not run since this machine started: probes run without its lock"


class Terminated(BaseException):
    """SIGTERM came."""


def run(options: argparse.Namespace, place: Place) -> int:
    """Run probes and print what they bring; 1 when any brought nothing, 130 after Ctrl-C.

    Errors: ``ConfigError`` for a name that is no probe or no GPU, ``DeniedError``.
    """
    if options.list:
        return _list(options)
    settings = place.settings()
    request = ProbeRequest(
        names=tuple(options.names), gpus=tuple(options.gpu), repeat=options.repeat
    )
    outcome = ProbeOutcome(repeats=options.repeat)
    progress = ProbeProgress(outcome, shown=not options.json or sys.stderr.isatty())
    signal.signal(signal.SIGTERM, _terminate)
    code = None
    try:
        _measure(settings, request, progress)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Terminated:
        code = TERMINATED
    if code is not None:
        progress.interrupted()
    outcome.interrupted = code is not None
    if options.json:
        print(json.dumps(outcome.document()), flush=True)
    else:
        print(plain("\n".join(outcome.lines())), flush=True)
    return code or (OK if outcome.good else PROBLEM)


def _list(options: argparse.Namespace) -> int:
    """Print the probes there are, or those that are named; 1 when a probe module does not load."""
    from gpud.agent.measure.launch import Launcher
    from gpud.agent.measure.session import named

    all_specs, broken = asyncio.run(Launcher(None).specs())
    specs, refused = tuple(named(all_specs, broken, options.names)), {} if options.names else broken
    if options.json:
        probes = [asdict(spec) for spec in specs]
        document = {"schema_version": SCHEMA_VERSION, "probes": probes, "refused": refused}
        print(json.dumps(document))
        return PROBLEM if refused else OK
    for spec in specs:
        gpu = f", {spec.gpu_budget_s:g} s of it GPU time" if spec.backend == "cuda" else ""
        print(f"{spec.name}: {spec.backend}, {spec.pace}, at most {spec.budget_s:g} s{gpu}")
        print(f"  {spec.summary}\n  modes: {', '.join(spec.modes)}")
    for name, reason in refused.items():
        print(f"{escaped(name)} does not load: {escaped(reason)}")
    return PROBLEM if refused else OK


def _terminate(_: int, __: FrameType | None) -> NoReturn:
    raise Terminated


def _measure(settings: Settings, request: ProbeRequest, progress: ProbeProgress) -> None:
    try:
        for line in client.ask(Path(settings.run_dir), request):
            progress.take(line)
    except NotRunningError:
        asyncio.run(_measure_here(settings, request, progress))


async def _measure_here(settings: Settings, request: ProbeRequest, progress: ProbeProgress) -> None:
    from gpud.agent import platform
    from gpud.agent.measure import grace, pace
    from gpud.agent.measure.clocks import now
    from gpud.agent.measure.gpu_contexts import GpuContexts
    from gpud.agent.measure.launch import Launcher
    from gpud.agent.measure.session import Session
    from gpud.core import advice, wsl

    lock = gpu_lock.existing(Path(settings.run_dir))
    if lock is None:
        progress.say(UNLOCKED)
    facts = platform.facts(settings.sysroot)
    boot = grace.gpu_from(settings, facts, now())
    plan = pace.plan(
        settings.schedule,
        wsl2=wsl.is_wsl2(facts.get("kernel", "")),
        on_battery=settings.gate.on_battery,
    )
    launcher = Launcher(
        lock,
        patience_s=LOOK_S,
        platform=advice.of(facts),
        gpu_from_s=0.0 if boot is None else boot.mono_s,
        contexts=GpuContexts(Path(settings.state_dir), platform.boot_id(), plan.budget),
        leave_hung=settings.cuda.leaves_hung(facts.get("kernel", "")),
    )
    try:
        async with contextlib.aclosing(Session(settings, request, launcher).lines()) as lines:
            async for line in lines:
                progress.take(line)
    finally:
        launcher.close()


class ProbeProgress:
    """What a waiting person sees on stderr; the outcome takes the rest in."""

    def __init__(self, outcome: ProbeOutcome, *, shown: bool) -> None:
        self._outcome = outcome
        self._shown = shown
        self._label = ""

    def take(self, line: AnswerLine) -> None:
        """Take in a line, and show it where it says how far everything is."""
        if isinstance(line, BeginLine):
            self._label = line.label
            self.say(f"{line.label} ...")
        elif isinstance(line, WaitLine):
            self.say(line.message)
        else:
            if isinstance(line, RanLine) and self._outcome.repeats > 1:  # else the table has it
                self.say(f"  {self._outcome.brief(line)}")
            self._label = ""
            self._outcome.take(line)

    def interrupted(self) -> None:
        """Say what becomes of the run that was going on."""
        note = "a process that measures is left alone and ends by itself"
        where = f" in {self._label}; {note}" if self._label else ""
        self.say(f"gpud: interrupted{where}")

    def say(self, words: str) -> None:
        """Print harmless text. Errors: none; a closed stderr spoils no measurement."""
        if self._shown:
            with contextlib.suppress(OSError, ValueError):
                print(plain(escaped(words)), file=sys.stderr, flush=True)
