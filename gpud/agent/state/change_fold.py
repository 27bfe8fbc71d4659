"""What changes of the machine, and the memory of earlier lives, do to a snapshot."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpud.agent.regression.changes import real
from gpud.agent.state import presence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.agent.regression.changes import Change
    from gpud.agent.state.events import Remembered
    from gpud.agent.state.snapshot import Snapshot

KEPT: Final = 16


def with_changes(snapshot: Snapshot, changes: Sequence[Change]) -> Snapshot:
    """Take in changes and count them; a first sight is none."""
    found = real(changes)
    counts = dict(snapshot.change_counts)
    for change in found:
        counts[change.kind] = counts.get(change.kind, 0) + 1
    return replace(snapshot, changes=(*snapshot.changes, *found)[-KEPT:], change_counts=counts)


def with_memory(snapshot: Snapshot, event: Remembered) -> Snapshot:
    """Take in what the history remembers. It is not counted: counters count since the start.

    What CUDA lists right now is expected too, whatever the history has had time to hear of.
    """
    expected = dict(event.expected)
    if snapshot.inventory is not None:
        expected = presence.with_inventory(expected, snapshot.inventory, event.now_s)
    after = replace(
        snapshot,
        expected=expected,
        changes=(*real(event.changes), *snapshot.changes)[-KEPT:],
    )
    return presence.with_presence(after, event.now_s)
