"""What a job or a task throws stops nothing, is told, and is forgotten when it goes on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gpud.agent.measure.boundary import Boundary
from gpud.agent.state.events import HealthSet
from gpud.core.health import Level

if TYPE_CHECKING:
    from gpud.agent.state.events import Event

OK, DEGRADED = (Level.OK, None), Level.DEGRADED


class Told:
    """What was said of the agent, each time it changed."""

    def __init__(self) -> None:
        self.said: list[tuple[Level, str | None]] = []
        self.more = asyncio.Event()

    def post(self, event: Event) -> None:
        assert isinstance(event, HealthSet)
        assert event.component == "agent"
        self.said.append((event.level, event.detail))
        self.more.set()


async def works() -> None:
    pass


async def breaks() -> None:
    raise ValueError("a bug")


def test_a_job_that_failed_is_told_until_it_goes_well_and_hides_no_other() -> None:
    told = Told()
    boundary = Boundary(told.post)
    well, ill = boundary.job("one", works), boundary.job("one", breaks)
    other = boundary.job("two", breaks)

    async def story() -> None:
        for job in (well, well, ill, other, well, well):
            await job()

    asyncio.run(story())
    one, two = "one: ValueError: a bug", "two: ValueError: a bug"
    assert told.said == [OK, (DEGRADED, one), (DEGRADED, f"{one}; {two}"), (DEGRADED, two)]


def test_a_task_that_failed_is_begun_again_and_well_when_it_goes_on() -> None:
    told = Told()
    boundary = Boundary(told.post, rest_s=0, well_s=0.05)
    begun = 0

    async def stumbles() -> None:
        nonlocal begun
        begun += 1
        if begun < 3:
            raise ValueError("a bug")
        await asyncio.Event().wait()

    async def story() -> None:
        task = asyncio.create_task(boundary.task("judge", stumbles))
        while OK not in told.said:
            told.more.clear()
            await asyncio.wait_for(told.more.wait(), 20)
        task.cancel()
        await asyncio.wait({task})

    asyncio.run(story())
    assert told.said == [(DEGRADED, "judge: ValueError: a bug")] * 2 + [OK]
    assert begun == 3


def test_a_task_that_ends_is_not_begun_again() -> None:
    told = Told()
    asyncio.run(Boundary(told.post, well_s=60).task("once", works))
    assert told.said == []
