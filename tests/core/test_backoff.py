from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpud.core.clock import Backoff


def test_the_first_retry_is_immediate_and_later_ones_double_up_to_the_cap() -> None:
    rest = Backoff(first_s=1.0, longest_s=10.0)
    assert [rest.delay_s(n, 0.0) for n in range(8)] == [0, 0, 1, 2, 4, 8, 10, 10]


def test_what_lived_long_begins_to_count_anew() -> None:
    rest = Backoff(well_after_s=30.0)
    assert rest.failures(7, lived_s=29.9) == 8
    assert rest.failures(7, lived_s=30.0) == 1


@given(failures=st.integers(2, 10**6), jitter=st.floats(0, 1))
def test_a_delay_is_never_zero_nor_above_the_cap_from_the_second_on(
    failures: int, jitter: float
) -> None:
    assert 0 < Backoff(longest_s=60.0).delay_s(failures, jitter) <= 60.0
