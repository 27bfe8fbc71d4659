"""Where drives of Windows are, by the list of mounts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpud.core.wsl import drives

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
