"""NVML as the agent meets it: a real library in a real helper process."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.clocks import now
from gpud.agent.nvml import queries
from gpud.agent.telemetry import nvml
from gpud.agent.telemetry.nvml import Nvml
from gpud.core.errors import TelemetryError
from gpud.core.sample import Absent, Reading
from gpud.core.settings import Settings, parse
from tests.standins.build import build_libnvml, rewrite_script

if TYPE_CHECKING:
    from pathlib import Path


def settings_for(library: Path | str) -> Settings:
    return parse(f'[nvml]\nlibrary = "{library}"\n'.encode(), {})


def collected(library: Path | str, **options: Any) -> tuple[Reading, ...]:
    async def once() -> tuple[Reading, ...]:
        source = Nvml(settings_for(library), now=now, **options)
        try:
            return await source.look()
        finally:
            await source.close()

    return asyncio.run(once())


def by_field(readings: tuple[Reading, ...], gpu: int = 0) -> dict[str, float | str | Absent]:
    return {reading.field: reading.value for reading in readings if reading.gpu == gpu}


def test_every_field_arrives_in_base_units(tmp_path: Path) -> None:
    library = build_libnvml(
        tmp_path,
        "device.0.power_mw 31500\ndevice.0.clock_sm_mhz 2475\ndevice.0.utilization_gpu_percent 7\n",
    )
    fields = by_field(collected(library))
    assert set(fields) == set(queries.FIELDS)
    assert fields["power_watts"] == 31.5
    assert fields["clock_sm_hertz"] == 2475e6
    assert fields["utilization_gpu_ratio"] == 0.07


def test_a_withheld_field_is_absent_and_the_rest_still_arrive(tmp_path: Path) -> None:
    fields = by_field(collected(build_libnvml(tmp_path, "fail nvmlDeviceGetUtilizationRates 3\n")))
    assert fields["utilization_gpu_ratio"] is Absent.UNSUPPORTED
    assert isinstance(fields["temperature_celsius"], float)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (3, Absent.UNSUPPORTED),
        (4, Absent.NOT_PERMITTED),
        (13, Absent.UNSUPPORTED),
        (999, Absent.FAILED),
    ],
)
def test_each_refusal_is_a_reason(tmp_path: Path, code: int, reason: Absent) -> None:
    readings = collected(build_libnvml(tmp_path, f"fail nvmlDeviceGetPowerUsage {code}\n"))
    assert by_field(readings)["power_watts"] is reason


def test_a_missing_function_is_unsupported(tmp_path: Path) -> None:
    library = build_libnvml(tmp_path, without=("nvmlDeviceGetTotalEnergyConsumption",))
    assert by_field(collected(library))["energy_joules_total"] is Absent.UNSUPPORTED


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (9, "driver_not_loaded"),
        (17, "blocked_by_the_operating_system"),
        (18, "driver_mismatch"),
        (999, "failed"),
    ],
)
def test_a_refused_start_is_told_with_its_cause(tmp_path: Path, code: int, reason: str) -> None:
    library = build_libnvml(tmp_path, f"fail nvmlInitWithFlags {code}\nfail nvmlInit_v2 {code}\n")
    with pytest.raises(TelemetryError) as caught:
        collected(library)
    assert caught.value.reason == reason


def test_a_missing_library_is_told_in_the_loaders_words() -> None:
    with pytest.raises(TelemetryError, match="cannot open shared object") as caught:
        collected("/nonexistent/libnvidia-ml.so.1")
    assert caught.value.reason == "library_missing"
    assert "[nvml] library" in str(caught.value.fix)


def test_a_lost_gpu_is_the_end_of_the_collection(tmp_path: Path) -> None:
    with pytest.raises(TelemetryError) as caught:
        collected(build_libnvml(tmp_path, "fail nvmlDeviceGetTemperature 15\n"))
    assert caught.value.reason == "gpu_is_lost"


def test_a_hang_ends_at_the_deadline_and_is_not_repeated_at_once(tmp_path: Path) -> None:
    spawned: list[int] = []
    library = build_libnvml(tmp_path, "hang nvmlDeviceGetPowerUsage\n")

    async def twice() -> list[str]:
        source = Nvml(
            settings_for(library), now=now, deadline_s=1.5, on_spawn=lambda: spawned.append(1)
        )
        reasons = []
        for _ in range(2):
            with pytest.raises(TelemetryError) as caught:
                await source.look()
            reasons.append(caught.value.reason)
        await source.close()
        return reasons

    assert asyncio.run(twice()) == ["hung", "hung"]
    assert len(spawned) == 1


SLOW = ("/bin/sh", "-c", """while read line; do sleep 0.7; echo '{"readings": []}'; done""")


def test_who_has_no_patience_is_told_so_and_the_collection_goes_on() -> None:
    async def story() -> tuple[list[str], list[float], int]:
        spawned: list[int] = []
        source = Nvml(
            settings_for("/nonexistent"), now=now, command=SLOW, on_spawn=lambda: spawned.append(1)
        )
        reasons, waited = [], []
        for _ in range(3):
            began = time.monotonic()
            with pytest.raises(TelemetryError) as caught:
                await source.look(patience_s=0.1)
            reasons.append(caught.value.reason)
            waited.append(time.monotonic() - began)
        assert await source.look() == ()
        await source.close()
        return reasons, waited, len(spawned)

    reasons, waited, spawned = asyncio.run(story())
    assert reasons == ["slow", "slow", "slow"]
    assert waited[0] >= 0.1
    assert max(waited[1:]) < 0.1, "one who waited in vain keeps the others from doing so"
    assert spawned == 1, "a slow library is not killed before its deadline"


def test_collections_asked_for_at_once_do_not_mix(tmp_path: Path) -> None:
    library = build_libnvml(tmp_path)

    async def story() -> list[tuple[Reading, ...]]:
        source = Nvml(settings_for(library), now=now)
        found = await asyncio.gather(*(source.look() for _ in range(5)))
        await source.close()
        return found

    found = asyncio.run(story())
    assert all(by_field(readings)["pstate"] == 8 for readings in found)


def test_a_close_in_the_middle_of_a_collection_ends_the_helper(tmp_path: Path) -> None:
    library = build_libnvml(tmp_path, "hang nvmlDeviceGetPowerUsage\n")

    async def story() -> int:
        source = Nvml(settings_for(library), now=now)
        with pytest.raises(TelemetryError):
            await source.look(patience_s=0.5)
        helper = source._helper
        assert helper is not None
        await source.close()
        return helper.pid

    with pytest.raises(ProcessLookupError):
        os.kill(asyncio.run(story()), 0)


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0, "none"),
        (0x1, "idle"),
        (0x4 | 0x20, "power_cap,thermal"),
        (0x8 | 0x40 | 0x80, "hw_slowdown,hw_thermal,hw_power_brake"),
        (0x4 | 1 << 40, "power_cap,unknown"),
    ],
)
def test_what_holds_the_clocks_down_arrives_in_words(tmp_path: Path, bits: int, words: str) -> None:
    library = build_libnvml(tmp_path, f"device.0.clocks_event_reasons {bits}\n")
    assert by_field(collected(library))["throttle_reasons"] == words


def test_an_older_driver_is_asked_by_the_older_name(tmp_path: Path) -> None:
    without = ["nvmlDeviceGetCurrentClocksEventReasons"]
    library = build_libnvml(tmp_path, "device.0.clocks_event_reasons 4\n", without=without)
    assert by_field(collected(library))["throttle_reasons"] == "power_cap"


def test_a_driver_that_names_no_throttle_reasons_or_all_of_them_says_nothing(
    tmp_path: Path,
) -> None:
    neither = [
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
    ]
    library = build_libnvml(tmp_path, without=neither)
    assert by_field(collected(library))["throttle_reasons"] is Absent.UNSUPPORTED
    assert (
        queries.plausible("throttle_reasons", queries.throttle_words(2**64 - 1)) is Absent.SENTINEL
    )


def test_two_gpus_are_told_apart(tmp_path: Path) -> None:
    readings = collected(build_libnvml(tmp_path, "devices 2\n"))
    assert by_field(readings, 0)["uuid"] != by_field(readings, 1)["uuid"]


def test_the_helper_stays_between_collections_and_ends_with_its_input(tmp_path: Path) -> None:
    spawned: list[int] = []
    library = build_libnvml(tmp_path)

    async def thrice() -> int:
        source = Nvml(settings_for(library), now=now, on_spawn=lambda: spawned.append(1))
        for _ in range(3):
            await source.look()
        helper = source._helper
        assert helper is not None
        pid = helper.pid
        await source.close()
        return pid

    pid = asyncio.run(thrice())
    assert len(spawned) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_what_nvml_says_now_is_what_is_reported_now(tmp_path: Path) -> None:
    library = build_libnvml(tmp_path, "device.0.temperature_c 48\n")
    assert by_field(collected(library))["temperature_celsius"] == 48
    rewrite_script(library, "device.0.temperature_c 61\n")
    assert by_field(collected(library))["temperature_celsius"] == 61


def test_garbage_from_a_helper_is_refused() -> None:
    shell = ("/bin/sh", "-c", "read line; echo not json")
    with pytest.raises(TelemetryError) as caught:
        collected("/nonexistent", command=shell)
    assert caught.value.reason == "bad_output"


def test_a_helper_that_dies_is_told() -> None:
    with pytest.raises(TelemetryError) as caught:
        collected("/nonexistent", command=(sys.executable, "-c", "raise SystemExit(7)"))
    assert caught.value.reason == "crashed"


def test_a_refusal_is_answered_from_memory_for_a_while() -> None:
    spawned: list[int] = []

    async def often() -> None:
        source = Nvml(
            settings_for("/nonexistent/libnvidia-ml.so.1"),
            now=now,
            on_spawn=lambda: spawned.append(1),
        )
        for _ in range(50):
            with pytest.raises(TelemetryError):
                await source.look()
        await source.close()

    asyncio.run(often())
    assert len(spawned) == 1


@given(
    field=st.sampled_from(
        sorted(
            set(queries.FIELDS)
            - {"name", "uuid", "pci_bus_id", "driver_version", "throttle_reasons"}
        )
    ),
    value=st.one_of(
        st.integers(0, 2**64 - 1),
        st.sampled_from(sorted(queries.SENTINELS)),
        st.integers(-(2**31), -1),
        st.floats(allow_nan=True, allow_infinity=True),
    ),
)
def test_no_sentinel_and_no_impossible_figure_gets_through(field: str, value: float) -> None:
    got = queries.plausible(field, value)
    if not isinstance(got, Absent):
        low, high = queries.LIMITS.get(field, (0, 2**62))
        assert isinstance(got, float)
        assert low <= got <= high
        assert value not in queries.SENTINELS


def test_wsl_is_looked_at_before_the_loaders_own_idea() -> None:
    assert nvml.candidates(parse(None, {})) == [
        "/usr/lib/wsl/lib/libnvidia-ml.so.1",
        "libnvidia-ml.so.1",
    ]
    assert nvml.candidates(settings_for("/opt/x.so")) == ["/opt/x.so"]
