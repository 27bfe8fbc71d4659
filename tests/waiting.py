"""Waiting for what another process does: there is no event to wait for, so it is looked at."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

LOOK_EVERY_S = 0.01
SPARED = 9
"""A look that costs takes a tenth of the time: whoever is looked at has work of his own."""
AT_LEAST_EVERY_S = 0.1


def until(
    look: Callable[[], T | None],
    what: str,
    within_s: float = 60.0,
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
