"""Ask the NVML helper as a program, without the agent around it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

HELPER = (sys.executable, "-I", "-m", "gpud.agent.telemetry.nvml")
FOREVER_S = 30.0
Fields = dict[str, dict[str, Any]]


def run(*options: str, questions: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HELPER, *options],
        input=questions,
        capture_output=True,
        text=True,
        check=False,
        timeout=FOREVER_S,
    )


def answers(library: Path | str, *options: str, times: int = 1) -> list[dict[str, Any]]:
    """Put the same question ``times`` times; fewer answers come where the helper ends before."""
    ended = run(*options, str(library), questions="{}\n" * times)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def readings(library: Path, *options: str) -> list[dict[str, Any]]:
    [answer] = answers(library, *options)
    listed = answer["readings"]
    assert isinstance(listed, list), answer
    return listed


def of(listed: list[dict[str, Any]], gpu: int | None = 0) -> Fields:
    return {reading["field"]: reading for reading in listed if reading["gpu"] == gpu}


def values(library: Path, *options: str, gpu: int | None = 0) -> dict[str, Any]:
    """Give what one GPU's fields are: a value, or the reason why there is none."""
    return plain(of(readings(library, *options), gpu))


def plain(fields: Fields) -> dict[str, Any]:
    return {
        field: reading["value"] if reading["absent"] is None else reading["absent"]
        for field, reading in fields.items()
    }


def recorded(library: Path | str, *options: str) -> dict[str, Any]:
    ended = run("--record", *options, str(library))
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert isinstance(document, dict)
    return document
