"""Check of a machine against the catalogue of known faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gpud.doctor.checks.known_issues import known_issues
from tests.doctor.trees import ADVICE, CONTAINER, LINUX, OK, PROBLEM, UNKNOWN, WSL2, expect, machine

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.doctor.finding import Verdict

NEW = WSL2 | {"/proc/sys/kernel/osrelease": "6.6.114.1-microsoft-standard-WSL2\n"}
SOURCE = "https://example.org/wsl-1"
FAULT = {
    "id": "wsl-1",
    "state": "applies",
    "title": "GPU work hangs",
    "fix": "wsl --update",
    "source": SOURCE,
    "confidence": "several_reports",
}


def agent(*faults: dict[str, Any]) -> dict[str, Any]:
    return {"started_s": 1.0, "known_faults": [FAULT | fault for fault in faults]}


def test_an_entry_is_named_with_how_sure_it_is_its_source_and_what_to_do(tmp_path: Path) -> None:
    finding = known_issues.look(machine(tmp_path, WSL2))  # kernel 5.15.167.4
    source = "https://github.com/microsoft/WSL/issues/12476"
    expect(finding, ADVICE, "wsl-12476-hmgrtable-panic", "confirmed by its maintainers", source)
    assert finding.fix == "Run `wsl --update`: the kernel has it mended from 6.6.84.1 on"


@pytest.mark.parametrize(
    ("fault", "verdict", "words"),
    [
        ({}, ADVICE, ("wsl-1: GPU work hangs", "reported by several people", SOURCE)),
        ({"state": "reported"}, ADVICE, ("reported on these versions", "is not said")),
        ({"state": "seen", "evidence": "dxgk: -75"}, ADVICE, ("wsl-1", "seen here: dxgk: -75")),
        (
            {"state": "seen", "evidence": "dxgk: -75", "alarm": True},
            PROBLEM,
            ("wsl-1", "seen here with a failed or stalled GPU call: dxgk: -75", SOURCE),
        ),
    ],
)
def test_what_the_running_agent_knows_is_said_with_its_evidence(
    tmp_path: Path, fault: dict[str, Any], verdict: Verdict, words: tuple[str, ...]
) -> None:
    finding = known_issues.look(machine(tmp_path, WSL2, agent=agent(fault)))
    expect(finding, verdict, *words)
    assert finding.fix == "wsl --update"
    assert "wsl-12476" not in finding.evidence  # the agent knows better than the kernel alone


def test_a_fault_that_was_seen_comes_before_one_of_the_versions(tmp_path: Path) -> None:
    seen = {"id": "wsl-2", "state": "seen", "alarm": True, "fix": None}
    finding = known_issues.look(machine(tmp_path, WSL2, agent=agent({}, seen)))
    expect(finding, PROBLEM, "wsl-1")
    assert finding.evidence.startswith("wsl-2: ")
    assert finding.fix == "none is known; wsl --update"


@pytest.mark.parametrize(
    ("files", "document", "verdict", "words"),
    [
        (NEW, None, UNKNOWN, ("none of ", "WSL's version, Windows' build, the driver and the GPU")),
        (LINUX, None, UNKNOWN, ("alone; the driver and the GPU are not known",)),
        (LINUX, agent(), OK, ("versions alone, and none was seen here",)),
        (CONTAINER, None, OK, ("is about WSL 2 and plain Linux",)),
    ],
)
def test_what_matches_nothing_is_well_and_what_was_not_known_is_said(
    tmp_path: Path,
    files: dict[str, str],
    document: dict[str, Any] | None,
    verdict: Verdict,
    words: tuple[str, ...],
) -> None:
    expect(known_issues.look(machine(tmp_path, files, agent=document)), verdict, *words)
