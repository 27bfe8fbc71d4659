"""Kernel logs of generated machines, from the records to the faults that the agent shows."""

from __future__ import annotations

import re
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from gpud.known_issues.catalogue import TextOrigin, catalogue
from gpud.known_issues.matching import common_regexes, patterns
from gpud.root.kernel_log import KernelLog
from tests import snapshots
from tests.agent.state.test_known_faults import HUNG, Machine
from tests.events import post, root_read
from tests.kmsg import Kernel
from tests.known_issues.frames import BOOT, HEALTHY
from tests.known_issues.test_catalogue import LINES
from tests.known_issues.test_matching import ALL, ENTRIES, matching

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from gpud.core.sample import Failure
    from gpud.known_issues.catalogue import KnownIssue
    from gpud.known_issues.matching import MachineFacts

PATTERNS = patterns(catalogue(), TextOrigin.KERNEL_LOG)
COMMON = common_regexes(catalogue())
TELLING = sorted(
    name for name, those in PATTERNS.items() if not all(each.pattern in COMMON for each in those)
)
"""Entries with a line that no healthy machine writes."""
UNTELLING = sorted(set(PATTERNS) - set(TELLING))


def seen(
    folder: Path, facts: MachineFacts, lines: Iterable[str], failure: Failure | None = None
) -> set[str]:
    """Return the faults seen on a machine that writes these lines and then runs a probe."""
    with closing(Kernel(folder / "sysroot")) as kernel:
        for line in lines:
            kernel.says(line, at_s=60.0)
        log = KernelLog(str(kernel.sysroot), boot_s=lambda: 65.0)
        log.step(100.0)
        report = log.report()
        log.close()
    assert sum(report.counts.values()) or report.traces, "the log was read"
    wsl2 = facts.platform == "wsl2"
    known = {
        "wsl": "2" if wsl2 else "",
        "kernel": f"{facts.kernel or '6.1.0'}-{'microsoft-standard-WSL2' if wsl2 else 'generic'}",
        "wsl_version": facts.wsl_version or "unknown",
        "windows_build": facts.windows_build or "unknown",
    }
    machine = Machine(facts.compute_capability or "8.9", facts.driver, **known)
    post(machine.board, root_read(structs.replace(snapshots.ROOT, kernel_log=report), None, 0.0))
    machine.run(failure, time.time())
    return {name for name, state in machine.states().items() if state == "seen"}


def lines_of(entry: KnownIssue, *, neighbour: bool = False) -> list[str]:
    """Return lines that each telling pattern of an entry matches, or those next to them."""
    return [
        pair[neighbour]
        for regex in PATTERNS[entry.id]
        for pair in LINES[TextOrigin.KERNEL_LOG]
        if regex.search(pair[0]) and not regex.search(pair[1])
    ]


@pytest.mark.parametrize("name", ALL)
def test_log_of_a_healthy_wsl2_shows_no_fault_whatever_the_versions(
    tmp_path: Path, name: str
) -> None:
    facts = structs.replace(matching(ENTRIES[name]), platform="wsl2")
    assert seen(tmp_path, facts, (*BOOT, *HEALTHY, *BOOT)) == set()


@pytest.mark.parametrize("name", TELLING)
def test_line_of_a_fault_is_seen_on_its_machine_and_the_line_next_to_it_is_not(
    tmp_path: Path, name: str
) -> None:
    entry = ENTRIES[name]
    facts = matching(entry)
    read = set() if entry.applies.needs else {name}
    assert seen(tmp_path / "here", facts, (*BOOT, *lines_of(entry))) & {name} == read
    next_to_it = (*BOOT, *lines_of(entry, neighbour=True))
    assert name not in seen(tmp_path / "next", facts, next_to_it)
    elsewhere = structs.replace(facts, platform="linux" if facts.platform == "wsl2" else "wsl2")
    if entry.applies.platform != "any":
        assert name not in seen(tmp_path / "elsewhere", elsewhere, (*BOOT, *lines_of(entry)))


@pytest.mark.parametrize("name", UNTELLING)
def test_log_of_a_healthy_wsl2_shows_a_fault_beside_a_hang_on_the_versions_of_its_report_alone(
    tmp_path: Path, name: str
) -> None:
    entry, log = ENTRIES[name], (*BOOT, *HEALTHY)
    facts = matching(entry)
    assert seen(tmp_path / "reported", facts, log, HUNG) == {name}
    for number, version in enumerate(("kernel", "driver")):
        other = structs.replace(facts, **{version: "999.0"})
        assert seen(tmp_path / str(number), other, log, HUNG) == set(), version


def test_healthy_log_has_a_line_for_each_pattern_that_is_common() -> None:
    log = (*BOOT, *HEALTHY)
    for regex in COMMON:
        assert any(re.search(regex, line) for line in log), regex
