"""Text of the kernel's tables, and text that only looks like it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpud.core.proc import listening

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
def test_no_text_is_an_error(table: str, port: int) -> None:
    assert listening(table, port) >= set()
    listening(f"0: x:{table} y 0A a b c d e f\n", port)
