"""``gpud probe``: the verb, its output and its exit code."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.agent.byhand import document, draw, others, progress, terminal
from gpud.agent.byhand.session import Session, named
from gpud.agent.launch import Launcher
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.agent.byhand.outcome import Outcome
    from gpud.agent.byhand.session import Request
    from gpud.core.settings import Settings

WELL, PROBLEM = 0, 1
INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM


def listing(names: Sequence[str], *, as_json: bool) -> int:
    """Print the probes there are, or those that are named; 1 when a probe module does not load.

    Errors: ``ConfigError`` for a name that is no probe.
    """
    # Nothing is measured, so nobody's lock is wanted.
    known, broken = asyncio.run(Launcher(Path(os.devnull)).specs())
    specs, refused = tuple(named(known, broken, names)), {} if names else broken
    if as_json:
        terminal.put(json.dumps(document.of_listing(specs, refused)) + "\n")
        return PROBLEM if refused else WELL
    lines: list[terminal.Line] = []
    for spec in specs:
        budget = f"at most {spec.budget_s:g} s"
        if spec.backend == "cuda":
            budget += f", {spec.gpu_budget_s:g} s of it GPU time"
        lines.append((f"{spec.name:<12} {spec.backend:<5} {spec.pace:<6} {budget}", draw.HEAD))
        lines.append((f"{'':<12} {spec.summary}", ""))
        lines.append((f"{'':<12} modes: {', '.join(spec.modes)}", ""))
    for name, reason in refused.items():
        lines.append((f"{escaped(name):<12} does not load: {escaped(reason)}", draw.FAILED))
    terminal.show(lines)
    return PROBLEM if refused else WELL


def run(settings: Settings, request: Request, *, as_json: bool) -> int:
    """Run probes now and print what they bring; 1 when any brought nothing, 130 after Ctrl-C.

    Errors: ``ConfigError`` for a name that is no probe or no GPU, ``PermissionError`` where the
    lock is the agent's and not ours.
    """
    lock = _lock(settings)
    shown = progress.chosen(as_json=as_json)
    session = Session(settings, request, shown, lock)
    code = None
    try:
        asyncio.run(_until_told(session))
    except KeyboardInterrupt:
        code = INTERRUPTED
    except asyncio.CancelledError:
        code = TERMINATED
    finally:
        shown.close()
    outcome = session.outcome
    outcome.interrupted = code is not None
    _print(outcome, as_json=as_json)
    if outcome.interrupted:
        print(f"gpud: interrupted{_left_running(outcome, lock)}", file=sys.stderr, flush=True)
    return code or (WELL if outcome.good else PROBLEM)


async def _until_told(session: Session) -> None:
    """Run the session; SIGTERM ends it as Ctrl-C does, which asyncio sees to."""
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    if task is not None:
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
    await session.run()


def _print(outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        terminal.put(json.dumps(document.of_outcome(outcome)) + "\n")
        return
    terminal.show(
        draw.lines(
            outcome,
            width=terminal.width(sys.stdout),
            ascii_only=terminal.ascii_only(sys.stdout),
        )
    )


def _left_running(outcome: Outcome, lock: Path) -> str:
    if outcome.running is None:
        return "; nothing was running"
    return (
        f" in {escaped(outcome.running)}. Killing GPU work can take the driver with it, so "
        f"{others.holder(lock)}, was left alone; it ends by itself"
    )


def _lock(settings: Settings) -> Path:
    """Use the lock of the agent that runs here, or one of our own where none ever did."""
    own = Path(settings.run_dir, "agent")
    if own.is_dir():
        path = own / "gpu.lock"
    elif os.geteuid() == 0:  # never a name in /tmp, where anybody could have put a link
        path = Path("/run/gpud-probe.lock")
    else:
        path = Path(tempfile.gettempdir(), f"gpud-probe-{os.geteuid()}.lock")
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o660))
    except PermissionError as error:
        raise PermissionError(f"{path} belongs to the agent's user") from error
    return path
