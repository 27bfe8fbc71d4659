"""Check of the versions of a machine against the catalogue of known faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gpud.doctor.checks.known_issues import known_issues
from tests.doctor.trees import ADVICE, CONTAINER, LINUX, OK, UNKNOWN, WSL2, expect, machine

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.doctor.finding import Verdict

NEW = WSL2 | {"/proc/sys/kernel/osrelease": "6.6.114.1-microsoft-standard-WSL2\n"}


def agent(driver: str, capability: str, **platform: str) -> dict[str, Any]:
    reading = {"field": "driver_version", "source": "nvml", "value": driver}
    device = ("GPU-1", "RTX", "0", capability, 1, 1, 1)
    names = ("uuid", "name", "pci_bus_id", "compute_capability", "sm_count", "l2_bytes")
    described = dict(zip((*names, "memory_total_bytes"), device, strict=True))
    return {
        "started_s": 1.0,
        "platform": platform,
        "telemetry": {"level": "nvml", "readings": [reading]},
        "cuda": {"devices": [{"index": 0, **described}]},
    }


def test_an_entry_is_named_with_how_sure_it_is_its_source_and_what_to_do(tmp_path: Path) -> None:
    finding = known_issues.look(machine(tmp_path, WSL2))  # kernel 5.15.167.4
    source = "https://github.com/microsoft/WSL/issues/12476"
    expect(finding, ADVICE, "wsl-12476-hmgrtable-panic", "confirmed by its maintainers", source)
    assert finding.fix == "WSL kernel 6.6.84.1 or later (wsl --update)"


def test_a_fault_that_was_reported_on_these_versions_is_not_said_to_happen(tmp_path: Path) -> None:
    versions = {"wsl_version": "2.7.14", "windows_build": "10.0.19045.7663"}
    files = NEW | {"/proc/sys/kernel/osrelease": "6.18.33.2-microsoft-standard-WSL2\n"}
    document = agent("616.56", "8.6", **versions)
    finding = known_issues.look(machine(tmp_path, files, agent=document))
    words = ("wsl-41525-bsod-vidmm", "several people on these versions", "is not said")
    expect(finding, ADVICE, *words)


def test_each_gpu_of_a_machine_is_compared(tmp_path: Path) -> None:
    versions = {"wsl_version": "2.7.14", "windows_build": "10.0.19045.7663"}
    files = NEW | {"/proc/sys/kernel/osrelease": "6.18.33.2-microsoft-standard-WSL2\n"}
    document = agent("616.56", "8.9", **versions)
    first = document["cuda"]["devices"][0]
    only_first = known_issues.look(machine(tmp_path / "first", files, agent=document))
    assert "wsl-41525-bsod-vidmm" not in only_first.evidence
    document["cuda"]["devices"].append({**first, "index": 1, "compute_capability": "8.6"})
    both = known_issues.look(machine(tmp_path / "both", files, agent=document))
    expect(both, ADVICE, "wsl-41525-bsod-vidmm")


@pytest.mark.parametrize(
    ("files", "document", "verdict", "words"),
    [
        (NEW, None, UNKNOWN, ("none of 65", "WSL's version, Windows' build, the driver, the GPU")),
        (LINUX, None, UNKNOWN, ("none of 65", "not known here: the driver, the GPU")),
        (LINUX, agent("580.95.05", "8.9"), OK, ("versions alone",)),
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
