from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpud.core.report import ToolkitState
from gpud.core.toolkit import PROGRAMS, ToolkitFacts, judged

HOOK = ("nvidia-container-runtime-hook",)
ALL = PROGRAMS
SPEC = ("/etc/cdi/nvidia.yaml",)
DIRS = ("/etc/cdi", "/var/run/cdi")
DOCUMENT = Path(__file__).resolve().parent.parent.parent / "docs/containers.md"


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
    result = judged(facts)
    assert (result.state, result.reason) == (state, reason)
    assert (reason is None) == (result.detail is None)
    assert (reason in {None, "docker_desktop"}) == (result.fix is None)


def test_every_state_and_reason_of_the_toolkit_is_in_the_document() -> None:
    text = DOCUMENT.read_text()
    source = Path(judged.__code__.co_filename).read_text()
    reasons = set(re.findall(r'"([a-z_]+)",\n', source)) | {"not_reloaded", "docker_desktop"}
    documented = {r for r in reasons if f"`{r}`" in text}
    assert {f"`{state}`" for state in ToolkitState} <= set(re.findall(r"`\w+`", text))
    assert documented == reasons
