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
    def told(self) -> str:
        """How the linter tells of this one, and of nothing that it only makes possible."""
        name = "gpud." + self.module.removesuffix(".py").replace("/", ".")
        imported = self.line.removeprefix("import ")
        said = re.escape(name if self.unlisted else f"{name} -> {imported} (l.")
        return rf"^- +{said}{'$' if self.unlisted else ''}"


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
    Violation("core/planted.py", "import gpud.agent"),
    Violation("discovery.py", "import gpud.cli"),
    Violation("agent/planted.py", "import gpud.cli"),
    Violation("core/planted.py", "import os"),
    Violation("core/planted.py", "import time"),
    Violation("core/planted.py", "import socket"),
    Violation("core/planted.py", "import sqlite3"),
    Violation("core/planted.py", "import threading"),
    Violation("child/planted.py", "import msgspec"),
    Violation("child/planted.py", "import structlog"),
    Violation("root/planted.py", "import numpy"),
    Violation("root/planted.py", "import starlette"),
    Violation("root/planted.py", "import rich"),
    Violation("agent/planted.py", "import docker"),
    Violation("agent/planted.py", "import numpy"),
    Violation("agent/planted.py", "import pynvml"),
    Violation("agent/telemetry/sources/planted.py", "import gpud.agent.telemetry.nvml"),
    Violation("agent/telemetry/nvml/planted.py", "import msgspec"),
    Violation("agent/alerts/sinks/planted.py", "import apprise"),
    Violation("agent/alerts/sinks/notice.py", "import gpud.agent.alerts.sinks.log"),
    Violation("agent/history/store.py", "import gpud.agent.compose"),
    Violation("agent/history/store.py", "import gpud.agent.serve"),
    Violation("planted.py", "import gpud.core", unlisted=True),
    Violation("show/figures.py", "import gpud.show.gpus"),
    Violation("show/model.py", "import gpud.show.text"),
    Violation("agent/serve/page/html.py", "import os"),
    Violation("agent/serve/page/html.py", "import starlette"),
    Violation("show/planted.py", "import subprocess"),
    Violation("show/planted.py", "import rich"),
    Violation("agent/serve/api/documents.py", "import gpud.agent.serve.api.answers"),
    Violation("agent/serve/api/answers.py", "import gpud.agent.serve.api.history"),
    Violation("agent/serve/http/response.py", "import gpud.agent.serve.http.access"),
]


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=tree,
        env=dict(os.environ, PYTHONPATH=str(tree), PYTHONDONTWRITEBYTECODE="1", COLUMNS="300"),
        capture_output=True,
        text=True,
        check=False,
    )


def copied(folder: Path) -> Path:
    """Copy the package and its contracts, to plant violations in."""
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copytree(ROOT / "gpud", folder / "gpud", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the linter says of all violations at once: one look at the package takes seconds."""
    tree = copied(tmp_path_factory.mktemp("planted"))
    for violation in VIOLATIONS:
        with (tree / "gpud" / violation.module).open("a") as text:
            text.write(f"\n{violation.line}\n")
    linted = lint(tree)
    assert linted.returncode == 1, linted.stdout + linted.stderr
    return linted.stdout.partition("Broken contracts")[2]


def test_every_contract_is_kept() -> None:
    linted = lint(ROOT)
    assert linted.returncode == 0, linted.stdout
    assert " 0 broken" in linted.stdout


def test_an_untouched_copy_is_judged_like_the_original(tmp_path: Path) -> None:
    linted = lint(copied(tmp_path))
    assert linted.returncode == 0
    assert not any(re.search(one.told, linted.stdout, re.MULTILINE) for one in VIOLATIONS)


@pytest.mark.parametrize("violation", VIOLATIONS, ids=str)
def test_a_planted_violation_is_caught(violation: Violation, planted: str) -> None:
    assert re.search(violation.told, planted, re.MULTILINE)


FOLDERS = ("child/probes", "doctor/checks")


def test_plug_ins_of_one_folder_know_nothing_of_each_other(tmp_path: Path) -> None:
    tree = copied(tmp_path)
    packages = {folder: "gpud." + folder.replace("/", ".") for folder in FOLDERS}
    for folder, package in packages.items():
        for name, line in (
            ("planted_one", f"import {package}.planted_other"),
            ("planted_other", ""),
        ):
            (tree / "gpud" / folder / f"{name}.py").write_text(f"{line}\n")
    linted = lint(tree)
    assert linted.returncode == 1, linted.stdout
    for package in packages.values():
        assert f"{package}.planted_one -> {package}.planted_other" in linted.stdout
