"""Each exit code of nvidia-smi is a reason, with what helps where it ran."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.telemetry.smi_exit import IN_WINDOWS, REASONS, SITUATIONS, error
from gpud.core.advice import Platform
from gpud.core.text import escaped

PLACES = (None, *Platform)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (2, "invalid_argument"),
        (3, "not_supported"),
        (4, "not_permitted"),
        (6, "no_device"),
        (8, "power_cable"),
        (9, "driver_not_loaded"),
        (10, "interrupt_trouble"),
        (12, "library_missing"),
        (13, "symbol_missing"),
        (14, "inforom_corrupted"),
        (15, "gpu_is_lost"),
        (17, "blocked_by_the_operating_system"),
        (18, "driver_mismatch"),
        (126, "not_executable"),
        (127, "absent"),
        (255, "failed"),
        (77, "failed"),
        (-11, "crashed"),
        (-40, "crashed"),
    ],
)
def test_each_exit_code_has_its_reason_and_advice_for_its_platform(code: int, reason: str) -> None:
    on_linux, in_windows = (
        error(code, b"GPU is", b"", source="s", where=where) for where in (Platform.LINUX, None)
    )
    assert (on_linux.reason, in_windows.reason) == (reason, reason)
    assert "wsl" not in str(on_linux.fix).lower()
    assert "Windows" not in str(on_linux.fix)
    assert in_windows.fix == IN_WINDOWS.get(reason)
    on_wsl = error(code, b"", b"", source="s", where=Platform.WSL2)
    assert bool(on_wsl.fix) is (reason in SITUATIONS)


@given(st.integers(-64, 255), st.binary(max_size=600), st.binary(max_size=100))
def test_every_end_has_a_bounded_reason_and_a_printable_message(
    code: int, stdout: bytes, stderr: bytes
) -> None:
    for where in PLACES:
        failure = error(code, stdout, stderr, source="nvidia_smi_exe", where=where)
        assert failure.reason in {*REASONS.values(), *SITUATIONS, *IN_WINDOWS}
        assert str(failure).startswith("nvidia_smi_exe")
        assert escaped(str(failure)) == str(failure)
        assert len(str(failure)) < 300


def test_the_first_line_of_the_output_is_quoted() -> None:
    output = b"NVIDIA-SMI has failed because it couldn't communicate\x1b[2J with the driver.\nMore."
    failure = error(9, output, b"", source="nvidia_smi", where=Platform.WSL2)
    assert "couldn't communicate\\x1b[2J with the driver." in str(failure)
    assert "More." not in str(failure)
    assert "wsl --shutdown" in str(failure.fix)
    output = "Zugriff verweigert\r\n".encode("utf-16-le")
    assert '"Zugriff verweigert"' in str(error(4, b"", output, source="s", where=None))


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("Failed to initialize NVML: GPU access blocked by the operating system", "blocked"),
        ("Failed to initialize NVML: Driver/library version mismatch", "driver_mismatch"),
        ("Failed to initialize NVML: Insufficient Permissions", "not_permitted"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "driver"),
        ("Unable to determine the device handle for GPU0: GPU is lost.", "gpu_is_lost"),
        ("No devices were found", "no_device"),
        ("Failed to initialize NVML: Unknown Error", "failed"),
    ],
)
def test_the_message_gives_the_reason_only_where_the_code_is_unspecific(
    output: str, reason: str
) -> None:
    for code in (1, 255):
        failure = error(code, f"{output}\nMore.\n".encode(), b"", source="s", where=Platform.WSL2)
        assert failure.reason.startswith(reason)
    assert error(12, output.encode(), b"", source="s", where=None).reason == "library_missing"
    started = error(1, b"Unknown Error", b"", source="s", where=None)
    assert started.reason == "interop_failed", "by WSL's own starter of Windows programs"
