"""Bounds of settings: a value outside is refused with its name."""

from __future__ import annotations

import math
from typing import Any


def between(owner: Any, *names: str, low: float, high: float = math.inf) -> None:  # noqa: ANN401
    """Refuse values outside ``low..high``; a NaN fails every comparison and so is refused too."""
    for name in names:
        value = getattr(owner, name)
        if not (low <= value <= high and math.isfinite(value)):
            limit = f"at least {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
            raise ValueError(f"{name} must be {limit}, not {value}")


def absolute(owner: Any, *names: str, empty: bool = False) -> None:  # noqa: ANN401
    """Refuse relative paths, as ``absolute_path``."""
    for name in names:
        absolute_path(name, getattr(owner, name), empty=empty)


def absolute_path(name: str, path: str, *, empty: bool = False) -> None:
    """Refuse a relative path: what it means would depend on where gpud was started."""
    if not path.startswith("/") and not (empty and not path):
        raise ValueError(f"{name} must be an absolute path, not {path or 'empty'}")
