"""Sibling streams: whether those beside one changed at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpud.agent.regression.detector.model import Alarm

SLACK_S = 3 * 3600.0
"""Between the changes of two streams that have one cause: they are placed that roughly."""


def alike(one: Alarm, other: Alarm) -> bool:
    """Say whether two streams changed the same way at about the same time."""
    return (
        one.worse is other.worse
        and one.since_s <= other.at_s + SLACK_S
        and other.since_s <= one.at_s + SLACK_S
    )


def confirmed(alarm: Alarm, siblings: Iterable[Alarm]) -> bool:
    """Say whether streams beside it saw what ``alarm`` tells of.

    An update of the driver does not need it to be explained, but ``gpud.agent.alerts.slowdowns``
    wants it: one stream of thirty is wrong more often than one.
    """
    return not alarm.suspect or any(alike(alarm, one) for one in siblings)
