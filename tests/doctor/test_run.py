"""The runner: a check that hangs, crashes, throws or does not load is one line, and only that."""

from __future__ import annotations

import importlib
import json
import sys
from typing import TYPE_CHECKING

import pytest

from gpud.doctor import run, show
from gpud.doctor.finding import Finding, Verdict, advice, combined, ok, problem
from tests.doctor.trees import LINUX, machine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

PACKAGE = "checks_of_a_test"
HEAD = "from gpud.doctor.finding import ok\nTITLE = '{0}'\nORDER = {1}\nSUMMARY = 's'\n"
CHECKS = {
    "well": "def look(machine):\n    return ok('fine')\n",
    "hangs": "import os\ndef look(machine):\n    os.read(os.pipe()[0], 1)\n",
    "crashes": "import os\ndef look(machine):\n    os.kill(os.getpid(), 9)\n",
    "throws": "def look(machine):\n    raise RuntimeError('not \\x1b[31m today')\n",
    "talks": "import os\ndef look(machine):\n    os.write(1, b'x')\n    return ok('x' * 9999)\n",
    "odd": "def look(machine):\n    return ok('name \\udcff')\n",
    "wrong": "def look(machine):\n    return 3\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    folder = tmp_path / PACKAGE
    folder.mkdir()
    (folder / "__init__.py").touch()
    for order, (name, text) in enumerate(CHECKS.items()):
        (folder / f"{name}.py").write_text(HEAD.format(name.upper(), order) + text)
    (folder / "broken.py").write_text("import a_module_that_nobody_has\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module(PACKAGE)
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def test_each_failing_check_is_one_line_and_the_others_go_on(
    package: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = run.everything(machine(tmp_path / "tree", LINUX), package=package, deadline_s=3.0)
    assert [line.name for line in lines] == [*CHECKS, "broken"]
    found = {line.name: line.finding for line in lines}
    assert found["well"] == ok("fine")
    assert found["hangs"] == Finding(Verdict.UNKNOWN, "no answer within 3 s")
    assert found["crashes"].evidence == "the check ended with signal 9"
    assert "RuntimeError: not" in found["throws"].evidence
    assert "a_module_that_nobody_has" in found["broken"].evidence
    assert len(found["talks"].evidence) == run.LONGEST
    assert found["odd"].evidence == "name ?"
    assert found["wrong"].verdict is Verdict.UNKNOWN
    assert capfd.readouterr().out == ""


def test_what_a_check_quotes_reaches_no_terminal_unescaped() -> None:
    lines = [run.Line("a", "A", problem("red \x1b[31m\nsecond line", "do \x07"))]
    assert "\n".join(show.text(lines)).count("\x1b") == 0
    assert show.text(lines)[:2] == [
        r"PROBLEM  A  red \x1b[31m\x0asecond line",
        r"            fix: do \x07",
    ]


def test_lines_are_aligned_and_counted() -> None:
    lines = [
        run.Line("a", "A", ok("fine")),
        run.Line("b", "Longer", advice("so so", "better")),
    ]
    assert show.text(lines) == [
        "ok       A       fine",
        "advice   Longer  so so",
        "                 fix: better",
        "",
        "0 problems, 1 advice, 1 ok, 0 unknown",
    ]


def test_the_document_says_everything_and_is_plain_json() -> None:
    lines = [run.Line("a", "A", ok("fine")), run.Line("b", "B", problem("bad", "mend"))]
    document = json.loads(json.dumps(show.document(lines)))
    assert document["schema_version"] == 1
    assert document["state"] == "problem"
    assert document["counts"] == {"ok": 1, "unknown": 0, "advice": 0, "problem": 1}
    assert document["checks"][1] == {
        "name": "b",
        "title": "B",
        "verdict": "problem",
        "evidence": "bad",
        "fix": "mend",
    }


def test_findings_of_one_check_become_one_with_the_worst_first() -> None:
    both = combined(ok("fine"), None, problem("bad", "mend"), advice("so so", "mend"))
    assert both == problem("bad; so so; fine", "mend")
    with pytest.raises(ValueError, match="no finding"):
        combined(None)
