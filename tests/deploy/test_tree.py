"""The new tree is tried before it takes the place of the old one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpud.install import tree
from gpud.install.console import InstallError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("verb", "document", "code", "fault"),
    [
        ("completion", "", 1, "run"),
        ("config", "", 1, "run"),
        ("config", "{}", 2, "start with these settings"),
        ("config", "{}", 1, ""),
    ],
)
def test_version_that_fails_is_refused_before_it_is_put_in_place(  # noqa: PLR0917  # columns
    verb: str, document: str, code: int, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.write_text(
        f"#!/bin/sh\ncase $* in *' {verb} '*) echo '{document}'; echo reason >&2; exit {code} ;;"
        " *) echo '{}' ;; esac\n"
    )
    python.chmod(0o755)
    monkeypatch.setattr(tree, "NEW", tmp_path)
    if not fault:
        tree.check()
        return
    with pytest.raises(InstallError, match=f"does not {fault}; the installed one was left"):
        tree.check()
