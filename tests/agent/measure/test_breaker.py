from __future__ import annotations

from gpud.agent.measure.breaker import FIRST_REST_S, LONGEST_REST_S, Breaker, State
from gpud.core.report import ProcessRef


def test_hangs_in_a_row_stop_gpu_work_for_five_minutes_doubling_to_an_hour() -> None:
    breaker, rests = Breaker(), []
    for _ in range(6):
        breaker = breaker.after_hang(1000.0)
        rests.append(breaker.retry_at_s - 1000.0)
        assert not breaker.allows(breaker.retry_at_s - 0.001)
        assert breaker.allows(breaker.retry_at_s)
    assert rests == [300, 600, 1200, 2400, 3600, 3600]
    closed = breaker.after_end(0.0)
    assert closed.allows(0.0)
    assert closed.after_hang(0.0).retry_at_s == FIRST_REST_S


def test_stuck_breaker_is_opened_by_the_end_of_its_process_and_by_no_clock() -> None:
    stuck = Breaker().after_hang(0.0, left=ProcessRef(4711, 1))
    assert (stuck.state(1e9), stuck.allows(1e9)) == (State.STUCK, False)
    gone = stuck.after_gone(10.0)
    assert (gone.state(10.0), gone.allows(10.0)) == (State.HALF_OPEN, True)
    assert gone.after_end(10.0) == Breaker()


def test_subject_that_hung_decides_unless_it_stays_away_for_the_longest_rest() -> None:
    opened = Breaker().after_hang(0.0, "launch")
    listed = opened.begun().after_end(FIRST_REST_S, "inventory")
    assert listed.state(FIRST_REST_S) is State.HALF_OPEN
    again = listed.begun().after_hang(FIRST_REST_S, "launch")
    assert again.retry_at_s == FIRST_REST_S + 2 * FIRST_REST_S
    assert again.after_end(again.retry_at_s, "launch") == Breaker()
    over_s = FIRST_REST_S + LONGEST_REST_S
    assert opened.after_end(over_s - 1, "triad").state(FIRST_REST_S) is State.HALF_OPEN
    assert opened.after_end(over_s, "triad") == Breaker()
