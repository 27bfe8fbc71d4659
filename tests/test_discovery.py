"""A folder is a registry: what loads is used, what does not is told with its reason."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

import pytest

from gpud import discovery

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

PACKAGE = "plugins_of_a_test"
FILES = {
    "__init__": "",
    "good": "SPEC = 1\ndef run(): return 'good'\n",
    "another": "SPEC = 2\ndef run(): return 'another'\n",
    "_shared": "raise RuntimeError('a private module is never imported')",
    "unfinished": "SPEC = 3\n",
    "empty": "",
    "mistyped": "def run(:\n",
    "needy": "import a_module_that_nobody_has\n",
    "angry": "raise RuntimeError('not today')\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    folder = tmp_path / PACKAGE
    folder.mkdir()
    for name, text in FILES.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "notes.txt").write_text("no plug-in")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module(PACKAGE)
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def test_names_are_sorted_and_public_and_nothing_is_imported(package: ModuleType) -> None:
    names = ("angry", "another", "empty", "good", "mistyped", "needy", "unfinished")
    assert discovery.names(package) == names
    assert not [name for name in sys.modules if name.startswith(f"{PACKAGE}.")]


def test_broken_plug_in_does_not_keep_the_others_from_working(package: ModuleType) -> None:
    usable, refused = discovery.modules(package, ("SPEC", "run"))
    results = {name: module.run() for name, module in usable.items()}
    assert results == {"good": "good", "another": "another"}
    assert set(usable) | set(refused) == set(discovery.names(package))
    assert "mistyped.py, line 1" in refused["mistyped"]
    assert list(discovery.modules(package)[0]) == ["another", "empty", "good", "unfinished"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("unfinished", "does not define run"),
        ("empty", "does not define SPEC, run"),
        ("angry", "RuntimeError: not today"),
        ("needy", "ModuleNotFoundError: No module named 'a_module_that_nobody_has'"),
    ],
)
def test_refused_plug_in_has_a_reason(package: ModuleType, name: str, reason: str) -> None:
    assert discovery.module(package, name, ("SPEC", "run")) == reason
    assert f"{PACKAGE}.good" not in sys.modules  # one is loaded without the others
    refused = discovery.modules(package, ("SPEC", "run"))[1]
    assert refused.get(name, reason) == reason


def test_order_to_stop_is_not_a_broken_plug_in(package: ModuleType, tmp_path: Path) -> None:
    (tmp_path / PACKAGE / "good.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        discovery.modules(package)
