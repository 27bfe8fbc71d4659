"""Moments as people write them."""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Final

UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
EXAMPLES: Final = "30m, 2h, 3d, 2026-11-01 or 2026-11-01T08:00:00Z"


def moment(text: str, *, now_s: float) -> float:
    """Read ``2h`` (ago), a date (its first moment here), a date and time, or RFC 3339; Unix time.

    Where no offset from UTC is given, this machine's time zone holds. Errors: ``ValueError``.
    """
    ago = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhdw])", text)
    if ago is not None:
        return now_s - float(ago[1]) * UNITS_S[ago[2]]
    try:
        found_s = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        found_s = math.nan
    if not math.isfinite(found_s):
        raise ValueError(f"{text!a:.40} is no moment: write {EXAMPLES}")
    return found_s
