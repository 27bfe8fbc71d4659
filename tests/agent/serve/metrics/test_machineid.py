"""The machine's own name: made once, kept, and never two at a time."""

from __future__ import annotations

import re
from pathlib import Path

from gpud.agent.serve.metrics import machineid


def test_an_id_is_made_once_and_stays_whatever_the_host_is_called(tmp_path: Path) -> None:
    first = machineid.facts(str(tmp_path), "DESKTOP-1234567")
    again = machineid.facts(str(tmp_path), "renamed")
    assert re.fullmatch(r"[0-9a-f]{32}", first["machine_id"])
    assert again == {"hostname": "renamed", "machine_id": first["machine_id"]}
    assert [path.name for path in tmp_path.iterdir()] == [machineid.NAME]


def test_two_machines_of_one_host_name_have_two_ids(tmp_path: Path) -> None:
    ids = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        ids.add(machineid.facts(str(tmp_path / name), "laptop")["machine_id"])
    assert len(ids) == 2


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


def test_anybody_may_read_it(tmp_path: Path) -> None:
    machineid.facts(str(tmp_path), "laptop")
    assert Path(tmp_path, machineid.NAME).stat().st_mode & 0o777 == 0o644
