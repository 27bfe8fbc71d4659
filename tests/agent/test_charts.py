"""Who asks for charts, and the process that answers: it ends, it hangs, it talks nonsense."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest

from gpud.agent import charts as charts_module
from gpud.agent import processes
from gpud.agent.body import Body
from gpud.agent.charting import __main__ as charting
from gpud.agent.charting.question import Asked, Known, Nameless, Question
from gpud.agent.charting.thinning import Steps
from gpud.agent.charts import HELPER, Charts
from gpud.core.errors import StoreError
from tests.histories import BEGUN_S, DAY_S, opened, run

KNOWN = Known({"launch": ("submit",)}, {"GPU-1": 0})
ECHOES_ITS_PID = 'echo $$ >>"$0"; exec "$@"'


def asked(points: int = 100, probe: str = "launch") -> Asked:
    steps = Steps.over(BEGUN_S - DAY_S, BEGUN_S, most=points, least_s=1)
    return Asked(probe, (), (), steps, hourly=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with opened(tmp_path) as store:
        store.append([run(BEGUN_S - 60.0 * n, 1e-5 * (1 + n / 1e3)) for n in range(1, 1440)])
    return tmp_path


def counted(folder: Path, **named: Any) -> tuple[Charts, Path]:
    """Make one whose processes write their numbers down."""
    pids = folder / "pids"
    command = ("/bin/sh", "-c", ECHOES_ITS_PID, str(pids), *HELPER)
    return Charts(folder, command=command, **named), pids


def started(pids: Path) -> list[int]:
    return [int(line) for line in pids.read_text().split()]


async def refused(charts: Charts) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await charts.answer(asked(), KNOWN)
    return caught.value


async def gone(pid: int) -> None:
    """Wait for the end of a process, which may be a zombie until somebody looks."""
    ended = asyncio.Event()
    if (process := processes.ref(pid)) is not None:
        processes.Watch(process, ended.set)
        async with asyncio.timeout(20):
            await ended.wait()


def test_one_process_answers_until_it_is_closed(folder: Path) -> None:
    charts, pids = counted(folder)

    async def story() -> None:
        answers = [await charts.answer(asked(points), KNOWN) for points in (10, 100)]
        assert all(isinstance(answer, Body) for answer in answers)
        nobody = await charts.answer(asked(probe="lunch"), KNOWN)
        assert nobody == Nameless("probe", "lunch", ("launch",))
        (pid,) = started(pids)
        await charts.close()
        assert processes.ref(pid) is None

    asyncio.run(story())


def test_it_ends_when_nobody_has_asked_for_a_while_and_the_next_one_begins(folder: Path) -> None:
    charts, pids = counted(folder, idle_s=0.05)

    async def story() -> None:
        await charts.answer(asked(10), KNOWN)
        await gone(started(pids)[0])
        await charts.answer(asked(100), KNOWN)
        assert len(started(pids)) == 2
        await charts.close()

    asyncio.run(story())


def test_one_that_was_killed_costs_one_answer_and_says_how(folder: Path) -> None:
    charts, pids = counted(folder)

    async def story() -> None:
        await charts.answer(asked(10), KNOWN)
        os.kill(started(pids)[0], signal.SIGKILL)
        error = await refused(charts)
        assert (error.reason, error.fix) == ("failed", "ask again in a second")
        assert "SIGKILL" in str(error)
        assert isinstance(await charts.answer(asked(), KNOWN), Body)
        await charts.close()

    asyncio.run(story())


def test_one_that_hangs_is_killed_and_the_next_one_answers(folder: Path) -> None:
    charts, pids = counted(folder)

    async def story() -> None:
        await charts.answer(asked(10), KNOWN)
        os.kill(started(pids)[0], signal.SIGSTOP)
        patience_s, charts._deadline_s = charts._deadline_s, 1.0  # a start may take longer
        error = await refused(charts)
        charts._deadline_s = patience_s
        assert (error.reason, error.fix) == ("slow", "look at the disk")
        assert isinstance(await charts.answer(asked(), KNOWN), Body)
        assert processes.ref(started(pids)[0]) is None
        await charts.close()

    asyncio.run(story())


@pytest.mark.parametrize("said", ["echo what", "exit 3", "echo '{\"body\": 1}'"])
def test_nonsense_is_a_reason_and_not_an_answer(folder: Path, said: str) -> None:
    charts = Charts(folder, command=("/bin/sh", "-c", f"read _; {said}"))

    async def story() -> None:
        error = await refused(charts)
        assert error.reason == "failed"
        await charts.close()

    asyncio.run(story())


def test_a_program_that_is_not_there_is_a_reason(folder: Path) -> None:
    charts = Charts(folder, command=(str(folder / "none"),))
    assert "No such file" in str(asyncio.run(refused(charts)))


def test_whoever_waits_when_gpud_stops_holds_nothing_up(folder: Path) -> None:
    charts, pids = counted(folder)

    async def story() -> None:
        await charts.answer(asked(10), KNOWN)
        os.kill(started(pids)[0], signal.SIGSTOP)
        waiting = asyncio.create_task(charts.answer(asked(), KNOWN))
        await asyncio.sleep(0)
        await charts.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert processes.ref(started(pids)[0]) is None

    asyncio.run(story())


def test_what_is_kept_is_bounded_in_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts_module, "KEPT_BYTES", 2000)
    charts, _ = counted(folder)

    async def story() -> None:
        for points in (100, 200, 400):
            await charts.answer(asked(points), KNOWN)
            await asyncio.sleep(0)  # the answer is put away
        await charts.close()

    asyncio.run(story())
    assert len(charts._kept) == 1


def test_an_answer_too_large_to_send_says_what_to_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charting, "LONGEST_BYTES", 1000)
    reply = charting.answered(Question(str(folder), asked(400), KNOWN))
    assert reply.trouble is not None
    assert (reply.trouble.reason, reply.body) == ("too_large", None)
    assert "fewer points" in str(reply.trouble.fix)


def test_a_process_that_has_grown_begins_anew_after_its_answer(folder: Path) -> None:
    grown = (
        "import gpud.agent.charting.__main__ as charting, sys; charting.LARGEST_BYTES = 1;"
        " sys.exit(charting.main())"
    )
    pids = folder / "pids"
    command = ("/bin/sh", "-c", ECHOES_ITS_PID, str(pids), *HELPER[:2], "-c", grown)
    charts = Charts(folder, command=command)

    async def story() -> None:
        for points in (10, 100):
            assert isinstance(await charts.answer(asked(points), KNOWN), Body)
        assert len(started(pids)) == 2
        await charts.close()

    asyncio.run(story())


def test_it_goes_behind_everything_else_and_before_it_where_memory_runs_out(folder: Path) -> None:
    charts, pids = counted(folder)

    async def story() -> None:
        await charts.answer(asked(), KNOWN)
        own = os.getpriority(os.PRIO_PROCESS, 0)
        theirs = os.getpriority(os.PRIO_PROCESS, started(pids)[0])
        assert theirs == min(own + charting.NICENESS, 19)
        process = Path(f"/proc/{started(pids)[0]}")
        assert int((process / "oom_score_adj").read_text()) >= int(charting.FIRST_TO_GO)
        limit = resource.prlimit(started(pids)[0], resource.RLIMIT_AS)
        assert limit == (charting.MOST_BYTES, charting.MOST_BYTES)
        await charts.close()

    asyncio.run(story())
