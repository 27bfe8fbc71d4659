from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.core.advice import Platform, Situation, words
from gpud.core.report import ToolkitState
from gpud.core.sample import Reason
from gpud.core.toolkit import LONGEST_DETAIL, PROGRAMS, RULES, ToolkitFacts, explained, judged

HOOK = ("nvidia-container-runtime-hook",)
ALL = PROGRAMS
SPEC = ("/etc/cdi/nvidia.yaml",)
DIRS = ("/etc/cdi", "/var/run/cdi")
DOCUMENT = Path(__file__).resolve().parent.parent.parent / "docs/containers.md"

RUNC = (
    "failed to create shim task: OCI runtime create failed: runc create failed: unable to start "
    "container process: error during container init: error running hook #0: error running hook: "
    "exit status 1, stdout: , stderr: {}: unknown"
)
"""As dockerd 20.10 and runc 1.1 wrap what the hook of the toolkit says."""
CLI = "nvidia-container-cli: "


@pytest.mark.parametrize(
    ("facts", "state", "reason"),
    [
        (ToolkitFacts(runtimes=("runc",)), ToolkitState.NONE, "not_installed"),
        (ToolkitFacts(runtimes=("runc",), programs=HOOK), ToolkitState.RUNTIME, None),
        (ToolkitFacts(cdi_dirs=DIRS, cdi_specs=SPEC), ToolkitState.CDI, None),
        (ToolkitFacts(cdi_dirs=DIRS, cdi_devices=("nvidia.com/gpu=0",)), ToolkitState.CDI, None),
        (ToolkitFacts(programs=ALL, cdi_dirs=DIRS, cdi_specs=SPEC), ToolkitState.BOTH, None),
        (
            ToolkitFacts("28.3.2", programs=("nvidia-cdi-hook",), cdi_dirs=DIRS, cdi_specs=SPEC),
            ToolkitState.BOTH,
            None,
        ),
        (
            ToolkitFacts("27.5.1", programs=("nvidia-cdi-hook",), cdi_dirs=DIRS, cdi_specs=SPEC),
            ToolkitState.CDI,
            None,
        ),
        (
            ToolkitFacts(runtimes=("nvidia", "runc"), configured=("nvidia",)),
            ToolkitState.BROKEN,
            "runtime_program_missing",
        ),
        (
            ToolkitFacts(
                runtimes=("runc",), configured=("nvidia",), programs=("nvidia-container-runtime",)
            ),
            ToolkitState.BROKEN,
            "not_reloaded",
        ),
        (
            ToolkitFacts(
                runtimes=("nvidia", "runc"),
                configured=("nvidia",),
                programs=("nvidia-container-runtime",),
            ),
            ToolkitState.BROKEN,
            "hook_missing",
        ),
        (ToolkitFacts(cdi_dirs=(), cdi_specs=SPEC), ToolkitState.BROKEN, "cdi_off"),
        (ToolkitFacts(programs=("nvidia-ctk",)), ToolkitState.BROKEN, "not_configured"),
        (ToolkitFacts(programs=ALL, desktop=True), ToolkitState.UNKNOWN, "docker_desktop"),
    ],
)
def test_the_toolkit_is_judged_by_what_docker_needs_of_it(
    facts: ToolkitFacts, state: ToolkitState, reason: str | None
) -> None:
    said = judged(facts)
    assert (said.state, said.reason) == (state, reason)


