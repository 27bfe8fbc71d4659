"""Who may import whom: the contracts hold, and each of them would notice a violation."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


UNLISTED = "planted.py"
"""A module that itself must not be, because no layer names it."""
VIOLATIONS = [
    ("agent/planted.py", "gpud.root"),
    ("agent/planted.py", "gpud.child"),
    ("root/planted.py", "gpud.agent"),
    ("root/planted.py", "gpud.child"),
    ("child/planted.py", "gpud.agent"),
    ("child/planted.py", "gpud.root"),
    ("doctor/planted.py", "gpud.agent"),
    ("doctor/planted.py", "gpud.root"),
    ("doctor/planted.py", "gpud.child"),
    ("agent/planted.py", "gpud.doctor"),
    ("doctor/planted.py", "pynvml"),
    ("core/planted.py", "gpud.discovery"),
    ("discovery.py", "gpud.cli"),
    ("agent/planted.py", "gpud.cli"),
    ("core/planted.py", "os"),
    ("child/planted.py", "msgspec"),
    ("root/planted.py", "numpy"),
    ("agent/planted.py", "numpy"),
    ("agent/planted.py", "pynvml"),
    ("agent/telemetry/sources/planted.py", "gpud.agent.telemetry.nvml"),
    ("agent/telemetry/nvml/planted.py", "msgspec"),
    ("agent/alerts/sinks/planted.py", "apprise"),
    ("agent/alerts/sinks/notice.py", "gpud.agent.alerts.sinks.log"),
    ("agent/history/store.py", "gpud.agent.compose"),
    (UNLISTED, "gpud.core"),
    ("show/figures.py", "gpud.show.gpus"),
    ("show/model.py", "gpud.show.text"),
    ("agent/serve/page/html.py", "os"),
    ("show/planted.py", "subprocess"),
    ("agent/serve/api/documents.py", "gpud.agent.serve.api.answers"),
    ("agent/serve/http/response.py", "gpud.agent.serve.http.access"),
]
"""A module, and what it must not import: appended to it, or a module made of it."""
PLUG_INS = ("child/probes", "doctor/checks")
"""Folders in which a module that imports its neighbour is planted too."""


def report(module: str, imported: str) -> str:
    """How the linter reports this import, and nothing that it only makes possible."""
    name = "gpud." + module.removesuffix(".py").replace("/", ".")
    line = name if module == UNLISTED else f"{name} -> {imported} (l."
    return rf"^- +{re.escape(line)}{'$' if module == UNLISTED else ''}"


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
    for module, imported in VIOLATIONS:
        with (tree / "gpud" / module).open("a") as text:
            text.write(f"\nimport {imported}\n")
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
    assert not any(re.search(report(*each), linted.stdout, re.MULTILINE) for each in VIOLATIONS)


@pytest.mark.parametrize(("module", "imported"), VIOLATIONS)
def test_planted_violation_is_caught(module: str, imported: str, planted: str) -> None:
    assert re.search(report(module, imported), planted, re.MULTILINE)


@pytest.mark.parametrize("folder", PLUG_INS)
def test_plug_in_that_imports_its_neighbour_is_caught(folder: str, planted: str) -> None:
    package = f"gpud.{folder.replace('/', '.')}"
    assert f"{package}.planted_one -> {package}.planted_other" in planted
