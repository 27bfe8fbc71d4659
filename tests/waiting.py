"""Waiting for what another process does: there is no event to wait for, so it is looked at."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

LIMIT_S: Final = 300.0
"""Ends what hangs. A machine that also does other work is slow, and nothing is wrong with it."""
LOOK_EVERY_S: Final = 0.01
SPARED: Final = 9
"""A look that costs takes a tenth of the time: the process that is looked at has its own work."""
AT_LEAST_EVERY_S: Final = 0.1


def until(
    look: Callable[[], T | None],
    what: str,
    within_s: float = LIMIT_S,
    *,
    every_s: float = LOOK_EVERY_S,
) -> T:
    """Look until something true is seen, and give it."""
    deadline = time.monotonic() + within_s
    while (begun := time.monotonic()) < deadline:
        if seen := look():
            return seen
        spared_s = min(SPARED * (time.monotonic() - begun), AT_LEAST_EVERY_S)
        time.sleep(max(every_s, spared_s))
    raise AssertionError(f"not seen within {within_s:g} s: {what}")
