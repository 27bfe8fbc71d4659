"""``gpud capture``: the file it makes, and its summary of what is in the file."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import re
import socket
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from gpud.agent.capture import record, scrub
from gpud.core.errors import GpudError
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpud.agent.capture.record import Capture
    from gpud.core.settings import Settings

PERSON = ("USER", "LOGNAME", "SUDO_USER", "USERNAME")
"""Variables that name people, whose names are taken out of a capture."""
OWN_FILES = frozenset({"wsl.conf", ".wslconfig"})
"""What people write themselves, and may have put anything into."""


def run(settings: Settings, config: Path, output: str | None, *, programs: bool) -> int:
    """Record this machine, take out what names it, write the file and say what was taken out.

    ``output`` None is a file named after the moment, "-" is stdout.
    Errors: ``GpudError`` for a file that is there already or cannot be made.
    """
    path = (
        None if output == "-" else Path(output or time.strftime("gpud-capture-%Y%m%d-%H%M%S.json"))
    )
    with _opened(path) as file:
        _say("asking this machine, which takes up to half a minute ...")
        made = asyncio.run(record.record(settings, config, smi=programs))
        host = socket.gethostname()
        hosts = (host, host.partition(".")[0])
        clean, counts = scrub.scrubbed(msgspec.to_builtins(made), sorted(_people()), hosts)
        file.write(_printable(record.encode(clean), file))
        file.flush()
    for line in _summary(msgspec.convert(clean, record.Capture), counts, path, programs=programs):
        _say(line)
    return 0


def _printable(document: bytes, file: BinaryIO) -> bytes:
    """Escape all but ASCII for a terminal, as JSON does it; a file has the bytes as they are."""
    if not file.isatty():
        return document
    text = document.decode(errors="replace")
    return re.sub(r"[^\n -~]", lambda match: json.dumps(match[0])[1:-1], text).encode()


@contextmanager
def _opened(path: Path | None) -> Iterator[BinaryIO]:
    """Make the file, for its owner alone, before anything is asked; leave no unfinished one."""
    if path is None:
        yield sys.stdout.buffer
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        file = open(os.open(path, flags, 0o600), "wb")  # noqa: SIM115, PTH123  # of a descriptor
    except FileExistsError:
        fix = "remove it, or choose another: -o FILE"
        raise GpudError(f"{path} is there already", fix=fix) from None
    except OSError as error:
        fix = "choose another place: -o FILE"
        raise GpudError(f"cannot write {path}: {error.strerror}", fix=fix) from error
    with file:
        try:
            yield file
        except BaseException:  # Ctrl-C too
            path.unlink()
            raise


def _people() -> set[str]:
    """Return the names of the person who runs this."""
    people = {os.environ.get(name, "") for name in PERSON}
    try:
        entry = pwd.getpwuid(os.getuid())
    except KeyError:
        return people
    return people | {entry.pw_name, Path(entry.pw_dir).name, entry.pw_gecos.partition(",")[0]}


def _summary(
    made: Capture, counts: Mapping[str, int], path: Path | None, *, programs: bool
) -> list[str]:
    replaced = ", ".join(f"{kind} ({number})" for kind, number in counts.items())
    silent = [f"{part}: {words}" for part, words in made.unanswered.items()]
    silent += [f"NVML: {made.nvml.error}"] if made.nvml.error else []
    silent += [f"NVML: {call.call} gave {call.code}" for call in made.nvml.calls[:1] if call.code]
    silent += [f"CUDA: {made.cuda.failure.detail}"] if made.cuda.failure else []
    lines = [f"recorded: {made.machine}", *(f"  no answer from {words}" for words in silent)]
    if not programs:
        lines.append("nvidia-smi was not started: on some versions of WSL each start costs Windows")
        lines.append("memory until it is restarted; --with-programs records it too")
    lines.append(f"replaced by stand-ins: {replaced or 'nothing'}")
    lines.append("kept: PCI bus ids, versions, models, the name of the driver's folder")
    own = {name for path in made.files if (name := path.rpartition("/")[2]) in OWN_FILES}
    if own:
        lines.append(f"kept as you wrote it, less those names: {', '.join(sorted(own))}")
    if made.known_faults:
        known = ", ".join(f"{name} ({state})" for name, state in made.known_faults.items())
        lines.append(f"known faults that concern it: {known}")
    if path is not None:
        lines.append(f"{path} is yours: read it before you share it")
    return lines


def _say(line: str) -> None:
    print(escaped(line), file=sys.stderr, flush=True)
