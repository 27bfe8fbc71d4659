"""What holds of a snapshot whatever happens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.regression.changes import KINDS
from gpud.agent.serve.refusals import Refused
from gpud.agent.state.snapshot import Snapshot
from gpud.agent.telemetry.answers import Answer
from gpud.core.health import Level
from gpud.core.sample import (
    Inventory,
    Reason,
    Skip,
)
from gpud.core.telemetry import LEVELS
from gpud.document.machine import ChangeReport, Expected
from tests import events as happened
from tests.agent.state.folding import PROBES, START, device, finished, folded

moments = st.floats(min_value=0, max_value=4e9)
gpus = st.none() | st.integers(0, 2)
reasons = st.sampled_from(Reason)
events = st.one_of(
    st.builds(finished, st.sampled_from(PROBES), gpus, st.none() | reasons, moments),
    st.builds(happened.run_skipped, st.sampled_from(PROBES), st.sampled_from(Skip), moments),
    st.just(happened.child_spawned()),
    st.builds(
        happened.inventory_taken,
        st.integers(0, 3).map(lambda n: Inventory(tuple(device(i) for i in range(n)))),
        moments,
    ),
    st.builds(
        happened.source_answered,
        st.builds(
            Answer,
            st.sampled_from(LEVELS[1:]),
            st.integers(1, 5),
            moments,
            moments,
            reason=st.none() | st.just("hung"),
        ),
        moments,
    ),
    st.builds(happened.program_started, st.sampled_from(LEVELS[3:5])),
    st.builds(
        happened.changed,
        st.builds(
            ChangeReport,
            st.sampled_from(KINDS),
            st.none() | st.just("1"),
            st.just("2"),
            moments,
            st.just(""),
        ).map(lambda change: (change,)),
        moments,
    ),
    st.builds(
        happened.remembered,
        st.dictionaries(st.sampled_from("AB"), st.builds(Expected, st.just("card"))),
        moments,
    ),
    st.builds(happened.platform_read, st.just({"wsl_version": "2.6.1.0"}), moments),
    st.builds(happened.clock_jumped, st.floats(-1e5, 1e5), moments),
    st.builds(happened.root_read, st.none(), st.just("gone"), moments),
    st.builds(
        happened.health_set, st.sampled_from(["store", "http"]), st.sampled_from(Level), moments
    ),
    st.builds(happened.turned_away, st.dictionaries(st.sampled_from(Refused), st.integers(1, 9))),
)


def counters(snapshot: Snapshot) -> dict[object, float]:
    return {
        **{("runs", key): value for key, value in snapshot.measure.runs.items()},
        **{("failures", key): value for key, value in snapshot.measure.failures.items()},
        **{("skips", key): value for key, value in snapshot.measure.skips.items()},
        "gpu_seconds": snapshot.measure.gpu_seconds,
        "children": snapshot.measure.children,
        "jumps": snapshot.machine.clock_jumps,
        "paused": snapshot.machine.paused_s,
        **{("failed", key): value for key, value in snapshot.telemetry.failures.items()},
        **{("changed", key): value for key, value in snapshot.changes.counts.items()},
        **{("started", key): value for key, value in snapshot.telemetry.starts.items()},
        **{("turned away", key): value for key, value in snapshot.http.turned_away.items()},
    }


@given(st.lists(events, max_size=30))
def test_no_event_makes_a_counter_smaller_or_forgets_it(happened: list[happened.Event]) -> None:
    now = START
    for event in happened:
        before, now = counters(now), event(now)
        after = counters(now)
        assert all(after[name] >= value for name, value in before.items())


@given(st.lists(events, max_size=30))
def test_no_component_is_degraded_or_failed_without_a_cause(
    happened: list[happened.Event],
) -> None:
    for health in folded(*happened).health.values():
        assert health.level is Level.OK or health.detail
