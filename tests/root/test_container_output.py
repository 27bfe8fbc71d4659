"""What NVIDIA's sample prints in a container, and Docker's own errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.core import advice
from gpud.core.advice import Platform, Situation, words
from gpud.core.errors import WireError
from gpud.core.sample import Failure, Reason
from gpud.root.container_output import LONGEST_DETAIL, RULES, explained, parsed

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs/containers.md"
CAPTURES = sorted((ROOT / "tests/captures/nbody").glob("*.txt"))
LAPTOP = (CAPTURES[0].parent / "rtx-a2000-laptop.txt").read_text()

RUNC = (
    "failed to create shim task: OCI runtime create failed: runc create failed: unable to start "
    "container process: error during container init: error running hook #0: error running hook: "
    "exit status 1, stdout: , stderr: {}: unknown"
)
"""As dockerd 20.10 and runc 1.1 wrap what the hook of the toolkit says."""
CLI = "nvidia-container-cli: "


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_what_real_gpus_printed_is_read(path: Path) -> None:
    figure = parsed(path.read_text())
    if path.stem == "rtx-a2000-laptop":  # GFLOP/s and billions there, base units here
        assert figure.flops_per_second == pytest.approx(3.863604e12)
        assert figure.interactions_per_second == pytest.approx(1.9318e11)
        assert (figure.bodies, figure.iterations) == (20480, 10)
        assert figure.compute_capability == "8.6"
    counted = figure.interactions_per_second * 20
    assert figure.flops_per_second == pytest.approx(counted, rel=1e-3)
    assert figure.bodies % 256 == 0
    assert figure.gpu_name in path.read_text()
    assert figure.gpu_index == 0


@pytest.mark.parametrize(
    ("before", "after", "failure"),
    [
        ("3863.604", "9863.604", "contradict"),
        ("193.180", "593.180", "contradict"),
        ("21.712 ms", "0.000 ms", "a figure of nothing"),
        ("= 193.180", "= 0.000", "a figure of nothing"),
        ("at 20 flops", "at 30 flops", "30 flops"),
        ("single-precision", "double-precision", "no line with the flops"),
        ("20480 bodies", "nan bodies", "no line with the time"),
        ("= 193.180 ", "= inf ", "no line with the interactions"),
        ("GPU Device 0", "GPU Device -1", "no line with the device"),
        ("21.712", "9" * 400, "no line with the time"),
        (LAPTOP, LAPTOP * 2, "2 lines"),
        (LAPTOP, LAPTOP + " " * 40_000, "more than 32768"),
    ],
)
def test_what_cannot_be_true_is_refused(before: str, after: str, failure: str) -> None:
    assert before in LAPTOP
    with pytest.raises(WireError, match=failure):
        parsed(LAPTOP.replace(before, after))


@given(st.text() | st.text(alphabet="0123456789.=\n ").map(lambda text: LAPTOP + text))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        figure = parsed(text)
    except WireError as error:
        words = str(error)
    else:
        words = figure.gpu_name
        assert figure.flops_per_second > 0
    assert len(words) < 700


ERRORS = {
    Reason.TOOLKIT_MISSING: (
        'could not select device driver "" with capabilities: [[gpu]]',
        'could not select device driver "nvidia" with capabilities: [[gpu]]',
    ),
    Reason.RUNTIME_UNKNOWN: (
        "unknown or invalid runtime name: nvidia",
        "Unknown runtime specified nvidia",
    ),
    Reason.NO_DEVICE: (
        f"{CLI}initialization error: WSL environment detected but no adapters were found",
        "exit code 1: Error: only 0 Devices available, 1 requested.  Exiting.",
    ),
    Reason.DRIVER_MISMATCH: (
        f"{CLI}initialization error: nvml error: driver/library version mismatch",
        "CUDA error at bodysystemcuda_impl.h:159 code=35(cudaErrorInsufficientDriver)",
    ),
    Reason.LIBRARY_MISSING: (
        (
            f"{CLI}initialization error: load library failed: libnvidia-ml.so.1: cannot open "
            "shared object file: no such file or directory"
        ),
    ),
    Reason.INIT_FAILED: (f"{CLI}initialization error: nvml error: driver not loaded",),
    Reason.REQUIREMENT_UNMET: (
        (
            f"{CLI}requirement error: unsatisfied condition: cuda>=12.6, please update your "
            "driver to a newer version, or use an earlier cuda container"
        ),
    ),
    Reason.MOUNT_FAILED: (
        (
            f"{CLI}mount error: file creation failed: /var/lib/docker/overlay2/8a/merged/run/"
            "nvidia-persistenced/socket: no such device or address"
        ),
        f"{CLI}mount error: stat failed: /usr/lib/wsl/drivers: permission denied",
    ),
    Reason.TOOLKIT_FAILED: (f"{CLI}ldcache error: process /sbin/ldconfig failed",),
    Reason.CDI_UNRESOLVED: (
        (
            "could not apply required modification to OCI specification: error modifying "
            "OCI spec: failed to inject CDI devices: unresolvable CDI devices nvidia.com/gpu=all"
        ),
        "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all",
    ),
    Reason.CDI_FAILED: ("CDI device injection failed: failed to stat CDI host device /dev/dxg",),
    Reason.DOCKER_ERROR: ("no space left on device",),
}


@pytest.mark.parametrize("reason", ERRORS)
def test_dockers_own_error_is_recognised_bare_and_wrapped(reason: Reason) -> None:
    for text in ERRORS[reason]:
        for shown in (text, RUNC.format(text), f"Auto-detected mode as 'legacy'\n{text}\n"):
            failure = explained(shown, Reason.DOCKER_ERROR)
            assert failure.reason is reason, text
            assert " ".join(text.split()) in failure.detail
            assert (failure.advice is None) == (reason is Reason.DOCKER_ERROR)


def test_what_counts_is_kept_of_a_long_chain_of_wrapped_errors() -> None:
    error = f"{CLI}requirement error: unsatisfied condition: cuda>=13.0"
    failure = explained("wrapped: " * 500 + error + " and more" * 500, Reason.DOCKER_ERROR)
    assert failure.reason is Reason.REQUIREMENT_UNMET
    assert error in failure.detail


@given(st.text())
def test_any_text_is_explained_in_bounded_words(text: str) -> None:
    failure = explained(text, Reason.CONTAINER_FAILED)
    assert 0 < len(failure.detail) <= LONGEST_DETAIL + 200


def test_the_table_of_errors_is_the_one_in_the_code() -> None:
    found = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", DOCUMENT.read_text(), re.MULTILINE)
    rows = [row for row in found if row[0] in set(Reason)]
    assert [row[:2] for row in rows] == [(rule.reason, rule.meaning) for rule in RULES]
    for (_, _, short), rule in zip(rows, RULES, strict=True):
        for command in re.findall(r"`(.+?)`", short):
            assert command in both_fixes(rule.fix)


def both_fixes(fix: str | Situation) -> str:
    if not isinstance(fix, Situation):
        return fix
    return f"{words(fix, Platform.WSL2)}. {words(fix, Platform.LINUX)}"


def test_errors_of_the_container_toolkit_are_advised_for_the_platform_too() -> None:
    situations = [rule for rule in RULES if isinstance(rule.fix, Situation)]
    assert situations
    for rule in RULES:
        advised = (
            advice.worded(Failure(rule.reason, "", advice=rule.fix), Platform.LINUX).advice or ""
        )
        if "WSL" not in rule.pattern:  # what only WSL says
            assert "Windows" not in advised
            assert "wsl" not in advised.lower()
