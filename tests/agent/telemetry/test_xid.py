"""Xids have the words of NVIDIA's catalogue."""

from __future__ import annotations

import pytest

from gpud.agent.telemetry import xid


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "No Error"),
        (79, "GPU has fallen off the bus"),
        (143, "GPU Initialization Failure"),
        (154, "GPU Recovery Action Changed"),  # follows most others with today's drivers
        (172, "Uncorrectable SRAM Error"),
        (999, "Unknown Error"),
    ],
)
def test_an_xid_is_told_in_words_and_a_foreign_one_is_called_so(code: int, words: str) -> None:
    assert xid.meaning(code) == words
