"""What an end of nvidia-smi means, and who is to blame where sources disagree."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.core import smi_exit
from gpud.core.advice import Platform
from gpud.core.events import SourceAnswered
from gpud.core.fold import fold
from gpud.core.sample import Failure, Inventory, Reading, Reason
from gpud.core.smi_exit import ended, tie
from gpud.core.snapshot import Snapshot
from gpud.core.telemetry import Answer
from gpud.core.text import escaped

if TYPE_CHECKING:
    from gpud.core.health import Health


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
@pytest.mark.parametrize("where", [None, *Platform])
def test_each_end_has_its_reason(code: int, reason: str, where: Platform | None) -> None:
    error = ended(code, b"", b"", source="nvidia_smi", where=where)
    assert error.reason == reason
    assert str(error).startswith("nvidia_smi")


@given(st.integers(-64, 255), st.binary(max_size=600), st.binary(max_size=100))
def test_every_end_has_a_reason_of_the_set_and_words_that_can_be_shown(
    code: int, stdout: bytes, stderr: bytes
) -> None:
    for where in (None, *Platform):
        error = ended(code, stdout, stderr, source="nvidia_smi_exe", where=where)
        assert error.reason in smi_exit.REASONS
        assert escaped(str(error)) == str(error)
        assert len(str(error)) < 300


def test_windows_and_wsl_are_spoken_of_only_where_they_are() -> None:
    for code in smi_exit.EXITS:
        fix = ended(code, b"", b"", source="s", where=Platform.LINUX).fix or ""
        assert "wsl" not in fix.lower()
        assert "Windows" not in fix


def test_what_it_said_is_quoted_from_its_first_line() -> None:
    said = b"NVIDIA-SMI has failed because it couldn't communicate\x1b[2J with the driver.\nMore."
    error = ended(9, said, b"", source="nvidia_smi", where=Platform.WSL2)
    assert "couldn't communicate\\x1b[2J with the driver." in str(error)
    assert "More." not in str(error)
    assert "wsl --shutdown" in str(error.fix)


def test_windows_own_words_are_read_through_their_encoding() -> None:
    said = "Zugriff verweigert\r\n".encode("utf-16-le")
    error = ended(4, b"", said, source="nvidia_smi_exe", where=None)
    assert '"Zugriff verweigert"' in str(error)


def test_wsls_starter_of_windows_programs_is_told_from_the_program() -> None:
    assert ended(1, b"", b"", source="s", where=None).reason == "interop_failed"
    assert ended(1, b"", b"", source="s", where=Platform.LINUX).reason == "failed"


@pytest.mark.parametrize(
    ("said", "reason"),
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
def test_where_the_code_tells_nothing_the_words_do(
    said: str, reason: str, code: int, where: Platform | None
) -> None:
    found = ended(code, f"{said}\nMore.\n".encode(), b"", source="s", where=where).reason
    if (reason, code, where) == ("failed", 1, None):
        reason = "interop_failed"
    assert found.startswith(reason)


def test_a_code_that_tells_is_believed_before_the_words() -> None:
    assert ended(12, b"GPU is lost", b"", source="s", where=None).reason == "library_missing"


CUDA = Failure(Reason.NO_DEVICE, "cuInit: no device")


def test_what_answers_in_windows_alone_shows_that_wsl_is_broken() -> None:
    found = tie("", "driver_not_loaded", CUDA)
    assert found is not None
    assert found.reason == "wsl_side"
    assert "NVML (driver_not_loaded)" in found.detail
    assert "wsl --shutdown" in (found.fix or "")


@pytest.mark.parametrize("reason", sorted(smi_exit.ITS_DRIVERS))
def test_what_fails_in_windows_too_is_not_wsl(reason: str) -> None:
    found = tie(reason, "failed", CUDA)
    assert found is not None
    assert found.reason == "windows_side"
    assert found.fix is not None
    assert "--shutdown" not in found.fix


@pytest.mark.parametrize(
    ("windows_said", "nvml", "cuda"),
    [
        ("", "", CUDA),  # NVML answers
        ("", "failed", None),  # CUDA answers
        ("", None, CUDA),  # NVML was not asked
        (None, "failed", CUDA),
        ("absent", "failed", CUDA),
        ("hung", "failed", CUDA),
        ("interop_off", "failed", CUDA),
    ],
)
def test_where_windows_or_wsl_says_too_little_nothing_is_decided(
    windows_said: str | None, nvml: str | None, cuda: Failure | None
) -> None:
    assert tie(windows_said, nvml, cuda) is None


def after(*answers: Answer, cuda: Failure | None = CUDA) -> Health:
    """How NVML is when this was said, in this order."""
    seen = Snapshot("1", 0.0, inventory=Inventory(failure=cuda), library_configured=True)
    for answer in answers:
        seen = fold(SourceAnswered(answer, 0.0), seen)
    return seen.health["nvml"]


SILENT = Answer("nvml", 5, 0.0, 100.0, reason="driver_not_loaded", detail="NVML: 9", fix="f")
WINDOWS = Answer(
    "nvidia_smi_exe", 4, 0.0, 101.0, (Reading(0, "name", "RTX", "nvidia_smi_exe"),), holds_s=330
)


def test_the_health_of_nvml_says_who_is_to_blame() -> None:
    found = after(SILENT, WINDOWS)
    assert found.reason == "driver_not_loaded"
    assert str(found.detail).startswith("NVML: 9; neither NVML (driver_not_loaded) nor CUDA")
    assert "--update" in str(found.fix)


@pytest.mark.parametrize("reason", ["blocked_by_the_operating_system", "driver_mismatch"])
def test_who_knows_what_a_restart_of_wsl_does_not_mend_keeps_his_fix(reason: str) -> None:
    found = after(replace(SILENT, reason=reason), WINDOWS)
    assert (found.reason, found.fix) == (reason, "f")
    assert "Windows' own nvidia-smi.exe does" in (found.detail or "")


@pytest.mark.parametrize(
    "answers",
    [
        (SILENT,),
        (WINDOWS, replace(SILENT, taken_mono_s=500.0)),  # what Windows said is too old by then
        (SILENT, replace(WINDOWS, readings=(), reason="hung", detail="d")),
        (
            replace(WINDOWS, readings=(), reason="no_device", detail="d"),
            replace(SILENT, taken_mono_s=500.0),
        ),
    ],
)
def test_without_news_from_windows_nobody_is_blamed(answers: tuple[Answer, ...]) -> None:
    found = after(*answers)
    assert (found.detail, found.fix) == ("NVML: 9", "f")


def test_where_cuda_works_nobody_is_blamed() -> None:
    assert after(SILENT, WINDOWS, cuda=None).fix == "f"
