"""Who may import whom: the contracts hold, and each of them would notice a violation."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Violation:
    """One import that must not be: ``line`` appended to ``module``, or a module made of it.

    ``unlisted``: it is the module itself that must not be, because no layer names it.
    """

    module: str
    line: str
    unlisted: bool = False

    def __str__(self) -> str:
        return f"{self.module}: {self.line}"

    @property
    def report(self) -> str:
        """How the linter reports this import, and nothing that it only makes possible."""
        name = "gpud." + self.module.removesuffix(".py").replace("/", ".")
        imported = self.line.removeprefix("import ")
        line = re.escape(name if self.unlisted else f"{name} -> {imported} (l.")
        return rf"^- +{line}{'$' if self.unlisted else ''}"


VIOLATIONS = [
    Violation("agent/planted.py", "import gpud.root"),
    Violation("agent/planted.py", "import gpud.child"),
    Violation("root/planted.py", "import gpud.agent"),
    Violation("root/planted.py", "import gpud.child"),
    Violation("child/planted.py", "import gpud.agent"),
    Violation("child/planted.py", "import gpud.root"),
    Violation("doctor/planted.py", "import gpud.agent"),
    Violation("doctor/planted.py", "import gpud.root"),
    Violation("doctor/planted.py", "import gpud.child"),
    Violation("agent/planted.py", "import gpud.doctor"),
    Violation("doctor/planted.py", "import pynvml"),
    Violation("core/planted.py", "import gpud.discovery"),
    Violation("discovery.py", "import gpud.cli"),
    Violation("agent/planted.py", "import gpud.cli"),
    Violation("core/planted.py", "import os"),
    Violation("child/planted.py", "import msgspec"),
    Violation("root/planted.py", "import numpy"),
    Violation("agent/planted.py", "import numpy"),
    Violation("agent/planted.py", "import pynvml"),
    Violation("agent/telemetry/sources/planted.py", "import gpud.agent.telemetry.nvml"),
    Violation("agent/telemetry/nvml/planted.py", "import msgspec"),
    Violation("agent/alerts/sinks/planted.py", "import apprise"),
    Violation("agent/alerts/sinks/notice.py", "import gpud.agent.alerts.sinks.log"),
    Violation("agent/history/store.py", "import gpud.agent.compose"),
    Violation("planted.py", "import gpud.core", unlisted=True),
    Violation("show/figures.py", "import gpud.show.gpus"),
    Violation("show/model.py", "import gpud.show.text"),
    Violation("agent/serve/page/html.py", "import os"),
    Violation("show/planted.py", "import subprocess"),
    Violation("agent/serve/api/documents.py", "import gpud.agent.serve.api.answers"),
    Violation("agent/serve/http/response.py", "import gpud.agent.serve.http.access"),
]


PLUG_INS = ("child/probes", "doctor/checks")
"""Folders in which a module that imports its neighbour is planted too."""


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=tree,
        env=dict(os.environ, PYTHONPATH=str(tree), PYTHONDONTWRITEBYTECODE="1", COLUMNS="300"),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The linter's report of all violations at once: one look at the package takes seconds."""
    tree = tmp_path_factory.mktemp("planted")
    shutil.copy(ROOT / "pyproject.toml", tree)
    shutil.copytree(ROOT / "gpud", tree / "gpud", ignore=shutil.ignore_patterns("__pycache__"))
    for violation in VIOLATIONS:
        with (tree / "gpud" / violation.module).open("a") as text:
            text.write(f"\n{violation.line}\n")
    for folder in PLUG_INS:
        package = f"gpud.{folder.replace('/', '.')}"
        (tree / "gpud" / folder / "planted_one.py").write_text(f"import {package}.planted_other\n")
        (tree / "gpud" / folder / "planted_other.py").touch()
    linted = lint(tree)
    assert linted.returncode == 1, linted.stdout + linted.stderr
    return linted.stdout.partition("Broken contracts")[2]


def test_every_contract_is_kept() -> None:
    linted = lint(ROOT)
    assert linted.returncode == 0, linted.stdout
    assert " 0 broken" in linted.stdout
    assert not any(re.search(each.report, linted.stdout, re.MULTILINE) for each in VIOLATIONS)


@pytest.mark.parametrize("violation", VIOLATIONS, ids=str)
def test_planted_violation_is_caught(violation: Violation, planted: str) -> None:
    assert re.search(violation.report, planted, re.MULTILINE)


@pytest.mark.parametrize("folder", PLUG_INS)
def test_plug_in_that_imports_its_neighbour_is_caught(folder: str, planted: str) -> None:
    package = f"gpud.{folder.replace('/', '.')}"
    assert f"{package}.planted_one -> {package}.planted_other" in planted
