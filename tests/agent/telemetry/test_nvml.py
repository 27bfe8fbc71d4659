"""NVML as the agent meets it: a real library in a real helper process, which may end or hang."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

import pytest

from gpud.agent.measure import conditions
from gpud.agent.telemetry.sources import nvml
from gpud.agent.telemetry.sources.nvml import HELPER
from gpud.core.sample import Absent, Reading
from gpud.core.settings import parse
from tests.agent.telemetry.nvml_source import EVERYTHING, by_field, collected, settings_for, telling
from tests.standins.build import build_libnvml, rewrite_script

if TYPE_CHECKING:
    from pathlib import Path


def test_readings_of_the_machine_and_of_its_gpus_arrive_with_their_reasons(tmp_path: Path) -> None:
    library = build_libnvml(tmp_path, "devices 2\ndevice.0.power_mw 31500\n")
    answer = collected(library)
    assert answer.reason is None
    assert (answer.source, answer.level) == ("nvml", 5)
    assert by_field(answer.readings, None)["driver_version"] == "572.16"
    first, second = by_field(answer.readings, 0), by_field(answer.readings, 1)
    assert (first["power_watts"], second["power_watts"]) == (31.5, 23.5)
    assert first["uuid"] != second["uuid"]
    assert first["ecc_mode"] is Absent.UNSUPPORTED


def test_a_look_asks_for_what_conditions_are_made_of(tmp_path: Path) -> None:
    library = build_libnvml(tmp_path)

    async def look() -> tuple[Reading, ...]:
        async with telling(library) as story:
            return await story.source.look(patience_s=30.0)

    assert set(by_field(asyncio.run(look()))) == conditions.ASKED


def test_throughput_costs_the_gpu_time_and_is_asked_only_where_that_is_wished(
    tmp_path: Path,
) -> None:
    library = build_libnvml(tmp_path)
    assert by_field(collected(library).readings)["pcie_sent_bytes_per_second"] is Absent.NOT_ASKED
    wished = parse(
        f'[nvml]\nlibrary = "{library}"\n[telemetry]\npcie_throughput = true'.encode(), {}
    )

    answer = collected(library, settings=wished)
    assert by_field(answer.readings)["pcie_sent_bytes_per_second"] == 1.5e6


# NVML does not start, and why


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (4, "not_permitted"),
        (9, "driver_not_loaded"),
        (16, "reset_required"),
        (17, "blocked_by_the_operating_system"),
        (18, "driver_mismatch"),
        (999, "failed"),
    ],
)
def test_a_refused_start_has_its_cause_and_advice_for_its_platform(
    tmp_path: Path, code: int, reason: str
) -> None:
    library = build_libnvml(tmp_path, f"fail nvmlInitWithFlags {code}\n")
    answer = collected(library, wsl=code % 2 == 0)
    assert (answer.reason, answer.readings) == (reason, ())
    assert f"({code})" in str(answer.detail)
    assert ("wsl" in str(answer.fix).lower()) == (code % 2 == 0)


def test_a_missing_library_is_told_in_the_loaders_words() -> None:
    answer = collected("/nonexistent/libnvidia-ml.so.1")
    assert answer.reason == "library_missing"
    assert "cannot open shared object" in str(answer.detail)
    assert "[nvml] library" in str(answer.fix)


@pytest.mark.parametrize("function", ["nvmlInitWithFlags", "nvmlDeviceGetCount_v2"])
def test_a_library_that_cannot_be_started_lacks_a_symbol(tmp_path: Path, function: str) -> None:
    answer = collected(build_libnvml(tmp_path, without=[function]))
    assert (answer.reason, answer.readings) == ("symbol_missing", ())


@pytest.mark.parametrize(
    "said",
    [
        b"not json",
        b'{"readings": "many"}',
        b'{"reason": "\xff\xfe"}',
        b'{"reason": "two\\nlines"}',
        b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"readings": [{"gpu": null, "field": "driver_version", "source": "me", "value": "1"}]}',
        b'{"readings": [{"gpu": 0, "field": "power_watts", "source": "nvml", "value": 4294967.3}]}',
    ],
    ids=["words", "types", "no UTF-8", "a reason", "depth", "a source", "a sentinel"],
)
def test_garbage_from_a_helper_is_refused(said: bytes, tmp_path: Path) -> None:
    kept = tmp_path / "said"
    kept.write_bytes(said + b"\n")
    shell = ("/bin/sh", "-c", f"read line; cat {kept}; read line")
    answer = collected("/nonexistent", command=shell)
    assert (answer.reason, answer.readings) == ("bad_output", ())


# It is asked seldom on battery


def test_on_battery_nvml_is_asked_seldom_and_let_go_so_that_the_gpu_may_sleep(
    tmp_path: Path,
) -> None:
    library = build_libnvml(tmp_path)
    plugged = False

    async def story() -> None:
        nonlocal plugged
        async with telling(library, on_battery=lambda: not plugged) as told:
            first = await told.collect()
            assert first.reason is None
            assert told.pid is None, "nothing holds the GPU between two answers"
            told.clock.ahead_s += 290
            assert await told.source.collect(EVERYTHING) is None
            assert first.holds(told.clock.now().mono_s), "and its answer is shown meanwhile"
            told.clock.ahead_s += 10
            assert (await told.collect()).reason is None
            assert (await told.source.look()) != ()
            assert told.pid is None
            plugged = True
            assert (await told.collect()).reason is None, "not a moment longer than on battery"
            assert told.pid is not None

    asyncio.run(story())


# The helper stays, and gives way to a new one when there is something new to see


def test_the_helper_stays_between_collections_and_is_gone_after_the_close(tmp_path: Path) -> None:
    library = build_libnvml(tmp_path)

    async def story() -> int:
        async with telling(library) as told:
            pids = set[int | None]()
            for _ in range(3):
                await told.collect()
                pids.add(told.pid)
            [pid] = pids
            assert pid is not None
            assert len(told.spawned) == 1
            return pid

    with pytest.raises(ProcessLookupError):
        os.kill(asyncio.run(story()), 0)


def test_xids_are_counted_on_where_the_last_helper_left_off(tmp_path: Path) -> None:
    library = build_libnvml(tmp_path, "device.0.event_types 8\ndevice.0.xid 31 2\n")

    async def story() -> None:
        async with telling(library, command=(*HELPER, "--life-s=0")) as told:
            assert (await told.fields())["xids"] == "31:2"
            rewrite_script(library, "device.0.event_types 8\ndevice.0.xid 79\n")
            assert (await told.fields())["xids"] == "31:2,79:1"
            rewrite_script(library, "device.0.event_types 8\n")
            await told.source.look()
            fields = await told.fields()
            assert (fields["xids"], fields["xid_last"]) == ("31:2,79:1", 79.0)
            assert len(told.spawned) == 4

    asyncio.run(story())


def test_another_driver_is_seen_in_the_collection_after_its_library_was_installed(
    tmp_path: Path,
) -> None:
    library = build_libnvml(tmp_path / "lib", "driver_version 572.16\n")
    newer = build_libnvml(tmp_path / "new", "driver_version 576.02\n")

    async def story() -> None:
        async with telling(library) as told:
            assert (await told.fields(None))["driver_version"] == "572.16"
            rewrite_script(library, "driver_version 576.02\n")
            newer.replace(library)
            assert (await told.fields(None))["driver_version"] == "576.02"
            assert len(told.spawned) == 2
            await told.collect()
            assert len(told.spawned) == 2

    asyncio.run(story())


def test_a_link_turned_to_another_driver_is_seen_while_the_old_file_stays(tmp_path: Path) -> None:
    old = build_libnvml(tmp_path / "572", "driver_version 572.16\n")
    new = build_libnvml(tmp_path / "576", "driver_version 576.02\n")
    link = tmp_path / "libnvidia-ml.so.1"
    link.symlink_to(old)

    async def story() -> None:
        async with telling(link) as told:
            assert (await told.fields(None))["driver_version"] == "572.16"
            turned = tmp_path / "turned"
            turned.symlink_to(new)
            turned.replace(link)
            assert (await told.fields(None))["driver_version"] == "576.02"

    asyncio.run(story())


def test_a_library_that_vanishes_is_missed_at_once_and_found_when_it_is_back(
    tmp_path: Path,
) -> None:
    library = build_libnvml(tmp_path / "lib")
    aside = tmp_path / library.name

    async def story() -> None:
        async with telling(library) as told:
            assert (await told.collect()).reason is None
            library.rename(aside)
            assert (await told.collect()).reason == "library_missing"
            spawned = len(told.spawned)
            for _ in range(20):
                assert (await told.collect()).reason == "library_missing"
            assert len(told.spawned) == spawned, "answered from memory during the rest"
            aside.rename(library)
            told.clock.ahead_s += nvml.REFUSAL_REST_S[1]
            assert (await told.fields())["temperature_celsius"] == 41.0

    asyncio.run(story())


AGAIN = (
    "/bin/sh",
    "-c",
    """while read line; do echo '{"reason": "library_replaced", "last": true}'; done""",
)


def test_a_library_that_never_stays_the_same_is_not_chased() -> None:
    async def story() -> None:
        async with telling("/nonexistent", command=AGAIN) as told:
            assert (await told.collect()).reason == "library_replaced"
            assert len(told.spawned) == 2
            assert (await told.collect()).reason == "library_replaced"
            assert len(told.spawned) == 2

    asyncio.run(story())


def test_a_helper_that_cannot_be_used_is_told() -> None:
    answer = collected("/nonexistent", command=(sys.executable, "-c", "raise SystemExit(7)"))
    assert (answer.reason, "code 7" in str(answer.detail)) == ("crashed", True)


def test_wsl_is_looked_at_before_the_loaders_own_idea() -> None:
    assert nvml.candidates(parse(None, {})) == [
        "/usr/lib/wsl/lib/libnvidia-ml.so.1",
        "libnvidia-ml.so.1",
    ]
    assert nvml.candidates(settings_for("/opt/x.so")) == ["/opt/x.so"]
