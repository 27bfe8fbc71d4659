"""Manage dockerd unless somebody else does: then watch theirs, and begin when they are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.root.dockerd_facts import OURS_TO_KEEP, Action
from gpud.root.dockerd_step import due

if TYPE_CHECKING:
    from gpud.root.dockerd_facts import DockerdObservation, Limits, Memory


def decide(observation: DockerdObservation, memory: Memory, limits: Limits, now_s: float) -> Action:
    """Keep what is ours or nobody's."""
    return (
        due(observation, memory, limits, now_s)
        if observation.owner in OURS_TO_KEEP
        else Action.NOTHING
    )
