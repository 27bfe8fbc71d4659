"""Keep dockerd running, whoever started it: the person who chose this wants it so."""

from __future__ import annotations

from gpud.root.dockerd_step import due as decide

__all__ = ["decide"]
