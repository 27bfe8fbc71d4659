"""Settings files of WSL, and when GPU work may begin."""

from __future__ import annotations

import pytest

from gpud.core.wsl import boot_rest_s, mounts_at, sections, switch


@pytest.mark.parametrize(
    ("uptime", "rest_s"),
    [
        ("10.00 1.00\n", 50.0),
        ("59.50 1.00\n", 0.5),
        ("60.00 1.00\n", 0.0),
        ("7200.00 1.00\n", 0.0),
        ("", 0.0),
        ("nan 1.00\n", 0.0),
        ("-5 1.00\n", 0.0),
        ("a while", 0.0),
        (None, 0.0),
    ],
)
def test_gpu_work_waits_for_the_age_of_the_virtual_machine(
    uptime: str | None, rest_s: float
) -> None:
    assert boot_rest_s(60.0, uptime) == rest_s
    assert boot_rest_s(0.0, uptime) == 0.0


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
