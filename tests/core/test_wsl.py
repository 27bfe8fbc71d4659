"""Settings files of WSL."""

from __future__ import annotations

import pytest

from gpud.core.wsl import mounts_at, sections, switch


@pytest.mark.parametrize(
    ("text", "prefix"),
    [("", "/mnt"), ("root=/", ""), ("root = /win/ # ours", "/win"), ("root=win", "/mnt")],
)
def test_windows_drives_are_where_wsl_mounts_them(text: str, prefix: str) -> None:
    assert mounts_at(sections(f"[automount]\n{text}\n")) == prefix


def test_a_settings_file_of_wsl_is_read_as_wsl_reads_it() -> None:
    text = '\ufeff[Boot]\r\nSystemd=TRUE\r\njunk\n[boot]\ncommand="a # b"\n=\n['
    parsed = sections(text)
    assert switch(parsed, "boot", "systemd") is True
    assert parsed["boot"]["command"] == "a # b"
    assert switch(parsed, "boot", "nothing") is None
