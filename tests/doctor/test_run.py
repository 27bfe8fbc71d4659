"""The runner and the report: a check that hangs, crashes or throws is one line, and only that."""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import TYPE_CHECKING

import pytest

from gpud.core.clock import Instant
from gpud.doctor import machine as machines
from gpud.doctor import run as show
from gpud.doctor.finding import advice, combined, ok, problem
from gpud.doctor.run import LONGEST, CheckResult, run_checks
from gpud.document.status import Status
from tests.doctor.trees import ADVICE, LINUX, OK, PROBLEM, UNKNOWN, machine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

PACKAGE = "checks_of_a_test"
HEAD = "import os\nfrom gpud.doctor.finding import check, ok\n"
CHECK = "@check({0}, 'TITLE', may_block={1})\ndef {2}(machine):\n    {3}\n"
CHECKS = {
    "direct": (False, "return ok(str(os.getpid()))"),
    "forked": (True, "return ok(str(os.getppid()))"),
    "hangs": (True, "os.read(os.pipe()[0], 1)"),
    "crashes": (True, "os.kill(os.getpid(), 9)"),
    "throws": (False, "raise RuntimeError('not \\x1b[31m today')"),
    "throws_in_a_child": (True, "raise RuntimeError('nor tomorrow')"),
    "prints": (True, "os.write(1, b'x'); return ok('x' * 9999)"),
    "odd": (False, "return ok('name \\udcff')"),
    "odd_in_a_child": (True, "return ok('name \\udcff')"),
    "wrong": (True, "return 3"),
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    folder = tmp_path / PACKAGE
    folder.mkdir()
    (folder / "__init__.py").touch()
    checks = enumerate(CHECKS.items())
    lines = [CHECK.format(order, blocks, name, body) for order, (name, (blocks, body)) in checks]
    (folder / "several.py").write_text(HEAD + "".join(lines))
    (folder / "broken.py").write_text("import a_module_that_nobody_has\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module(PACKAGE)
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def test_failing_check_is_a_line_and_the_others_go_on(
    package: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    results = run_checks(machine(tmp_path / "tree", LINUX), package=package, deadline_s=3.0)
    assert [result.name for result in results] == [*CHECKS, "broken"]
    outcome = {result.name: result for result in results}
    assert outcome["direct"].evidence == outcome["forked"].evidence  # the same process
    hung = outcome["hangs"]
    assert (hung.verdict, hung.evidence) == (UNKNOWN, "no answer within 3 s")
    assert outcome["crashes"].evidence == "the check ended with signal 9"
    assert "RuntimeError: not" in outcome["throws"].evidence
    assert "RuntimeError: nor" in outcome["throws_in_a_child"].evidence
    assert "a_module_that_nobody_has" in outcome["broken"].evidence
    assert len(outcome["prints"].evidence) == LONGEST
    assert outcome["odd"].evidence == outcome["odd_in_a_child"].evidence == "name ?"
    assert outcome["wrong"].verdict is UNKNOWN
    assert capfd.readouterr().out == ""


FINE = CheckResult("a", "A", OK, "fine", None)
SO_SO = CheckResult("b", "Longer", ADVICE, "so so", "better")
BAD = CheckResult("c", "C", PROBLEM, "red \x1b[31m\nsecond line", "do \x07")


def test_lines_are_aligned_counted_and_harmless() -> None:
    assert show.lines([FINE, SO_SO, BAD]) == [
        "ok       A       fine",
        "advice   Longer  so so",
        "                 fix: better",
        r"PROBLEM  C       red \x1b[31m\x0asecond line",
        r"                 fix: do \x07",
        "",
        "1 problem, 1 advice, 1 ok, 0 unknown",
    ]


def test_a_terminal_gets_colours_and_lines_that_fit_and_a_program_json() -> None:
    long = CheckResult("a", "A", OK, "word " * 20, None)
    lines = show.lines([long], columns=60, colour=True)
    assert lines[0].startswith("\x1b[32mok     \x1b[0m  A  word")
    assert len(lines[1:-2]) == 2
    assert all(line.startswith(" " * 12 + "word") and len(line) <= 60 for line in lines[1:-2])
    document = json.loads(json.dumps(show.document([FINE, SO_SO, BAD])))
    assert (document["schema_version"], document["state"]) == (1, "problem")
    assert document["counts"] == {"ok": 1, "unknown": 0, "advice": 1, "problem": 1}
    expected = {"name": "b", "title": "Longer", "verdict": "advice"}
    assert document["checks"][1] == expected | {"evidence": "so so", "fix": "better"}


def test_findings_of_a_check_are_combined_with_the_worst_first() -> None:
    both = combined(ok("fine"), None, problem("bad", "mend"), advice("so so", "mend"))
    assert both == problem("bad; so so; fine", "mend")
    with pytest.raises(ValueError, match="no finding"):
        combined(None)


NOW = Instant(time.time(), time.monotonic())
DOCUMENT = {"written_s": NOW.wall_s - 10, "url": "http://x", "added_later": 3}


@pytest.mark.parametrize(
    ("changed", "url"),
    [
        ({}, "http://x"),
        ({"written_s": NOW.wall_s - 61}, ""),
        ({"health": {"cuda": None}}, ""),
        ({"telemetry": {"readings": [None, 3]}}, ""),
    ],
)
def test_only_a_fresh_document_of_the_agent_counts(
    changed: dict[str, object], url: str, tmp_path: Path
) -> None:
    path = tmp_path / "agent.json"
    path.write_text(json.dumps(DOCUMENT | changed))
    assert (machines.agent_status(path, NOW).url or "") == url
    assert machines.agent_status(tmp_path, NOW) == Status()  # a folder
