"""What one stream cannot know: whether the streams beside it saw the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpud.core.detector.model import Alarm

SLACK_S = 3 * 3600.0
"""Between the changes of two streams that have one cause: they are placed that roughly."""


def confirmed(alarm: Alarm, siblings: Iterable[Alarm]) -> bool:
    """Say whether a person should be woken for ``alarm``.

    A driver update confirms itself. Any other change of one stream only is suspect until a sibling,
    another size or mode of the same probe, changed the same way at about the same time.
    """
    if not alarm.suspect:
        return True
    return any(
        one.worse is alarm.worse
        and one.since_s <= alarm.at_s + SLACK_S
        and alarm.since_s <= one.at_s + SLACK_S
        for one in siblings
    )
