"""What holds the clocks down, in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.telemetry import fields
from gpud.agent.telemetry.fields import SENTINELS, plausible
from gpud.core.sample import Absent


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0, "none"),
        (0x1, "idle"),
        (0x4 | 0x20, "power_cap,thermal"),
        (0x8 | 0x40 | 0x80, "hw_slowdown,hw_thermal,hw_power_brake"),
        (0x4 | 1 << 40, "power_cap,unknown"),
    ],
)
def test_each_bit_has_its_word(bits: int, words: str) -> None:
    assert fields.throttle_words(bits) == words


@given(st.sampled_from(sorted(SENTINELS)))
def test_a_sentinel_is_no_reason(bits: int) -> None:
    assert plausible("throttle_reasons", fields.throttle_words(bits)) is Absent.SENTINEL
