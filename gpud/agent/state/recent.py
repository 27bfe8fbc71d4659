"""The medians of the last clean runs of every series: enough for a line of small bars.

What is marked (the GPU was busy, its clocks low ...) and what has two humps is left out, as it is
from what is usual.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from gpud.agent.history.records import Finite, typed
from gpud.agent.history.schema import HOUR_S, VERSION
from gpud.agent.regression.evaluation import JUDGED
from gpud.core.errors import StoreError
from gpud.core.sample import Unit
from gpud.document.runs import RecentSeries

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from gpud.agent.history.store import History
    from gpud.core.sample import ProbeSpec

MOST: Final = 60
"""Points of a series."""
LOOKED_THROUGH: Final = 2000
"""Newest runs of a probe among which they are looked for: on a busy GPU few are clean."""
DIGITS: Final = 4
"""Significant digits that are published: a bar has eight heights."""


async def past(
    history: History, spec: ProbeSpec, gpu: str | None, now_s: float
) -> tuple[RecentSeries, ...]:
    """Return the past of a probe on a GPU; nothing while the history cannot be read."""
    try:
        return await history.read(last, spec.name, gpu, spec.version, now_s)
    except StoreError:  # reported by the runs that cannot be written either
        return ()


def last(
    connection: sqlite3.Connection, probe: str, gpu: str | None, version: int, now_s: float
) -> tuple[RecentSeries, ...]:
    """Return the medians of a probe's newest clean runs on a GPU, of one version of its method.

    Where the clock was set back, what seems to lie ahead is of no known time. SQLite's errors pass;
    a damaged row is skipped.
    """
    rows = connection.execute(
        "WITH newest AS (SELECT * FROM runs WHERE probe = ? AND gpu_uuid IS ? AND finished_s <= ?"  # noqa: S608  # ours
        " ORDER BY finished_s DESC LIMIT ?), clean AS (SELECT * FROM newest WHERE failure IS NULL"
        " AND flags = '[]' ORDER BY finished_s DESC LIMIT ?)"
        " SELECT s.mode, s.unit, r.finished_s, s.median FROM clean r JOIN samples s"
        f" ON s.run_id = r.id WHERE s.peaks IS NULL AND {VERSION} = ? ORDER BY r.finished_s",
        (probe, gpu, now_s + HOUR_S, LOOKED_THROUGH, MOST, version),
    )
    points: defaultdict[tuple[str, Unit], list[tuple[float, float]]] = defaultdict(list)
    for mode, unit, at_s, median in typed(rows, tuple[str, Unit, Finite, Finite]):
        if unit in JUDGED:
            points[mode, unit].append((at_s, median))
    return tuple(
        RecentSeries(
            uuid=gpu,
            probe=probe,
            mode=mode,
            unit=unit,
            from_s=own[0][0],
            after_s=tuple(round(at_s - own[0][0]) for at_s, _ in own),
            medians=tuple(float(f"{median:.{DIGITS}g}") for _, median in own),
        )
        for (mode, unit), own in points.items()
    )


def with_past(
    recent: tuple[RecentSeries, ...], probe: str, gpu: str | None, fresh: Iterable[RecentSeries]
) -> tuple[RecentSeries, ...]:
    """Put the past of a probe on a GPU in the place of what was known of it."""
    others = (series for series in recent if (series.probe, series.uuid) != (probe, gpu))
    return tuple(sorted((*others, *fresh), key=lambda s: (s.uuid or "", s.probe, s.mode)))
