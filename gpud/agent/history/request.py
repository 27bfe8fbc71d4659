"""What a person asks of the history, and what that means: moments, probes, GPUs."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpud.agent import historyscope, plainfile, reader
from gpud.agent.history.when import moment
from gpud.agent.wanted import CPU, Wanted
from gpud.core.errors import ConfigError
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpud.core.settings import Settings

LARGEST_STATUS: Final = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the person asked for, in the person's words."""

    since: str | None = None
    until: str | None = None
    probes: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    limit: int | None = None


def understood(
    directory: Path, request: Request, numbers: Mapping[str, int], now_s: float
) -> Wanted:
    """Give what is asked for in the terms of the history.

    Units: ``now_s`` is Unix time. Errors: ``ConfigError`` naming what is wrong and what there is,
    ``StoreError``.
    """
    try:
        since_s = -math.inf if request.since is None else moment(request.since, now_s=now_s)
        until_s = math.inf if request.until is None else moment(request.until, now_s=now_s)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if since_s > until_s:
        raise ConfigError("--since is later than --until", fix="exchange the two")
    known = reader.ask(directory, historyscope.probes) if request.probes else ()
    for name in request.probes:
        if name not in known:
            near = get_close_matches(name, known, n=3) or known
            fix = f"one of {', '.join(map(escaped, near))}" if known else None
            raise ConfigError(f"the history has no probe {name!a:.60}", fix=fix)
    gpus = _gpus(directory, request.gpus, numbers) if request.gpus else ()
    return Wanted(since_s, until_s, request.probes, request.modes, gpus)


def _gpus(directory: Path, words: Sequence[str], numbers: Mapping[str, int]) -> tuple[str, ...]:
    """Find the GPUs that are meant, by number, by UUID or the beginning of one, or ``cpu``."""
    known = tuple(dict.fromkeys((*numbers, *reader.ask(directory, historyscope.gpus))))
    names = ", ".join(escaped(uuid) for uuid in known) or "there is none yet"
    found = []
    for word in words:
        if word.lower() == "cpu":
            found.append(CPU)
            continue
        if word.isascii() and word.isdigit():
            meant = [uuid for uuid, number in numbers.items() if number == int(word)]
            if not numbers:
                raise ConfigError("only an agent that runs numbers the GPUs", fix=f"say {names}")
        else:
            meant = [uuid for uuid in known if uuid.lower().startswith(word.lower())]
        if len(meant) != 1:
            many = "more than one GPU is" if meant else "the history has no GPU"
            raise ConfigError(f"{many} {word!a:.60}", fix=f"one of {names}")
        found += meant
    return tuple(found)


def numbering(settings: Settings) -> dict[str, int]:
    """Give the numbers by which the agent calls the GPUs, by UUID; none if it tells none."""
    try:
        text = plainfile.text(Path(settings.run_dir, "agent.json"), LARGEST_STATUS)
        told: Any = json.loads(text or "")["gpus"]
        return {uuid: int(one["number"]) for uuid, one in told.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
