"""Output of the programs of NVIDIA, of WSL and of Windows, each as it was written."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.agent import platform, programs
from gpud.agent.capture.document import Program
from gpud.agent.children import ENVIRONMENT
from gpud.agent.telemetry import smi_csv, windows
from gpud.agent.telemetry.sources import nvidia_smi, nvidia_smi_exe
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
    """A program to start, the first of ``places``; ``trouble`` says why none can be started."""

    places: tuple[str, ...]
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    trouble: str | None = None


async def outputs(settings: Settings, *, with_smi: bool) -> dict[str, Program | None]:
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

    def windows_program(name: str, *arguments: str) -> _Question:
        places = windows.places(root, f"{windows.SYSTEM}/{name}")
        return _Question(places, arguments, environment, trouble)

    questions: dict[str, _Question] = {}
    if in_wsl:
        wslinfo = (str(Path(root, "usr/bin/wslinfo")),)
        questions["wslinfo"] = _Question(wslinfo, ("--wsl-version",), ENVIRONMENT)
        questions["wsl.exe"] = windows_program("wsl.exe", "--version")
        questions["cmd.exe"] = windows_program("cmd.exe", "/d", "/c", "ver")
    if with_smi:
        places = nvidia_smi.places(settings, wsl=in_wsl)
        questions["nvidia-smi"] = _Question(places, smi_csv.arguments(), ENVIRONMENT)
    if with_smi and in_wsl:
        places = nvidia_smi_exe.places(settings)
        questions["nvidia-smi.exe"] = _Question(places, smi_csv.arguments(), environment, trouble)
    return questions


def _interop(root: str) -> tuple[Mapping[str, str], str | None]:
    try:
        return windows.environment(root), None
    except TelemetryError as error:
        return ENVIRONMENT, str(error)


async def _answer(question: _Question) -> Program | None:
    arguments = question.arguments
    if question.trouble is not None:
        return Program(arguments=arguments, code=None, error=question.trouble)
    left_out: frozenset[str] = frozenset()
    try:
        for _ in range(MOST_STARTS):
            ended = await programs.run(
                question.places,
                arguments,
                deadline_s=DEADLINE_S,
                grace_s=GRACE_S,
                environment=question.environment,
            )
            refused = smi_csv.refused(windows.text(ended.stdout)) if ended.code else None
            if refused is None or arguments != smi_csv.arguments(left_out):
                break
            left_out = smi_csv.without(left_out, refused)
            arguments = smi_csv.arguments(left_out)
    except OSError as error:
        return Program(arguments=arguments, code=None, error=f"cannot start: {error.strerror}")
    if ended.code == programs.NOT_THERE and not ended.stdout:
        return None
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
