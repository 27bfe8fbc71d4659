"""What is looked at before and after a run: a real NVML helper, and a tree of power supplies."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from gpud.agent.measure import conditions
from gpud.agent.measure.conditions import Conditions, Observer
from gpud.agent.telemetry.sources.nvml import DEADLINE_S, HELPER
from tests.agent.telemetry.nvml_source import telling
from tests.standins.build import build_libnvml

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FIRST = "GPU-6d0c5f2e-8a41-4b7d-9e13-000000000000"
SECOND = "GPU-6d0c5f2e-8a41-4b7d-9e13-000000000001"


@pytest.fixture
def sysroot(tmp_path: Path) -> Path:
    return tmp_path / "sysroot"


def supply(sysroot: Path, name: str, **facts: str) -> None:
    folder = sysroot / "sys/class/power_supply" / name
    folder.mkdir(parents=True)
    for fact, text in facts.items():
        (folder / fact).write_text(f"{text}\n")


def looked(
    sysroot: Path,
    library: Path | str,
    *uuids: str | None,
    patience_s: float = conditions.PATIENCE_S,
    command: tuple[str, ...] = HELPER,
) -> list[Conditions]:
    async def story() -> list[Conditions]:
        deadline_s = max(DEADLINE_S, patience_s)
        async with telling(library, command=command, deadline_s=deadline_s) as nvml:
            observer = Observer(nvml.source, str(sysroot), patience_s=patience_s)
            return [await observer.look(uuid) for uuid in uuids]

    return asyncio.run(story())


def test_a_gpus_condition_is_read_by_its_uuid_with_the_machines_power(
    tmp_path: Path, sysroot: Path
) -> None:
    supply(sysroot, "AC1", type="Mains", online="0")
    supply(sysroot, "BAT1", type="Battery", status="Discharging", capacity="57")
    library = build_libnvml(
        tmp_path,
        "devices 2\ndevice.1.utilization_gpu_percent 88\ndevice.1.clock_sm_mhz 1380\n"
        "device.1.clocks_event_reasons 4\ndevice.1.power_mw none\n"
        "device.1.power_limit_mw 60000\ndevice.1.pcie_generation 3\ndevice.1.pcie_width 4\n",
    )
    first, second = looked(sysroot, library, FIRST, SECOND, patience_s=20)
    assert (first.utilization_gpu_ratio, first.clock_sm_hertz) == (0.03, 210e6)
    assert second == Conditions(
        clock_sm_hertz=1380e6,
        clock_memory_hertz=405e6,
        pstate=8.0,
        temperature_celsius=41.0,
        power_watts=None,
        power_limit_watts=60.0,
        pcie_generation=3.0,
        pcie_width=4.0,
        utilization_gpu_ratio=0.88,
        memory_used_bytes=float(1 << 30),
        memory_free_bytes=float((8 << 30) - (1 << 30) - (200 << 20)),
        throttle_reasons=frozenset({"power_cap"}),
        ac=False,
        battery_ratio=0.57,
    )


def test_without_nvml_the_reason_is_what_is_known(sysroot: Path) -> None:
    (found,) = looked(sysroot, "/nonexistent/libnvidia-ml.so.1", FIRST, patience_s=20)
    assert found == Conditions(unread="library_missing")


def test_a_gpu_that_nvml_does_not_show_is_not_taken_for_another(
    tmp_path: Path, sysroot: Path
) -> None:
    (found,) = looked(sysroot, build_libnvml(tmp_path), "GPU-of-somebody-else", patience_s=20)
    assert found == Conditions(unread="no_such_gpu")


def test_for_the_cpu_no_driver_is_asked(sysroot: Path) -> None:
    supply(sysroot, "AC", type="Mains", online="1")
    never = ("/bin/false",)
    assert looked(sysroot, "/nonexistent", None, command=never) == [Conditions(ac=True)]


def test_a_driver_that_hangs_costs_a_look_its_patience_once(tmp_path: Path, sysroot: Path) -> None:
    library = build_libnvml(tmp_path, "hang nvmlDeviceGetPowerUsage\n")

    async def story() -> list[Conditions]:
        async with telling(library) as nvml:
            # Whoever waited for a minute would be told of the hang.
            observers = [
                Observer(nvml.source, str(sysroot), patience_s=at_most)
                for at_most in (0.5, 60.0, 60.0)
            ]
            return [await observer.look(FIRST) for observer in observers]

    assert [one.unread for one in asyncio.run(story())] == ["slow"] * 3


def nothing(_: Path) -> None:
    """No supply at all."""


def folder_for_a_fact(folder: Path) -> None:
    (folder / "AC/online").mkdir(parents=True)


def file_for_a_supply(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "AC").write_text("1\n")


def bytes_for_text(folder: Path) -> None:
    (folder / "AC").mkdir(parents=True)
    (folder / "AC/type").write_bytes(b"Ma\xffns" * 1000)
    (folder / "AC/online").write_bytes(b"\x00" * 4096)


@pytest.mark.parametrize("damage", [nothing, folder_for_a_fact, file_for_a_supply, bytes_for_text])
def test_a_tree_that_makes_no_sense_says_nothing_of_the_power(
    sysroot: Path, damage: Callable[[Path], None]
) -> None:
    damage(sysroot / "sys/class/power_supply")
    assert looked(sysroot, "/nonexistent", None) == [Conditions()]
