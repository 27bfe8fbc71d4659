"""/api/v1/history: figures of one probe over time, thinned out, read by a process of its own.

The thread that writes is not asked, and no scrape waits. Up to two days come from the runs
themselves, longer from the hours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.agent.charting.answer import RAW_RANGE_S
from gpud.agent.charting.question import Asked, Known, Nameless
from gpud.agent.charting.thinning import HOUR_S, Steps
from gpud.agent.wanted import CPU
from gpud.agent.web.api import answers
from gpud.agent.web.api.queries import Unknown, Unusable, count, moment, named

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.datastructures import QueryParams
    from starlette.routing import Route

    from gpud.agent.body import Body
    from gpud.agent.charts import Charts
    from gpud.core.snapshot import Snapshot

PATH: Final = "/api/v1/history"
USUAL_RANGE_S: Final = 86400.0
LONGEST_S: Final = 3 * 366 * 86400.0
USUAL_POINTS: Final = 300
MOST_POINTS: Final = 2000

PROBE: Final = named("probe", "the probe, as /api/v1/probes names it", "launch", required=True)
MODE: Final = named("mode", "its modes; all of them where none is given", "submit", many=True)
GPU: Final = named("gpu", "GPUs by UUID or number, or cpu; all where none is given", "0", many=True)
SINCE: Final = moment("since", "from when on; a day before `until` where it is not given")
UNTIL: Final = moment("until", "until when; now where it is not given")
POINTS: Final = count(
    "points", "how many steps make up the range, at the most", usual=USUAL_POINTS, most=MOST_POINTS
)
PARAMETERS: Final = (PROBE, MODE, GPU, SINCE, UNTIL, POINTS)


def route(charts: Charts, read: Callable[[], Snapshot], now_s: Callable[[], float]) -> Route:
    """Make the route. A history that cannot be read is a 503 with its reason."""

    async def history(query: QueryParams) -> Body:
        known = known_of(read())
        answer = await charts.answer(parsed(query, known, now_s=now_s()), known)
        if isinstance(answer, Nameless):
            raise Unknown(answer.parameter, answer.asked, answer.known)
        return answer

    return answers.route(PATH, PARAMETERS, history)


def known_of(snapshot: Snapshot) -> Known:
    """Say which names are no mistakes, whatever the history holds."""
    return Known(
        {spec.name: spec.modes for spec in snapshot.specs},
        {uuid: gpu.number for uuid, gpu in snapshot.gpus.items()},
    )


def parsed(query: QueryParams, known: Known, *, now_s: float) -> Asked:
    """Read the query. Errors: ``Unusable``."""
    probe = PROBE.one(query)
    if probe is None:
        raise Unusable("probe", "which probe is not said", "probe=launch, as /api/v1/probes names")
    until_s = UNTIL.one(query)
    since_s = SINCE.one(query)
    until_s = now_s if until_s is None else until_s
    since_s = until_s - USUAL_RANGE_S if since_s is None else since_s
    if since_s >= until_s:
        raise Unusable("since", "since is not before until", "exchange the two", "bad_range")
    if until_s - since_s > LONGEST_S:
        raise Unusable("since", "that is more than three years", "ask for less", "bad_range")
    points = POINTS.one(query)
    hourly = until_s - since_s > RAW_RANGE_S
    steps = Steps.over(
        since_s,
        until_s,
        most=USUAL_POINTS if points is None else points,
        least_s=HOUR_S if hourly else 1,
    )
    gpus = (_gpu(text, known) for text in GPU.all(query))
    return Asked(probe, MODE.all(query), tuple(dict.fromkeys(gpus)), steps, hourly)


def _gpu(text: str, known: Known) -> str:
    """Give the UUID, or ``CPU``. Errors: ``Unknown`` for a number that no GPU has."""
    if text == "cpu":
        return CPU
    if not (text.isascii() and text.isdigit()):
        return text
    for uuid, number in known.gpus.items():
        if str(number) == text:
            return uuid
    raise Unknown("gpu", text, known.gpu_names)
