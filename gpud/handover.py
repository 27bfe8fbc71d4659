"""A file that root writes out of what the agent's user may read: two processes and a pipe.

The history belongs to the agent's user, who could put anything in its place. So one that has become
that user opens it, and root's only writes down what comes through the pipe, wherever it may write.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NoReturn

from gpud.core.errors import ConfigError, GpudError, StoreError
from gpud.place import as_the_agent

if TYPE_CHECKING:
    from gpud.agent.bringing import Speak
    from gpud.core.settings import Settings
    from gpud.place import Place

LONGEST: Final = 1 << 15
"""Of the last word: a pipe takes it at once."""


def brought(settings: Settings, place: Place, speak: Speak, into: BinaryIO) -> str:
    """Let it speak in a process of the agent's user; for root. Errors: as those of ``speak``."""
    (reading, writing), (hearing, saying) = os.pipe(), os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        os.close(hearing)
        _speak_and_leave(settings, place, speak, writing, saying)
    os.close(writing)
    os.close(saying)
    try:
        with open(hearing, "rb") as last:  # noqa: PTH123  # of a descriptor
            with open(reading, "rb") as stream:  # noqa: PTH123
                shutil.copyfileobj(stream, into)
            into.flush()
            heard = last.read(LONGEST)
    finally:
        os.waitpid(pid, 0)
    return _word(heard)


def _speak_and_leave(
    settings: Settings, place: Place, speak: Speak, writing: int, saying: int
) -> NoReturn:
    """Become the agent's user, speak and end: nothing of the caller's is to run here as well."""
    said: dict[str, Any] = {}
    try:
        with open(writing, "wb") as into:  # of a descriptor
            as_the_agent(settings, place)
            said = {"word": speak(into)}
    except (GpudError, OSError) as error:
        said = {
            "kind": type(error).__name__,
            "words": str(error),
            "fix": getattr(error, "fix", None),
            "reason": getattr(error, "reason", None),
        }
    except Exception:  # noqa: BLE001  # a bug, and the boundary of this process
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError):
            os.write(saying, json.dumps(said).encode()[:LONGEST])
        os._exit(0)


def _word(heard: bytes) -> str:
    """Give the last word, or raise what was said in its place."""
    try:
        said = json.loads(heard)
    except ValueError:
        said = {}
    if "word" in said:
        return str(said["word"])
    words, fix = said.get("words", "the process that reads ended without a word"), said.get("fix")
    kind = said.get("kind")
    if kind == StoreError.__name__:
        raise StoreError(words, reason=said["reason"], fix=fix)
    if kind == ConfigError.__name__:
        raise ConfigError(words, fix=fix)
    if kind == PermissionError.__name__:
        raise PermissionError(words)
    raise GpudError(words, fix=fix)
