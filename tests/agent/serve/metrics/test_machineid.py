"""The machine's own name: made once, kept, and never two at a time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpud.agent.serve.metrics import machineid

if TYPE_CHECKING:
    from pathlib import Path


def test_an_id_is_made_once_and_stays_whatever_the_host_is_called(tmp_path: Path) -> None:
    first = machineid.facts(str(tmp_path), "DESKTOP-1234567")
    again = machineid.facts(str(tmp_path), "renamed")
    assert re.fullmatch(r"[0-9a-f]{32}", first["machine_id"])
    assert again == {"hostname": "renamed", "machine_id": first["machine_id"]}
    [path] = tmp_path.iterdir()
    assert (path.name, path.stat().st_mode & 0o777) == (machineid.NAME, 0o644)
    (tmp_path / "other").mkdir()
    assert machineid.facts(str(tmp_path / "other"), "renamed") != again


def test_a_file_that_holds_no_id_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / machineid.NAME
    for kept in ("", "x" * 32, "0" * 31, '0123"}\n'):
        path.write_text(kept)
        made = machineid.facts(str(tmp_path), "laptop")["machine_id"]
        assert path.read_text() == f"{made}\n"
        assert machineid.ID.fullmatch(made)


def test_an_id_that_cannot_be_kept_is_none(tmp_path: Path) -> None:
    (tmp_path / machineid.NAME).mkdir()
    assert machineid.facts(str(tmp_path), "laptop\x1b[0m") == {"hostname": "laptop[0m"}
    assert [path.name for path in tmp_path.iterdir()] == [machineid.NAME]
    assert machineid.facts("/proc/nowhere", "laptop") == {"hostname": "laptop"}