def test_whatever_is_not_well_has_its_words_and_a_fix() -> None:
    for programs, specs, dirs, configured in product(
        ((), ("nvidia-ctk",), HOOK, ALL), ((), SPEC), (None, (), DIRS), ((), ("nvidia",))
    ):
        facts = ToolkitFacts(
            runtimes=("runc",),
            programs=programs,
            cdi_specs=specs,
            cdi_dirs=dirs,
            configured=configured,
        )
        said = judged(facts)
        well = said.state in {ToolkitState.RUNTIME, ToolkitState.CDI, ToolkitState.BOTH}
        assert well == (said.reason is None) == (said.detail is None) == (said.fix is None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('could not select device driver "" with capabilities: [[gpu]]', Reason.TOOLKIT_MISSING),
        (
            'could not select device driver "nvidia" with capabilities: [[gpu]]',
            Reason.TOOLKIT_MISSING,
        ),
        ("unknown or invalid runtime name: nvidia", Reason.RUNTIME_UNKNOWN),
        ("Unknown runtime specified nvidia", Reason.RUNTIME_UNKNOWN),
        (
            f"{CLI}initialization error: WSL environment detected but no adapters were found",
            Reason.NO_DEVICE,
        ),
        (
            f"{CLI}initialization error: nvml error: driver/library version mismatch",
            Reason.DRIVER_MISMATCH,
        ),
        (
            (
                f"{CLI}initialization error: load library failed: libnvidia-ml.so.1: cannot open "
                "shared object file: no such file or directory"
            ),
            Reason.LIBRARY_MISSING,
        ),
        (f"{CLI}initialization error: nvml error: driver not loaded", Reason.INIT_FAILED),
        (
            (
                f"{CLI}requirement error: unsatisfied condition: cuda>=12.6, please update your "
                "driver to a newer version, or use an earlier cuda container"
            ),
            Reason.REQUIREMENT_UNMET,
        ),
        (
            (
                f"{CLI}mount error: file creation failed: /var/lib/docker/overlay2/8a/merged/run/"
                "nvidia-persistenced/socket: no such device or address"
            ),
            Reason.MOUNT_FAILED,
        ),
        (
            f"{CLI}mount error: stat failed: /usr/lib/wsl/drivers: permission denied",
            Reason.MOUNT_FAILED,
        ),
        (f"{CLI}ldcache error: process /sbin/ldconfig failed", Reason.TOOLKIT_FAILED),
        (
            (
                "could not apply required modification to OCI specification: error modifying "
                "OCI spec: failed to inject CDI devices: unresolvable CDI devices "
                "nvidia.com/gpu=all"
            ),
            Reason.CDI_UNRESOLVED,
        ),
        (
            "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all",
            Reason.CDI_UNRESOLVED,
        ),
        (
            "CDI device injection failed: failed to stat CDI host device /dev/dxg",
            Reason.CDI_FAILED,
        ),
        ("exit code 1: Error: only 0 Devices available, 1 requested.  Exiting.", Reason.NO_DEVICE),
        (
            "CUDA error at bodysystemcuda_impl.h:159 code=35(cudaErrorInsufficientDriver)",
            Reason.DRIVER_MISMATCH,
        ),
        ("no space left on device", Reason.DOCKER_ERROR),
    ],
)
def test_dockers_own_error_is_recognised_bare_and_wrapped(text: str, reason: Reason) -> None:
    for shown in (text, RUNC.format(text), f"Auto-detected mode as 'legacy'\n{text}\n"):
        said = explained(shown, Reason.DOCKER_ERROR)
        assert said.reason is reason
        assert " ".join(text.split()) in said.detail
        assert (said.advice is None) == (reason is Reason.DOCKER_ERROR)


def test_what_counts_is_kept_of_a_long_chain_of_wrapped_errors() -> None:
    error = f"{CLI}requirement error: unsatisfied condition: cuda>=13.0"
    said = explained("wrapped: " * 500 + error + " and more" * 500, Reason.DOCKER_ERROR)
    assert said.reason is Reason.REQUIREMENT_UNMET
    assert error in said.detail


@given(st.text())
def test_any_text_is_explained_in_bounded_words(text: str) -> None:
    said = explained(text, Reason.CONTAINER_FAILED)
    assert 0 < len(said.detail) <= LONGEST_DETAIL + 200


def test_the_table_of_errors_is_the_one_in_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", DOCUMENT.read_text(), re.MULTILINE)
    assert [row for row in rows if row[0] in set(Reason)] == [
        (rule.reason, rule.meaning, in_a_table(rule.fix)) for rule in RULES
    ]


def in_a_table(fix: str) -> str:
    if not isinstance(fix, Situation):
        return fix
    said = f"WSL2: {words(fix, Platform.WSL2)}. Linux: {words(fix, Platform.LINUX)}"
    return said.replace("|", "\\|")


def test_every_state_and_reason_of_the_toolkit_is_in_the_document() -> None:
    text = DOCUMENT.read_text()
    source = Path(judged.__code__.co_filename).read_text()
    reasons = set(re.findall(r'"([a-z_]+)",\n', source)) | {"not_reloaded", "docker_desktop"}
    known = {r for r in reasons if f"`{r}`" in text}
    assert {f"`{state}`" for state in ToolkitState} <= set(re.findall(r"`\w+`", text))
    assert known == reasons
