"""What the programs of NVIDIA, of WSL and of Windows say of the machine, each as it was written."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.agent import interop, platform
from gpud.agent.children import ENVIRONMENT
from gpud.agent.programs import find, run
from gpud.agent.telemetry.sources import nvidia_smi, nvidia_smi_exe
from gpud.agent.windows import SYSTEM
from gpud.core import smi, windows
from gpud.core.capture import Program
from gpud.core.errors import TelemetryError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.core.settings import Settings

DEADLINE_S = 5.0
GRACE_S = 1.0
MOST_STARTS = 3
"""Of one nvidia-smi, for columns that it does not know; the second is nearly always the last."""


@dataclass(frozen=True, slots=True)
class _Question:
    """What to start, the first of ``paths`` that is there; ``trouble`` says why nothing can be."""

    paths: tuple[str, ...]
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    trouble: str | None = None


async def said(settings: Settings, *, with_smi: bool) -> dict[str, Program | None]:
    """Start each program once, all at the same time; None for one that is not there.

    Outside WSL there is at most nvidia-smi. Errors: none, they are in what is given.
    """
    questions = _questions(settings, with_smi=with_smi)
    answers = await asyncio.gather(*(_answer(question) for question in questions.values()))
    return dict(zip(questions, answers, strict=True))


def _questions(settings: Settings, *, with_smi: bool) -> dict[str, _Question]:
    root = settings.sysroot
    in_wsl = bool(platform.facts(root).get("wsl"))
    environment, trouble = _interop(root)

    def windows_program(name: str, *arguments: str, configured: str = "") -> _Question:
        places = [f"{drive}/{SYSTEM}/{name}" for drive in interop.drives(root)]
        paths = (configured,) if configured else tuple(places)
        return _Question(paths, arguments, environment, trouble)

    found: dict[str, _Question] = {}
    if in_wsl:
        wslinfo = (str(Path(root, "usr/bin/wslinfo")),)
        found["wslinfo"] = _Question(wslinfo, ("--wsl-version",), ENVIRONMENT)
        found["wsl.exe"] = windows_program("wsl.exe", "--version")
        found["cmd.exe"] = windows_program("cmd.exe", "/d", "/c", "ver")
    if with_smi:
        configured = settings.telemetry.nvidia_smi
        places = (nvidia_smi.IN_WSL,) if in_wsl else (nvidia_smi.IN_WSL, nvidia_smi.IN_LINUX)
        paths = (configured,) if configured else tuple(str(Path(root, p)) for p in places)
        found["nvidia-smi"] = _Question(paths, smi.arguments(), ENVIRONMENT)
    if with_smi and in_wsl:
        exe = settings.telemetry.nvidia_smi_exe
        name = Path(nvidia_smi_exe.INSIDE).name
        found[name] = windows_program(name, *smi.arguments(), configured=exe)
    return found


def _interop(root: str) -> tuple[Mapping[str, str], str | None]:
    try:
        return interop.environment(root), None
    except TelemetryError as error:
        return ENVIRONMENT, str(error)


async def _answer(question: _Question) -> Program | None:
    arguments = question.arguments
    if question.trouble is not None:
        return Program(arguments=arguments, code=None, error=question.trouble)
    left_out: frozenset[str] = frozenset()
    try:
        path, ended = await find(question.paths, deadline_s=DEADLINE_S, started=lambda _: None)
        if path is None and not ended.killed:
            return None
        for _ in range(MOST_STARTS if path is not None else 0):
            ended = await run(
                [str(path), *arguments],
                deadline_s=DEADLINE_S,
                grace_s=GRACE_S,
                environment=question.environment,
            )
            refused = smi.refused(windows.text(ended.stdout)) if ended.code else None
            if refused is None or arguments != smi.arguments(left_out):
                break
            left_out = smi.without(left_out, refused)
            arguments = smi.arguments(left_out)
    except OSError as error:
        return Program(arguments=arguments, code=None, error=f"cannot start: {error.strerror}")
    if ended.killed:
        words = f"no answer within {DEADLINE_S:g} s"
        if ended.overflowed:
            words = f"it said more than {len(ended.stdout)} bytes"
        return Program(arguments=arguments, code=None, error=words)
    return Program(
        arguments=arguments,
        code=ended.code,
        stdout=windows.text(ended.stdout),
        stderr=windows.text(ended.stderr),
        encoding="utf-16-le" if b"\0" in ended.stdout else "utf-8",
    )
