"""What the programs of NVIDIA, of WSL and of Windows say of the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpud.core.capture import Program
    from gpud.core.settings import Settings


async def said(settings: Settings, *, smi: bool) -> dict[str, Program | None]:
    """Start each program once, all at the same time; None for one that is not there."""
    return {}
