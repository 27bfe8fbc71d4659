"""NVML as the agent meets it: a real library in a real helper process, which may end or hang."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

import pytest

from gpud import processes
from gpud.agent.telemetry.collection import Collection
from gpud.agent.telemetry.sources import nvml
from gpud.agent.telemetry.sources.nvml import HELPER
from gpud.core.errors import TelemetryError
from gpud.core.sample import Absent
from gpud.core.settings import parse
from tests.agent.telemetry.nvml_source import by_field, collected, settings_for, telling
from tests.events import answers_to
from tests.fuse import Stalling, stalling, usable
from tests.standins.build import build_libnvml, rewrite_script
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


async def test_readings_of_the_machine_and_of_its_gpus_arrive_with_their_reasons(
    tmp_path: Path,
) -> None:
    library = build_libnvml(tmp_path, "devices 2\ndevice.0.power_mw 31500\n")
    answer = await collected(library)
    assert (answer.source, answer.level, answer.reason) == ("nvml", 5, None)
    assert by_field(answer.readings, None)["driver_version"] == "572.16"
    first, second = by_field(answer.readings, 0), by_field(answer.readings, 1)
    assert (first["power_watts"], second["power_watts"]) == (31.5, 23.5)
    assert first["uuid"] != second["uuid"]
    assert first["ecc_mode"] is Absent.UNSUPPORTED
    assert first["pcie_sent_bytes_per_second"] is Absent.NOT_ASKED
    text = f'[nvml]\nlibrary = "{library}"\n[telemetry]\npcie_throughput = true'
    answer = await collected(library, settings=parse(text.encode(), {}))
    assert by_field(answer.readings)["pcie_sent_bytes_per_second"] == 1.5e6


async def test_collections_and_looks_at_once_do_not_mix(tmp_path: Path) -> None:
    library = build_libnvml(tmp_path)
    async with telling(library) as nvml_source:
        looks = asyncio.gather(*(nvml_source.source.look(30.0) for _ in range(3)))
        first, looked, last = await asyncio.gather(
            nvml_source.fields(), looks, nvml_source.fields()
        )
        assert first["fan_ratio"] == last["fan_ratio"] == 0.3
        assert all(set(by_field(readings)) == nvml.LOOK_FIELDS for readings in looked)
        assert nvml_source.spawned == 1
        pid = nvml_source.pid
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (9, "driver_not_loaded"),
        (18, "driver_mismatch"),
        (999, "failed"),
    ],
)
async def test_a_refused_start_has_its_cause_and_advice_for_its_platform(
    tmp_path: Path, code: int, reason: str
) -> None:
    library = build_libnvml(tmp_path, f"fail nvmlInitWithFlags {code}\n")
    answer = await collected(library, wsl=code % 2 == 0)
    assert (answer.reason, answer.readings) == (reason, ())
    assert f"({code})" in str(answer.detail)
    assert ("wsl" in str(answer.fix).lower()) == (code % 2 == 0)


async def test_a_missing_library_is_reported_in_the_words_of_the_loader(tmp_path: Path) -> None:
    answer = await collected("/nonexistent/libnvidia-ml.so.1")
    assert answer.reason == "library_missing"
    assert "cannot open shared object" in str(answer.detail)
    assert "[nvml] library" in str(answer.fix)
    answer = await collected(build_libnvml(tmp_path, without=["nvmlInitWithFlags"]))
    assert (answer.reason, answer.readings) == ("symbol_missing", ())


@pytest.mark.parametrize(
    ("command", "reason", "words"),
    [
        (("/bin/sh", "-c", "read line; echo not json; read line"), "bad_output", "helper"),
        (("/bin/sh", "-c", """read l; echo '{"readings": 1}'; read l"""), "bad_output", "helper"),
        ((sys.executable, "-c", "raise SystemExit(7)"), "crashed", "code 7"),
        (("/nonexistent/python",), "spawn_failed", "No such file"),
    ],
)
async def test_a_helper_that_does_not_work_is_a_reason(
    command: tuple[str, ...], reason: str, words: str
) -> None:
    answer = await collected("/nonexistent", command=command)
    assert (answer.reason, answer.readings) == (reason, ())
    assert words in str(answer.detail)


def test_wsl_comes_before_the_libraries_of_the_loader() -> None:
    wsl = "/usr/lib/wsl/lib/libnvidia-ml.so.1"
    assert nvml.candidates(parse(None, {})) == [wsl, "libnvidia-ml.so.1"]
    assert nvml.candidates(settings_for("/opt/x.so")) == ["/opt/x.so"]


async def test_on_battery_nvml_is_asked_seldom_and_let_go_so_that_the_gpu_may_sleep(
    tmp_path: Path,
) -> None:
    library = build_libnvml(tmp_path)
    status = tmp_path / "sys/class/power_supply/BAT1/status"
    status.parent.mkdir(parents=True)
    status.with_name("type").write_text("Battery\n")
    status.write_text("Discharging\n")
    settings = parse(f'sysroot = "{tmp_path}"\n[nvml]\nlibrary = "{library}"'.encode(), {})
    async with telling(library, settings=settings) as laptop:
        first = await laptop.collect()
        assert first.reason is None
        assert laptop.pid is None, "nothing holds the GPU between two answers"
        laptop.clock.ahead_s += nvml.ON_BATTERY_S - 10
        assert await laptop.source.collect() is None
        assert first.holds(laptop.clock.now().mono_s), "and its answer is shown meanwhile"
        laptop.clock.ahead_s += 10
        assert (await laptop.collect()).reason is None
        assert (await laptop.source.look()) != ()
        assert laptop.pid is None
        status.write_text("Charging\n")
        assert (await laptop.collect()).reason is None, "not a moment longer than on battery"
        assert laptop.pid is not None


# The helper stays, and gives way to a new one when there is something new to see


async def test_xids_are_counted_on_where_the_last_helper_ended(tmp_path: Path) -> None:
    library = build_libnvml(tmp_path, "device.0.event_types 8\ndevice.0.xid 31 2\n")
    async with telling(library, command=(*HELPER, "--life-s=0")) as source:
        assert (await source.fields())["xids"] == "31:2"
        rewrite_script(library, "device.0.event_types 8\ndevice.0.xid 79\n")
        assert (await source.fields())["xids"] == "31:2,79:1"
        for code, question in ((13, source.source.look), (43, source.source.live)):
            rewrite_script(library, f"device.0.event_types 8\ndevice.0.xid {code}\n")
            await question()
        rewrite_script(library, "device.0.event_types 8\n")
        fields = await source.fields()
        assert (fields["xids"], fields["xid_last"]) == ("13:1,31:2,43:1,79:1", 43.0)
        assert source.spawned == 5


async def test_library_that_is_missing_is_loaded_when_it_is_there(tmp_path: Path) -> None:
    library = build_libnvml(tmp_path / "lib")
    aside = tmp_path / library.name
    interval_s = parse(None, {}).schedule.telemetry_interval_s
    assert nvml.REFUSAL_REST_S[1] + interval_s < 60
    library.rename(aside)
    async with telling(library) as source:
        for _ in range(20):
            assert (await source.collect()).reason == "library_missing"
        assert source.spawned == 1, "answered from memory during the rest"
        aside.rename(library)
        source.clock.ahead_s += nvml.REFUSAL_REST_S[1]
        assert (await source.fields())["temperature_celsius"] == 41.0


# Hangs and crashes


@pytest.fixture
def stalled(tmp_path: Path) -> Iterator[Stalling]:
    if not usable():
        pytest.skip("needs root and /dev/fuse")
    with stalling(tmp_path / "stalling") as made:
        yield made


async def test_a_hang_ends_at_the_deadline_and_its_helper_is_replaced_after_a_rest(
    tmp_path: Path,
) -> None:
    library = build_libnvml(tmp_path, "hang nvmlDeviceGetPowerUsage\n")
    async with telling(library, deadline_s=1.5) as source:
        assert [(await source.collect()).reason for _ in range(2)] == ["hung", "hung"]
        source.clock.ahead_s += nvml.KILL_AFTER_S - 5
        assert (await source.collect()).reason == "hung"
        assert source.spawned == 1
        hung = source.pid
        assert hung is not None
        rewrite_script(library, "")
        source.clock.ahead_s += 5
        source.patient()
        assert (await source.fields())["power_watts"] == 23.5
        assert source.spawned == 2
        with pytest.raises(ProcessLookupError):
            os.kill(hung, 0)


async def test_a_viewer_who_leaves_saves_no_helper_that_hangs_from_its_end(tmp_path: Path) -> None:
    library = build_libnvml(tmp_path, "hang nvmlDeviceGetPowerUsage\n")
    async with telling(library, deadline_s=0.5) as source:
        assert (await source.collect()).reason == "hung"
        hung = source.pid
        assert hung is not None
        rewrite_script(library, "")
        source.clock.ahead_s += nvml.KILL_AFTER_S
        source.patient()
        telemetry = Collection(answers_to(source.board), {"nvml": source.source})
        viewer = asyncio.create_task(telemetry.live())
        await asyncio.to_thread(until, lambda: source.pid is None, "the end of the helper begins")
        viewer.cancel()
        await asyncio.wait({viewer})
        assert (await source.fields())["power_watts"] == 23.5
        with pytest.raises(ProcessLookupError):
            os.kill(hung, 0)


@pytest.mark.parametrize(("options", "spawned"), [((), 1), (("--life-s=0",), 2)])
async def test_the_late_answer_of_a_busy_driver_counts_and_nothing_is_killed(
    tmp_path: Path, stalled: Stalling, options: tuple[str, ...], spawned: int
) -> None:
    library = build_libnvml(tmp_path, f"stall nvmlDeviceGetPowerUsage {stalled.path}\n")
    async with telling(library, deadline_s=1.0, command=(*HELPER, *options)) as source:
        assert (await source.collect()).reason == "hung"
        assert (await source.collect()).reason == "hung"
        stalled.answer()
        await source.late_answer()
        source.patient()
        assert (await source.fields())["power_watts"] == 23.5
        assert source.spawned == spawned


async def test_xids_of_a_late_answer_are_counted_on_when_its_helper_ends_with_it(
    tmp_path: Path, stalled: Stalling
) -> None:
    stall = f"stall nvmlDeviceGetPowerUsage {stalled.path}\n"
    library = build_libnvml(tmp_path, f"device.0.event_types 8\ndevice.0.xid 31 2\n{stall}")
    async with telling(library, deadline_s=1.0, command=(*HELPER, "--life-s=0")) as source:
        assert (await source.collect()).reason == "hung"
        stalled.answer()
        await source.late_answer()
        rewrite_script(library, "device.0.event_types 8\n")
        source.patient()
        assert (await source.fields())["xids"] == "31:2"


async def test_while_a_helper_that_was_killed_stays_no_other_is_started(
    tmp_path: Path, stalled: Stalling
) -> None:
    library = build_libnvml(tmp_path, f"stall nvmlDeviceGetPowerUsage {stalled.path}\n")
    async with telling(library, deadline_s=4.0) as source:
        assert (await source.collect()).reason == "hung"
        hangs = source.pid
        assert hangs is not None
        for _ in range(3):
            source.clock.ahead_s += nvml.KILL_AFTER_S
            answer = await source.collect()
            assert answer.reason == "stuck"
            assert "state D" in str(answer.detail)
        assert source.spawned == 1
        stalled.answer()
        await asyncio.to_thread(until, lambda: processes.ref(hangs) is None, "its end")
        source.clock.ahead_s += nvml.KILL_AFTER_S
        source.patient()
        assert (await source.fields())["power_watts"] == 23.5


async def test_helper_that_hangs_in_wsl2_gets_no_signal_and_no_other_is_started_beside_it(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "fifo")
    library = build_libnvml(tmp_path, f"stall nvmlDeviceGetPowerUsage {tmp_path}/fifo\n")
    async with telling(library, wsl=True, own=tmp_path, deadline_s=1.0) as source:
        assert (await source.collect()).reason == "hung"
        hangs = source.pid
        assert hangs is not None
        process = processes.ref(hangs)
        for _ in range(3):
            source.clock.ahead_s += nvml.KILL_AFTER_S
            answer = await source.collect()
            assert answer.reason == "stuck"
            assert f"process {hangs} is left alone in a call of NVML" in str(answer.detail)
        assert source.spawned == 1
        async with telling(library, wsl=True, own=tmp_path) as restarted:
            assert (await restarted.collect()).reason == "stuck"
            assert restarted.spawned == 0
        assert processes.ref(hangs) == process
        await asyncio.to_thread((tmp_path / "fifo").write_text, "the driver returns")
        await asyncio.to_thread(until, lambda: processes.ref(hangs) is None, "its end")
        rewrite_script(library, "")
        source.clock.ahead_s += nvml.KILL_AFTER_S
        source.patient()
        assert (await source.fields())["power_watts"] == 23.5
        assert source.spawned == 2


@pytest.mark.parametrize(("key", "signal"), [("segfault", "SIGSEGV"), ("crash", "SIGABRT")])
async def test_a_driver_that_ends_its_process_is_reported_and_tried_again(
    tmp_path: Path, key: str, signal: str
) -> None:
    library = build_libnvml(tmp_path, f"{key} nvmlDeviceGetPowerUsage\n")
    async with telling(library) as source:
        answer = await source.collect()
        assert (answer.reason, signal in str(answer.detail)) == ("crashed", True)
        assert (await source.collect()).reason == "crashed"
        assert source.spawned == 1, "not before the rest is over"
        rewrite_script(library, "")
        source.clock.ahead_s += nvml.REFUSAL_REST_S[0]
        assert (await source.fields())["power_watts"] == 23.5


async def test_a_look_without_patience_is_slow_and_the_helper_goes_on(tmp_path: Path) -> None:
    library = build_libnvml(tmp_path, "delay nvmlDeviceGetPowerUsage 1500\n")
    async with telling(library) as source:
        source.patient()
        for _ in range(2):
            with pytest.raises(TelemetryError) as caught:
                await source.source.look(patience_s=0.1)
            assert caught.value.reason == "slow"
        assert (await source.fields())["power_watts"] == 23.5
        assert source.spawned == 1, "a slow library is not killed before its deadline"


async def test_a_close_in_the_middle_of_a_collection_ends_the_helper(tmp_path: Path) -> None:
    library = build_libnvml(tmp_path, "hang nvmlDeviceGetPowerUsage\n")
    async with telling(library) as source:
        with pytest.raises(TelemetryError):
            await source.source.look(patience_s=0.5)
        pid = source.pid
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
