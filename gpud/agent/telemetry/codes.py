"""NVML's return codes that are about the library as a whole; nvidia-smi ends with the same numbers.

Source: nvml.h, "RETURN VALUE" of nvidia-smi's manual, and what has helped people as they report it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.core.advice import Situation

if TYPE_CHECKING:
    from collections.abc import Mapping

CODES: Final[Mapping[int, tuple[str, Situation]]] = {
    4: ("not_permitted", Situation.BLOCKED),
    9: ("driver_not_loaded", Situation.NOT_LOADED),
    12: ("library_missing", Situation.LIBRARY_MISSING),
    13: ("symbol_missing", Situation.TOO_OLD),
    15: ("gpu_is_lost", Situation.VANISHED),
    16: ("reset_required", Situation.AGAIN),
    17: ("blocked_by_the_operating_system", Situation.BLOCKED),
    18: ("driver_mismatch", Situation.MISMATCH),
}
