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
    assert discovery.names(package) == (
        "angry",
        "another",
        "empty",
        "good",
        "mistyped",
        "needy",
        "unfinished",
    )
    assert not [name for name in sys.modules if name.startswith(f"{PACKAGE}.")]


def test_one_broken_plug_in_does_not_keep_the_others_from_working(package: ModuleType) -> None:
    usable, refused = discovery.modules(package, ("SPEC", "run"))
    assert {name: module.run() for name, module in usable.items()} == {
        "good": "good",
        "another": "another",
    }
    assert set(usable) | set(refused) == set(discovery.names(package))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("unfinished", "does not define run"),
        ("empty", "does not define SPEC, run"),
        ("angry", "RuntimeError: not today"),
        ("needy", "ModuleNotFoundError: No module named 'a_module_that_nobody_has'"),
    ],
)
def test_a_refused_plug_in_says_why(package: ModuleType, name: str, reason: str) -> None:
    assert discovery.modules(package, ("SPEC", "run"))[1][name] == reason


def test_a_mistyped_plug_in_says_where(package: ModuleType) -> None:
    reason = discovery.modules(package, ("SPEC", "run"))[1]["mistyped"]
    assert reason.startswith("SyntaxError: ")
    assert "mistyped.py, line 1" in reason


def test_without_demands_whatever_loads_is_usable(package: ModuleType) -> None:
    assert list(discovery.modules(package)[0]) == ["another", "empty", "good", "unfinished"]


def test_an_order_to_stop_is_not_a_broken_plug_in(package: ModuleType, tmp_path: Path) -> None:
    (tmp_path / PACKAGE / "good.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        discovery.modules(package)


def test_one_plug_in_is_loaded_without_the_others(package: ModuleType) -> None:
    found = discovery.module(package, "good", ("SPEC", "run"))
    assert not isinstance(found, str)
    assert found.run() == "good"
    assert f"{PACKAGE}.another" not in sys.modules


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("unfinished", "does not define run"),
        ("angry", "RuntimeError: not today"),
        ("_shared", "there is no such plug-in"),
        ("os", "there is no such plug-in"),
    ],
)
def test_one_plug_in_that_cannot_be_used_is_a_reason(
    package: ModuleType, name: str, why: str
) -> None:
    assert discovery.module(package, name, ("SPEC", "run")) == why
