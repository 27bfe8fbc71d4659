"""Each exit code of nvidia-smi is a reason, with what helps where it ran."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.telemetry.smi_exit import FIXES, REASONS, error
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
@pytest.mark.parametrize("where", PLACES)
def test_each_exit_code_has_its_reason(code: int, reason: str, where: Platform | None) -> None:
    failure = error(code, b"", b"", source="nvidia_smi", where=where)
    assert failure.reason == reason
    assert str(failure).startswith("nvidia_smi")


@given(st.integers(-64, 255), st.binary(max_size=600), st.binary(max_size=100))
def test_every_end_has_a_bounded_reason_and_words_that_can_be_shown(
    code: int, stdout: bytes, stderr: bytes
) -> None:
    for where in PLACES:
        failure = error(code, stdout, stderr, source="nvidia_smi_exe", where=where)
        assert failure.reason in {*REASONS.values(), *FIXES}
        assert escaped(str(failure)) == str(failure)
        assert len(str(failure)) < 300


def test_advice_names_windows_and_wsl_only_where_they_are() -> None:
    for code in REASONS:
        fix = error(code, b"", b"", source="s", where=Platform.LINUX).fix or ""
        assert "wsl" not in fix.lower()
        assert "Windows" not in fix
    assert "wsl --shutdown" in str(error(9, b"", b"", source="s", where=Platform.WSL2).fix)


def test_the_first_line_of_the_output_is_quoted() -> None:
    output = b"NVIDIA-SMI has failed because it couldn't communicate\x1b[2J with the driver.\nMore."
    failure = error(9, output, b"", source="nvidia_smi", where=Platform.WSL2)
    assert "couldn't communicate\\x1b[2J with the driver." in str(failure)
    assert "More." not in str(failure)
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
@pytest.mark.parametrize("code", [1, 255])
@pytest.mark.parametrize("where", [None, Platform.WSL2])
def test_where_the_code_is_unspecific_the_words_give_the_reason(
    output: str, reason: str, code: int, where: Platform | None
) -> None:
    failure = error(code, f"{output}\nMore.\n".encode(), b"", source="s", where=where)
    if (reason, code, where) == ("failed", 1, None):
        reason = "interop_failed"  # WSL's own starter of Windows programs
    assert failure.reason.startswith(reason)


def test_a_specific_code_counts_more_than_the_words() -> None:
    failure = error(12, b"GPU is lost", b"", source="s", where=None)
    assert failure.reason == "library_missing"
