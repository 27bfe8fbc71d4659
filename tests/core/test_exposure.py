"""Whether a machine is offered a GPU, and which folder its driver is from."""

from __future__ import annotations

import pytest

from gpud.core.exposure import Folder, chosen, in_the_store, on_linux, on_wsl

OLD, NEW = Folder("nv_dispi.inf_amd64_old", 1.0), Folder("nvltwi.inf_amd64_new", 2.0)


@pytest.mark.parametrize(
    ("device", "enabled", "exposed"),
    [
        (True, True, "yes"),
        (True, False, "disabled"),
        (False, True, "no"),
        (False, False, "disabled"),
    ],
)
def test_wsl_offers_a_gpu_by_its_device(device: bool, enabled: bool, exposed: str) -> None:  # noqa: FBT001
    assert on_wsl(device=device, enabled=enabled) == exposed


@pytest.mark.parametrize(
    ("devices", "cards", "exposed"),
    [
        (["null", "nvidia0", "nvidiactl"], [], "yes"),
        (["nvidiactl"], [], "yes"),
        (["nvme0n1", "nvidia-caps", "nvidia-uvm-tools"], [], "no"),
        ([], [("0x10de\n", "0x030000\n")], "yes"),
        ([], [("0x10de\n", "0x030200\n")], "yes"),
        ([], [("0x10de\n", "0x040300\n")], "no"),  # the sound of a card that was handed on
        ([], [("0x8086\n", "0x030000\n"), ("0x1002\n", "0x030000\n")], "no"),
        ([], [("", ""), ("rubbish", "0x030000")], "no"),
        ([], [], "no"),
    ],
)
def test_linux_has_a_gpu_by_its_devices_or_its_bus(
    devices: list[str], cards: list[tuple[str, str]], exposed: str
) -> None:
    assert on_linux(devices, cards) == exposed


@pytest.mark.parametrize(
    ("folders", "loaded", "name"),
    [
        ([], None, None),
        ([OLD], None, OLD.name),
        ([OLD, NEW], None, NEW.name),
        ([OLD, NEW], OLD.name, OLD.name),
        ([NEW], OLD.name, NEW.name),  # it was replaced
        ([Folder("a", 1.0), Folder("b", 1.0)], None, "b"),
    ],
)
def test_the_folder_is_that_of_the_loaded_driver_or_the_newest(
    folders: list[Folder], loaded: str | None, name: str | None
) -> None:
    assert chosen(folders, loaded) == name
    assert chosen(folders[::-1], loaded) == name


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("/usr/lib/wsl/drivers/nv_dispi.inf_amd64_1/libcuda.so.1.1", "nv_dispi.inf_amd64_1"),
        (
            "7f00-7f01 r-xp 0 00:2a 7  /tree/usr/lib/wsl/drivers/nv_1/libcuda.so.1.1 (deleted)",
            "nv_1",
        ),
        ("/usr/lib/wsl/lib/libcuda.so.1", None),
        ("/usr/lib/wsl/drivers/libcuda.so.1", None),
        ("", None),
    ],
)
def test_a_file_of_the_driver_store_tells_its_folder(path: str, folder: str | None) -> None:
    assert in_the_store(path) == folder
