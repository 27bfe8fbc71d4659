"""Layout of the memory in which a child notes what it does, so that it can be read after its end.

The child notes the driver call that it is about to make, whether that belongs to start-up, and its
document as far as it goes. The agent reads it where the child ended without a document: a call that
hangs or crashes has no other way to be named. Standard library only: other modules create
and map the memory.
"""

from __future__ import annotations

import re

from gpud.core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

SIZE: Final = 1 << 20
CALL: Final = slice(0, 160)
"""The name of a function, or the names of those that a loop calls in turn, padded with zeros."""
START_UP: Final = 160
LENGTH: Final = slice(164, 168)
DRAFT: Final = 168
_NAMES = re.compile(r"[A-Za-z][A-Za-z0-9_]{1,47}(?: or [A-Za-z][A-Za-z0-9_]{1,47}){0,5}")


class Note(Record):
    """What a child had noted when it ended; ``call`` is None where it had made none."""

    call: str | None = None
    start_up: bool = False
    draft: bytes = b""


def names(functions: Iterable[str]) -> str:
    """Name the functions that a loop calls, as ``CALL`` holds them."""
    return " or ".join(dict.fromkeys(functions))


def padded(name: str) -> bytes:
    """Give what is written to ``CALL``."""
    return name.encode()[: CALL.stop].ljust(CALL.stop, b"\0")


def read(memory: bytes) -> Note:
    """Read what is there: a driver that went astray may have written anything over it."""
    call = memory[CALL].rstrip(b"\0").decode("ascii", "replace")
    length = int.from_bytes(memory[LENGTH], "little")
    return Note(
        call=call if _NAMES.fullmatch(call) else None,
        start_up=memory[START_UP : START_UP + 1] == b"\1",
        draft=memory[DRAFT : DRAFT + length],
    )
