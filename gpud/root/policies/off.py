"""Do not even look: with this policy the supervisor opens no socket of Docker's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.root.dockerd_facts import Action

if TYPE_CHECKING:
    from gpud.root.dockerd_facts import DockerdObservation, Limits, Memory


def decide(
    _observation: DockerdObservation, _memory: Memory, _limits: Limits, _now_s: float
) -> Action:
    """Do nothing."""
    return Action.NOTHING
