from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.measure.breaker import FIRST_REST_S, LONGEST_REST_S, Breaker, State
from gpud.core.report import ProcessRef

LEFT = ProcessRef(4711, 1)


def test_a_hang_stops_gpu_work_for_five_minutes_and_then_lets_one_run_try() -> None:
    opened = Breaker().after_hang(1000.0)
    assert not opened.allows(1000.0 + FIRST_REST_S - 0.001)
    assert opened.allows(1000.0 + FIRST_REST_S)


def test_each_hang_in_a_row_doubles_the_rest_up_to_an_hour() -> None:
    breaker, rests = Breaker(), []
    for _ in range(6):
        breaker = breaker.after_hang(0.0)
        rests.append(breaker.retry_at_s)
    assert rests == [300, 600, 1200, 2400, 3600, 3600]


def test_an_answer_closes_it_and_the_next_hang_begins_at_the_first_rest() -> None:
    breaker = Breaker().after_hang(0.0).after_hang(0.0).after_end(0.0)
    assert breaker.allows(0.0)
    assert breaker.after_hang(0.0).retry_at_s == FIRST_REST_S


@given(st.integers(min_value=1, max_value=5000), st.floats(min_value=0, max_value=1e9))
def test_no_number_of_hangs_makes_the_rest_leave_its_bounds(hangs: int, now_s: float) -> None:
    opened = Breaker(streak=hangs - 1).after_hang(now_s)
    assert now_s + FIRST_REST_S <= opened.retry_at_s <= now_s + LONGEST_REST_S


def test_while_half_open_one_run_is_let_through() -> None:
    trying = Breaker().after_hang(0.0).begun()
    assert not trying.allows(FIRST_REST_S)
    assert trying.state(0.0) is State.HALF_OPEN
    assert trying.not_begun().allows(FIRST_REST_S)
    assert Breaker().begun().allows(0.0)  # a closed one lets many through


def test_no_clock_opens_one_whose_process_lives_and_its_end_does_at_once() -> None:
    stuck = Breaker().after_left(LEFT, 0.0)
    assert not stuck.allows(1e9)
    gone = stuck.after_gone(10.0)
    assert gone.state(10.0) is State.HALF_OPEN
    assert gone.allows(10.0)
    assert gone.after_end(10.0) == Breaker()


def test_only_what_hung_decides_and_hangs_in_a_row_are_those_of_no_answer() -> None:
    opened = Breaker().after_hang(0.0, "launch")
    listed = opened.begun().after_end(FIRST_REST_S, "inventory")
    assert listed.state(FIRST_REST_S) is State.HALF_OPEN
    assert listed.allows(FIRST_REST_S)
    again = listed.begun().after_hang(FIRST_REST_S, "launch")
    assert again.retry_at_s == FIRST_REST_S + 2 * FIRST_REST_S
    assert again.after_end(again.retry_at_s, "launch") == Breaker()


def test_what_hung_and_never_comes_again_is_waited_for_no_longer_than_the_longest_rest() -> None:
    opened = Breaker().after_hang(0.0, "launch")
    nearly = opened.after_end(FIRST_REST_S + LONGEST_REST_S - 1, "triad")
    assert nearly.state(FIRST_REST_S) is State.HALF_OPEN
    assert nearly.after_end(FIRST_REST_S + LONGEST_REST_S, "triad") == Breaker()
