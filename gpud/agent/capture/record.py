"""Record a machine: every part asked at once, each with a deadline, none of them needed.

Nothing here loads a driver: NVML is asked by its helper, CUDA by a probe child that makes no
context. A part that does not answer is recorded as that.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

import gpud
from gpud.agent import children, platform
from gpud.agent.capture import document as capture
from gpud.agent.capture import programs
from gpud.agent.capture.document import Capture, Nvml
from gpud.agent.measure.breaker import State
from gpud.agent.measure.clocks import now
from gpud.agent.telemetry.sources.nvml import candidates
from gpud.core import wire
from gpud.core.errors import GpudError, WireError
from gpud.core.sample import Failure, Inventory, Job, Reason

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpud.agent.capture.document import Json
    from gpud.core.settings import Settings

PYTHON = (sys.executable, "-I", "-m")
LOOK_S = 5.0
NVML_S = 5.0  # every question that gpud has, one after the other
CUDA_START_LIMIT_S, CUDA_S = 3.75, 5.0  # the child ends itself before it has to be killed
OWN_S = 5.0  # gpud's own commands
GRACE_S = 1.0
"""For a killed process to go. All parts but the first are asked at once."""
LEFT_ALONE = frozenset({State.OPEN, State.HALF_OPEN, State.STUCK})


class Silent(GpudError):  # noqa: N818  # reads as the fact it states
    """A part did not answer; the text says how."""

    def __init__(self, message: str, reason: Reason) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """What is to be recorded, and as which gpud."""

    settings: Settings
    config: Path
    smi: bool = False  # nvidia-smi too: each start of it may cost Windows memory for good


@dataclass(frozen=True, slots=True)
class _Looked:
    files: dict[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    pci: tuple[str, ...] = ()
    driver_store: dict[str, tuple[str, ...]] = field(default_factory=dict)


async def record(request: CaptureRequest) -> Capture:
    """Record this machine as it is, with every identifier in it. Errors: none."""
    silent: dict[str, str] = {}
    status = await _own("status", request, silent)
    hangs = _hangs(status)
    linux, windows, doctor, nvml, cuda, content = await asyncio.gather(
        _looked("linux", request.settings, silent),
        _looked("windows", request.settings, silent),
        _own("doctor", request, silent),
        _nvml(request.settings, hangs),
        _cuda(request.settings, hangs),
        programs.outputs(request.settings, with_smi=request.smi and not hangs),
    )
    made = Capture(
        schema_version=capture.SCHEMA_VERSION,
        gpud=gpud.__version__,
        origin=capture.RECORDED,
        machine="",
        files=linux.files | windows.files,
        devices=linux.devices,
        driver_store=windows.driver_store,
        pci=linux.pci,
        nvml=nvml,
        programs=content,
        cuda=cuda,
        unanswered=silent,
        doctor=doctor,
        status=status,
    )
    return replace(made, machine=capture.described(made))


async def _looked(part: str, settings: Settings, silent: dict[str, str]) -> _Looked:
    command = (*PYTHON, "gpud.agent.capture.look", part, settings.sysroot)
    try:
        ended = await _answer(command, b"", LOOK_S)
        return msgspec.json.decode(ended.stdout, type=_Looked)
    except (Silent, *wire.UNREADABLE) as error:
        silent[part] = str(error)
        return _Looked()


async def _own(verb: str, request: CaptureRequest, silent: dict[str, str]) -> Json:
    """Take the document of one of gpud's own commands, whatever its exit code."""
    home = ("--home", request.settings.home, "--config", str(request.config))
    try:
        ended = await _answer((*PYTHON, "gpud", *home, verb, "--json"), b"", OWN_S)
        return msgspec.json.decode(ended.stdout)
    except (Silent, *wire.UNREADABLE) as error:
        silent[verb] = str(error)
        return None


def _hangs(status: Json) -> str | None:
    """Say why the driver is left alone: a running gpud has seen it hang and waits."""
    breaker = status.get("breaker") if isinstance(status, dict) else None
    state = breaker.get("state") if isinstance(breaker, dict) else None
    return f"not asked: the breaker of the running gpud is {state}" if state in LEFT_ALONE else None


async def _nvml(settings: Settings, hangs: str | None) -> Nvml:
    command = (*PYTHON, "gpud.agent.telemetry.nvml", "--record", *candidates(settings))
    if hangs:
        return Nvml(error=hangs)
    try:
        ended = await _answer(command, b"", NVML_S)
        answer = msgspec.json.decode(ended.stdout, type=Nvml)
    except (Silent, *wire.UNREADABLE) as error:
        return Nvml(error=str(error))
    library, words = answer.library, answer.error
    return replace(
        answer,
        library=library and _inside(settings, library),
        error=words and _inside(settings, words),
    )


async def _cuda(settings: Settings, hangs: str | None) -> Inventory:
    job = Job(
        cuda_library=settings.cuda.library,
        sysroot=settings.sysroot,
        start_limit_s=CUDA_START_LIMIT_S,
    )
    if hangs:
        return Inventory(failure=Failure(Reason.HUNG, hangs))
    if begins := platform.gpu_from(settings, platform.facts(settings.sysroot), now()):
        words = f"not asked: {platform.begins(begins)}"
        return Inventory(failure=Failure(Reason.NOT_READY, words))
    command = (*PYTHON, "gpud.child", "--inventory")
    try:
        ended = await _answer(command, json.dumps(asdict(job)).encode(), CUDA_S)
        answer = wire.decode(ended.stdout, Inventory)
    except Silent as error:
        return Inventory(failure=Failure(error.reason, str(error)))
    except WireError as error:
        return Inventory(failure=Failure(Reason.BAD_OUTPUT, str(error)))
    library, failure = answer.library, answer.failure
    if failure is not None:
        failure = replace(failure, detail=_inside(settings, failure.detail))
    return replace(answer, library=library and _inside(settings, library), failure=failure)


def _inside(settings: Settings, words: str) -> str:
    """Name what lies below the tree by its path on the machine."""
    root = settings.sysroot.rstrip("/")
    if not root:
        return words
    return words.replace(f"{os.path.realpath(root)}/", "/").replace(f"{root}/", "/")


async def _answer(command: Sequence[str], stdin: bytes, deadline_s: float) -> children.Ended:
    """Run a program of gpud's to its end. ``Errors: Silent`` when it brings no whole answer."""
    try:
        ended = await children.run(command, stdin, deadline_s=deadline_s, grace_s=GRACE_S)
    except OSError as error:
        words = f"cannot start {command[0]}: {error.strerror}"
        raise Silent(words, Reason.SPAWN_FAILED) from error
    if ended.killed or ended.code == -signal.SIGALRM:  # a probe child ends itself before
        raise Silent(f"no answer within {deadline_s:g} s", Reason.HUNG)
    if ended.overflowed:
        words = f"an answer of more than {children.STDOUT_BYTES} bytes"
        raise Silent(words, Reason.BAD_OUTPUT)
    if not ended.stdout:
        last = ended.stderr.decode(errors="replace").strip()[-200:]
        words = f"it ended with {ended.code} and said: {last or 'nothing'}"
        raise Silent(words, Reason.CRASHED)
    return ended
