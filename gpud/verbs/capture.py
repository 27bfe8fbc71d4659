"""``gpud capture``: this machine recorded for a bug report, by the user who asks, without names."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import re
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import gpud
from gpud import gpu_lock, output, regular_file
from gpud.agent import children, platform
from gpud.agent.measure.breaker import State
from gpud.agent.telemetry.sources.nvml import candidates
from gpud.core.errors import GpudError
from gpud.core.settings import NVML_LOCK
from gpud.document.status import read
from gpud.verbs import scrub

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from gpud.core.settings import Settings
    from gpud.place import Place

SCHEMA_VERSION: Final = 1
PYTHON: Final = (sys.executable, "-I", "-m")
DEADLINE_S: Final = 5.0
"""Of each program that is asked, and for a killed one to go a second more."""
TEXTS: Final = (
    "/etc/os-release",
    "/etc/wsl.conf",
    "/proc/1/comm",
    "/proc/driver/nvidia/version",
    "/proc/sys/fs/binfmt_misc/WSLInterop",
    "/proc/sys/kernel/osrelease",
    "/proc/version",
)
DEVICES: Final = re.compile(r"dxg|nvidia\d+|nvidiactl|nvidia-uvm")
PERSON: Final = ("USER", "LOGNAME", "SUDO_USER", "USERNAME")
"""Variables that name people, whose names are taken out of a capture."""
LEFT_ALONE: Final = "not asked: the driver hangs, says the running gpud"


def run(options: argparse.Namespace, place: Place) -> int:
    """Record this machine, take out what names it, write the file and say what was taken out.

    Errors: ``GpudError`` for root, and for a file that is there already or cannot be made.
    """
    if os.geteuid() == 0:
        fix = "run it as an ordinary user, without sudo"
        raise GpudError("gpud capture does not run as root", fix=fix)
    settings = place.usable_settings()
    _say("asking this machine, which takes some seconds ...")
    made = asyncio.run(record(settings, place.config))
    host = socket.gethostname()
    clean, counts = scrub.scrubbed(made, sorted(_people()), (host, host.partition(".")[0]))
    text = json.dumps(clean, indent=2, sort_keys=True) + "\n"  # ASCII: harmless on a terminal
    if options.output == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        path = Path(options.output or time.strftime("gpud-capture-%Y%m%d-%H%M%S.json"))
        _write(path, text)
        _say(f"{path} is yours: read it before you share it")
    for part, words in made["unanswered"].items():
        _say(f"no answer from {part}: {words}")
    replaced = ", ".join(f"{kind} ({number})" for kind, number in counts.items())
    _say(f"replaced by stand-ins: {replaced or 'nothing'}")
    _say("kept as you wrote it, less those names: /etc/wsl.conf")
    return 0


def _say(line: str) -> None:
    output.say(line, error=True)


def _write(path: Path, text: str) -> None:
    """Write a new file for its owner alone. Errors: ``GpudError``."""
    try:
        with open(path, "x", opener=lambda p, flags: os.open(p, flags, 0o600)) as file:
            file.write(text)
    except FileExistsError:
        fix = "remove it, or choose another: -o FILE"
        raise GpudError(f"{path} is there already", fix=fix) from None
    except OSError as error:
        fix = "choose another place: -o FILE"
        raise GpudError(f"cannot write {path}: {error.strerror}", fix=fix) from error


def _people() -> set[str]:
    """Return the names of the person who runs this."""
    people = {os.environ.get(name, "") for name in PERSON}
    try:
        entry = pwd.getpwuid(os.getuid())
    except KeyError:
        return people
    return people | {entry.pw_name, Path(entry.pw_dir).name, entry.pw_gecos.partition(",")[0]}


async def record(settings: Settings, config: Path) -> dict[str, Any]:
    """Return the document, with every name in it; ``unanswered`` says why a part is empty.

    Errors: none. No driver is loaded here: NVML is asked by its helper.
    """
    unanswered: dict[str, str] = {}

    async def ask(part: str, command: Sequence[str], *, kill: bool = True) -> Any:  # noqa: ANN401  # any JSON
        try:
            return await _answer(command, kill=kill)
        except (OSError, ValueError) as error:
            unanswered[part] = str(error)
            return None

    ours = (*PYTHON, "gpud", "--home", settings.home, "--config", str(config))
    status = await ask("status", (*ours, "status", "--json"))
    doctor = await ask("doctor", (*ours, "doctor", "--json"))
    nvml = None
    if words := hang_of(settings, status):
        unanswered["nvml"] = words
    else:
        leave = settings.cuda.leaves_hung(platform.facts(settings.sysroot).get("kernel", ""))
        alarm = ("--budget-s=0",) if leave else ()
        helper = (*PYTHON, "gpud.agent.telemetry.nvml", "--record", *alarm, *candidates(settings))
        nvml = await ask("nvml", helper, kill=not leave)
    root = Path(settings.sysroot)
    texts = {path: regular_file.text(root / path.lstrip("/")) for path in TEXTS}
    return {
        "schema_version": SCHEMA_VERSION,
        "gpud": gpud.__version__,
        "files": {path: text for path, text in texts.items() if text is not None},
        "devices": sorted(
            f"/dev/{path.name}"
            for path in (root / "dev").glob("*")
            if DEVICES.fullmatch(path.name) and path.is_char_device()
        ),
        "nvml": nvml,
        "doctor": doctor,
        "status": status,
        "unanswered": unanswered,
    }


def hang_of(settings: Settings, status: Mapping[str, Any] | None) -> str | None:
    """Return why NVML is left alone: the running gpud's hangs, or one of an earlier gpud stays."""
    try:
        report = read(status or {})
    except GpudError:  # of another release
        return None
    if not report.started_s:
        holder = gpu_lock.holder_elsewhere(Path(settings.run_dir, "agent", NVML_LOCK))
        return f"not asked: {holder} stays in a call of NVML" if holder else None
    nvml, breaker = report.telemetry.sources.get("nvml"), report.breaker
    hangs = breaker is not None and breaker.state in {State.OPEN, State.HALF_OPEN, State.STUCK}
    return LEFT_ALONE if hangs or (nvml and nvml.reason in {"hung", "stuck"}) else None


async def _answer(command: Sequence[str], *, kill: bool) -> Any:  # noqa: ANN401  # any JSON
    """Run a program of gpud's to its end. Errors: ``OSError``, ``ValueError`` without an answer."""
    ended = await children.run(command, b"", deadline_s=DEADLINE_S, kill=kill)
    if ended.killed or ended.code is None:
        raise OSError(f"no answer within {DEADLINE_S:g} s")
    if not ended.stdout:
        last = ended.stderr.decode(errors="replace").strip()[-200:]
        raise OSError(f"it ended with {ended.code} and said: {last or 'nothing'}")
    return json.loads(ended.stdout)
