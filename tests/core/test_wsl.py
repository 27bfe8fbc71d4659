"""Drives of Windows by the list of mounts, and when GPU work may begin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.core.wsl import boot_rest_s, drives, mounts_at, sections, switch

MOUNTS = (
    "none /usr/lib/wsl/drivers 9p ro,aname=drivers 0 0\n"
    "C:\\134 /mnt/c 9p rw,aname=drvfs;path=C:\\\\;uid=1000 0 0\n"
    "E:\\134 /mnt/e 9p rw,aname=drvfs 0 0\n"
    "D:\\134 /mnt/d virtiofs rw 0 0\n"
    "tmpfs /mnt/w tmpfs rw 0 0\n"
    "F:\\134 /mnt/f/deeper 9p rw 0 0\n"
    "\\134\\134nas\\134share /mnt/share drvfs rw 0 0\n"
)


def test_drives_are_told_from_other_mounts_and_c_comes_first() -> None:
    assert drives(MOUNTS, "/mnt") == ("/mnt/c", "/mnt/d", "/mnt/e")


def test_drives_may_be_mounted_elsewhere() -> None:
    assert drives(MOUNTS.replace("/mnt/", "/win.+/"), "/win.+") == (
        "/win.+/c",
        "/win.+/d",
        "/win.+/e",
    )
    assert drives(MOUNTS, "") == ("/c",)


@given(st.text(), st.sampled_from(["/mnt", "", "/"]))
def test_whatever_the_list_says_c_is_looked_for(mounts: str, root: str) -> None:
    assert drives(mounts, root)[0] == f"{root}/c"


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
