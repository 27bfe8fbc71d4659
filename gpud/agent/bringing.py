"""How a file is filled with what was read: by whoever asks, or by somebody else on his behalf."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO, TypeAlias

Speak: TypeAlias = Callable[[BinaryIO], str]
"""Writes what is to be in the file, and gives a last word. ``Errors: GpudError, OSError``."""
Bring: TypeAlias = Callable[[Speak, BinaryIO], str]
"""Has it spoken into an open file, and gives its last word. ``Errors: GpudError, OSError``."""


def here(speak: Speak, into: BinaryIO) -> str:
    """Let it speak in this process, as whoever asks."""
    return speak(into)
