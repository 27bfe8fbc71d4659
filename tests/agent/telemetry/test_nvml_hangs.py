"""An NVML that hangs, crashes or takes its time, and a real helper process before it."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent import processes
from gpud.agent.measure import conditions
from gpud.agent.telemetry.sources import nvml
from gpud.core.errors import TelemetryError
from gpud.core.settings import parse
from tests.agent.telemetry.nvml_source import Story, by_field, telling
from tests.fuse import Stalling, stalling, usable
from tests.standins.build import build_libnvml, rewrite_script
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_a_hang_ends_at_the_deadline_and_its_helper_is_replaced_after_a_rest(
    tmp_path: Path,
) -> None:
    library = build_libnvml(tmp_path, "hang nvmlDeviceGetPowerUsage\n")

    async def story() -> None:
        async with telling(library, deadline_s=1.5) as told:
            assert [(await told.collect()).reason for _ in range(2)] == ["hung", "hung"]
            assert len(told.spawned) == 1
            told.clock.ahead_s += nvml.HANG_REST_S - 2
            assert (await told.collect()).reason == "hung"
            assert len(told.spawned) == 1
            hung = told.pid
            assert hung is not None
            rewrite_script(library, "")
            told.clock.ahead_s += 2
            told.patient()
            assert (await told.fields())["power_watts"] == 23.5
            assert len(told.spawned) == 2
            with pytest.raises(ProcessLookupError):
                os.kill(hung, 0)

    asyncio.run(story())


@pytest.fixture
def stalled(tmp_path: Path) -> Iterator[Stalling]:
    if not usable():
        pytest.skip("needs root and /dev/fuse")
    with stalling(tmp_path / "stalling") as made:
        yield made


def test_a_driver_that_was_only_busy_is_heard_again_at_once_and_nothing_was_killed(
    tmp_path: Path, stalled: Stalling
) -> None:
    library = build_libnvml(tmp_path, f"stall nvmlDeviceGetPowerUsage {stalled.path}\n")

    async def story() -> None:
        async with telling(library, deadline_s=1.0) as told:
            assert (await told.collect()).reason == "hung"
            assert (await told.collect()).reason == "hung"
            helper = told.pid
            stalled.answer()
            await told.late_answer()
            told.patient()
            assert (await told.fields())["power_watts"] == 23.5
            assert told.pid == helper
            assert len(told.spawned) == 1

    asyncio.run(story())


def test_a_helper_whose_late_answer_was_its_last_is_begun_anew(
    tmp_path: Path, stalled: Stalling
) -> None:
    library = build_libnvml(tmp_path, f"stall nvmlDeviceGetPowerUsage {stalled.path}\n")
    command = (*nvml.HELPER, "--life-s=0")

    async def story() -> None:
        async with telling(library, deadline_s=1.0, command=command) as told:
            assert (await told.collect()).reason == "hung"
            stalled.answer()
            await told.late_answer()
            told.patient()
            assert (await told.fields())["power_watts"] == 23.5
            assert told.pid is None
            assert len(told.spawned) == 2

    asyncio.run(story())


def test_a_gpu_that_came_later_is_seen_as_soon_as_cuda_offers_it(tmp_path: Path) -> None:
    library = build_libnvml(tmp_path, "devices 1\n")
    offered = {"GPU-6d0c5f2e-8a41-4b7d-9e13-000000000000"}

    async def seen(told: Story) -> list[int]:
        answer = await told.collect()
        assert answer.reason is None
        return sorted({read.gpu for read in answer.readings if read.gpu is not None})

    async def story() -> None:
        async with telling(library, listed=lambda: offered) as told:
            assert await seen(told) == [0]
            rewrite_script(library, "devices 2\n")
            assert await seen(told) == [0]  # NVML lists what was there when it was opened
            offered.add("GPU-6d0c5f2e-8a41-4b7d-9e13-000000000001")
            await told.collect()
            assert await seen(told) == [0, 1]
            assert len(told.spawned) == 2
            offered.add("GPU-of-which-nvml-knows-nothing")
            assert [await seen(told) for _ in range(4)] == [[0, 1]] * 4
            assert len(told.spawned) == 3  # one look for it is enough

    asyncio.run(story())


def test_while_a_helper_that_was_killed_stays_no_other_is_started(
    tmp_path: Path, stalled: Stalling
) -> None:
    library = build_libnvml(tmp_path, f"stall nvmlDeviceGetPowerUsage {stalled.path}\n")

    async def story() -> None:
        async with telling(library, deadline_s=4.0) as told:
            assert (await told.collect()).reason == "hung"
            for _ in range(3):
                told.clock.ahead_s += nvml.HANG_REST_S
                answer = await told.collect()
                assert answer.reason == "stuck"
                assert "state D" in str(answer.detail)
            assert len(told.spawned) == 1
            stays = told.source._helper.stuck()
            assert stays is not None
            stalled.answer()
            await asyncio.to_thread(until, lambda: processes.ref(stays.pid) is None, "its end")
            told.clock.ahead_s += nvml.HANG_REST_S
            told.patient()
            assert (await told.fields())["power_watts"] == 23.5

    asyncio.run(story())


@pytest.mark.parametrize(("key", "signal"), [("segfault", "SIGSEGV"), ("crash", "SIGABRT")])
def test_a_driver_that_ends_its_process_is_told_and_tried_again(
    tmp_path: Path, key: str, signal: str
) -> None:
    library = build_libnvml(tmp_path, f"{key} nvmlDeviceGetPowerUsage\n")

    async def story() -> None:
        async with telling(library) as told:
            answer = await told.collect()
            assert (answer.reason, signal in str(answer.detail)) == ("crashed", True)
            assert (await told.collect()).reason == "crashed"
            assert len(told.spawned) == 1, "not before the rest is over"
            rewrite_script(library, "")
            told.clock.ahead_s += nvml.REFUSAL_REST_S[0]
            assert (await told.fields())["power_watts"] == 23.5

    asyncio.run(story())


def test_who_has_no_patience_is_told_so_and_a_slow_collection_goes_on(tmp_path: Path) -> None:
    library = build_libnvml(tmp_path, "delay nvmlDeviceGetPowerUsage 1500\n")

    async def story() -> tuple[list[str], int]:
        reasons = []
        async with telling(library) as told:
            told.patient()
            # One who waited in vain keeps the others from doing so, who would have had an answer.
            for patience_s in (0.1, 30.0, 30.0):
                with pytest.raises(TelemetryError) as caught:
                    await told.source.look(patience_s=patience_s)
                reasons.append(caught.value.reason)
            assert (await told.fields())["power_watts"] == 23.5
            return reasons, len(told.spawned)

    reasons, spawned = asyncio.run(story())
    assert reasons == ["slow", "slow", "slow"]
    assert spawned == 1, "a slow library is not killed before its deadline"


def test_collections_asked_for_at_once_do_not_mix(tmp_path: Path) -> None:
    library = build_libnvml(tmp_path)

    async def story() -> None:
        async with telling(library) as told:
            looks = asyncio.gather(*(told.source.look() for _ in range(3)))
            first, seen, last = await asyncio.gather(told.fields(), looks, told.fields())
            assert first["fan_ratio"] == last["fan_ratio"] == 0.3
            assert all(set(by_field(readings)) == conditions.ASKED for readings in seen)

    asyncio.run(story())


def test_a_close_in_the_middle_of_a_collection_ends_the_helper(tmp_path: Path) -> None:
    library = build_libnvml(tmp_path, "hang nvmlDeviceGetPowerUsage\n")

    async def story() -> int:
        async with telling(library) as told:
            with pytest.raises(TelemetryError):
                await told.source.look(patience_s=0.5)
            assert told.pid is not None
            return told.pid

    with pytest.raises(ProcessLookupError):
        os.kill(asyncio.run(story()), 0)


@given(failures=st.integers(0, 10_000))
def test_nvml_coming_back_is_noticed_within_a_minute(
    failures: int,
) -> None:
    interval_s = parse(None, {}).schedule.telemetry_interval_s
    for reason in ("library_missing", "driver_not_loaded", "crashed", "failed"):
        assert 1 <= nvml.rest_s(reason, failures) + interval_s < 60
        assert nvml.rest_s(reason, failures) <= nvml.rest_s(reason, failures + 1)
    assert nvml.rest_s("hung", failures) + nvml.DEADLINE_S <= 60
