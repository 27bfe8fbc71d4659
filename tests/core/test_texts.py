"""Texts that others write: the kernel's tables, WSL's settings, any at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.core.proc import listening
from gpud.core.text import escaped, rezoned
from gpud.core.wsl import mounts_at, sections, switch

TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:26D9 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1
   1: 0100007F:26D9 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 4712 1
   2: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1
"""


def test_only_who_listens_on_that_port_is_found() -> None:
    assert listening(TABLE, 9945) == {"4711"}
    assert listening(TABLE, 22) == {"4713"}
    assert listening(TABLE, 23) == set()


@given(st.text(), st.integers(0, 65535))
def test_no_text_is_an_error_or_steers_a_terminal(text: str, port: int) -> None:
    assert listening(text, port) >= set()
    listening(f"0: x:{text} y 0A a b c d e f\n", port)
    shown = escaped(text)
    assert not [c for c in shown if ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u202e\u2066"]


def test_what_was_there_can_still_be_read() -> None:
    assert escaped("RTX\x1b[2J\n") == "RTX\\x1b[2J\\x0a"
    assert escaped("a\n\tb\x07", lines=True) == "a\n\tb\\x07"
    assert rezoned("since 2023-13-45 10:00 UTC", str) == "since 2023-13-45 10:00 UTC"


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
