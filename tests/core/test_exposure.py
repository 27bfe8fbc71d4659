"""Whether a machine is offered a GPU."""

from __future__ import annotations

import pytest

from gpud.core.exposure import on_linux, on_wsl


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
