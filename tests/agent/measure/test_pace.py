"""How far apart rounds are, in simulated days; what a round made is counted as the agent does."""

from __future__ import annotations

import itertools
import random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from gpud.agent.measure.gpu_contexts import GpuContexts
from gpud.agent.measure.pace import Beat, Rounds, Turn, plan
from gpud.core.sample import Backend, Pace, ProbeSpec, Unit
from gpud.core.sections import ScheduleSettings
from tests.agent.measure.rounds import paced

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0


def spec(
    name: str, pace: Pace = Pace.SMALL, every: int = 1, on: Backend = Backend.CUDA
) -> ProbeSpec:
    return ProbeSpec(name, on, pace, Unit.SECONDS, ("mode",), 10.0, "", every=every)


LAUNCH, EVENT = spec("launch"), spec("event", every=5)
TRIAD, COPY = spec("triad", Pace.LARGE), spec("copy", Pace.LARGE, every=4)
CALL = spec("cpu_call", on=Backend.CPU)
PROBES = (LAUNCH, EVENT, TRIAD, COPY, CALL)


def begin(
    rounds: Rounds,
    probes: Sequence[ProbeSpec],
    now_s: float,
    costs_s: Mapping[str, float] = MappingProxyType({}),
    *,
    on_battery: bool = False,
) -> Turn:
    """Begin a round in which all that is due runs."""
    turn = rounds.begin(probes, now_s, costs_s, on_battery=on_battery)
    for probe in turn.probes:
        rounds.ran(probe)
    return turn


class Machine:
    """A machine of one boot whose agent does nothing but rounds."""

    def __init__(
        self, folder: Path, *, wsl2: bool, gpus: int = 1, jitter: float = 0.1, **schedule: Any
    ) -> None:
        self.now_s = 10.0
        self.folder, self.gpus, self.jitter = folder, gpus, jitter
        self.plan = plan(ScheduleSettings(**schedule), wsl2=wsl2, on_battery="seldom")
        self.random = random.Random(7)
        self.rounds_s: list[float] = []
        self.made_s: list[float] = []
        self.due_s: dict[str, list[float]] = {probe.name: [] for probe in PROBES}
        self.restart()

    def restart(self) -> None:
        """Begin another agent, which knows what the file says."""
        self.contexts = GpuContexts(self.folder, "boot", self.plan.budget)
        self.rounds = Rounds(self.plan, self.contexts)

    def run(self, for_s: float, patch: pytest.MonkeyPatch) -> None:
        """Let so much time pass."""
        until_s = self.now_s + for_s
        patch.setattr("time.time", lambda: self.now_s)
        while self.now_s < until_s:
            interval_s = self.rounds.interval_s()
            due = begin(self.rounds, PROBES, self.now_s).probes
            self.rounds_s.append(self.now_s)
            for probe in due:
                self.due_s[probe.name].append(self.now_s)
            for _ in range(self.gpus if LAUNCH in due else 0):
                if not self.contexts.spent:  # as the launcher does
                    self.contexts.made()
                    self.made_s.append(self.now_s)
            self.now_s += interval_s * (1 + self.jitter * self.random.uniform(-1, 1))


def gaps(moments: list[float]) -> list[float]:
    return [after - before for before, after in itertools.pairwise(moments)]


def test_day_of_wsl2_makes_at_most_160_contexts_and_a_week_at_most_250(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, wsl2=True)
    machine.run(DAY_S, monkeypatch)
    assert 140 <= machine.contexts.used <= 160
    for _ in range(6):
        machine.run(DAY_S, monkeypatch)
        machine.restart()
    assert 220 <= machine.contexts.used < 250
    assert max(gaps(machine.made_s)) < DAY_S
    assert len(machine.rounds_s) == pytest.approx(7 * 144 + 8, abs=20)  # the CPU's go on


def test_first_ten_rounds_of_a_boot_are_near_and_a_restart_does_not_bring_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, wsl2=True, jitter=0)
    machine.run(9 * MINUTE_S, monkeypatch)
    machine.restart()
    machine.run(100 * MINUTE_S, monkeypatch)
    between = gaps(machine.rounds_s)
    assert between[:10] == [120.0] * 10
    assert set(between[10:]) == {600.0}


def test_agent_that_is_restarted_each_minute_uses_no_more_than_half_of_the_budget_so_fast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, wsl2=True)
    for _ in range(500):
        began_s = machine.now_s
        machine.run(1.0, monkeypatch)  # one round, at once
        machine.now_s = began_s + MINUTE_S
        machine.restart()
    assert len(machine.rounds_s) == 500
    assert 125 < machine.contexts.used < 160


def test_spent_budget_leaves_every_probe_due_and_no_figure_fresh_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, wsl2=True, context_budget=20)
    machine.run(5 * DAY_S, monkeypatch)
    assert (machine.contexts.spent, machine.contexts.used) == (True, 20)
    assert machine.due_s["launch"][-1] == machine.rounds_s[-1]
    assert machine.rounds.beat().run_s(LAUNCH) == 600.0


@pytest.mark.parametrize(
    ("wsl2", "schedule", "between_s"),
    [
        (False, {}, {"launch": 60, "event": 300, "triad": 900, "copy": 3600, "cpu_call": 60}),
        (True, {}, {"launch": 600, "event": 600, "triad": 1200, "copy": 3600, "cpu_call": 600}),
        (True, {"small_interval_s": 60.0}, {"launch": 60, "event": 300, "triad": 900}),
        (True, {"large_interval_s": 300.0}, {"launch": 300, "triad": 300, "copy": 1200}),
        (False, {"small_interval_s": 3600.0}, {"launch": 3600, "triad": 900, "cpu_call": 3600}),
        (
            False,
            {"small_interval_s": 120.0, "large_interval_s": 1800.0},
            {"launch": 120, "triad": 1800},
        ),
    ],
)
def test_interval_that_is_published_is_the_one_that_is_kept(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wsl2: bool,  # noqa: FBT001
    schedule: dict[str, Any],
    between_s: dict[str, float],
) -> None:
    machine = Machine(tmp_path, wsl2=wsl2, jitter=0, context_budget=0, **schedule)
    machine.run(0.5 * HOUR_S, monkeypatch)  # the rounds that are near
    for moments in machine.due_s.values():
        del moments[:-1]
    machine.run(12 * HOUR_S, monkeypatch)
    beat = machine.rounds.beat()
    for probe in PROBES:
        if probe.name in between_s:
            assert set(gaps(machine.due_s[probe.name])[1:]) == {between_s[probe.name]}, probe.name
            assert beat.run_s(probe) == between_s[probe.name], probe.name


def test_day_of_plain_linux_makes_a_context_a_round_and_has_no_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, wsl2=False)
    machine.run(DAY_S, monkeypatch)
    assert machine.contexts.used == len(machine.rounds_s) == pytest.approx(1440, abs=20)
    assert machine.contexts.budget is None
    assert machine.rounds.beat() == Beat()


LARGE = (
    *(spec(name, Pace.LARGE) for name in ("triad", "nbody", "matmul", "tensor")),
    *(spec(name, Pace.LARGE, every=4) for name in ("copy", "device_copy", "precision")),
)


@pytest.mark.parametrize("wsl2", [False, True])
@pytest.mark.parametrize("cost_s", [0.01, 0.15, 0.3])
def test_large_probes_rotate_within_their_share_of_the_gpu(
    tmp_path: Path,
    wsl2: bool,  # noqa: FBT001
    cost_s: float,
) -> None:
    rounds = paced(tmp_path, wsl2=wsl2, context_budget=0)
    large = LARGE if wsl2 else (*LARGE, spec("peer_copy", Pace.LARGE, every=4))
    costs_s: dict[str, float] = {}  # none is known before the first run
    moments: dict[str, list[float]] = {probe.name: [] for probe in large}
    now_s = 10.0
    while now_s < DAY_S:
        for probe in begin(rounds, (LAUNCH, *large), now_s, costs_s).probes:
            moments.setdefault(probe.name, []).append(now_s)
            costs_s[probe.name] = 0.0 if probe is LAUNCH else cost_s
        now_s += rounds.interval_s()
    runs = sum(len(moments[probe.name]) for probe in large)
    assert cost_s * (runs - len(large) - 1) <= 0.0005 * DAY_S
    for probe in large:
        assert max(gaps(moments[probe.name])) <= 2 * HOUR_S, probe.name
    usual, seldom = (max(gaps(moments[name])) for name in ("triad", "copy"))
    assert usual < seldom


def test_clock_that_is_set_back_by_a_month_lets_no_large_probe_wait_for_longer(
    tmp_path: Path,
) -> None:
    rounds = paced(tmp_path)
    moments: dict[str, list[float]] = {probe.name: [] for probe in LARGE}
    costs_s = dict.fromkeys(moments, 0.3)
    now_s = 10.0
    while now_s < 2 * DAY_S:
        ahead_s = 30 * DAY_S if now_s < 2 * HOUR_S else 0.0
        for probe in begin(rounds, LARGE, now_s + ahead_s, costs_s).probes:
            moments[probe.name].append(now_s)
        now_s += rounds.interval_s()
    for name, ran in moments.items():
        assert max(gaps([*ran, now_s])) <= 4 * HOUR_S, name


def test_large_interval_that_is_set_is_kept_whatever_it_costs(tmp_path: Path) -> None:
    rounds = paced(tmp_path, large_interval_s=300.0)
    due = [begin(rounds, (TRIAD,), 60.0 * minute, {"triad": 1.0}).probes for minute in range(11)]
    assert [minute for minute, probes in enumerate(due) if probes] == [0, 5, 10]


@pytest.mark.parametrize("skipped_h", [3, 24])
def test_large_probe_that_is_skipped_stays_due_and_costs_nothing(
    tmp_path: Path, skipped_h: int
) -> None:
    rounds = paced(tmp_path)
    costs_s = {probe.name: 0.3 for probe in LARGE}
    begin(rounds, LARGE, 10.0, costs_s)
    minutes = range(240, 240 + 60 * skipped_h)
    turns = [
        rounds.begin(LARGE, minute * MINUTE_S, costs_s, on_battery=False) for minute in minutes
    ]  # none runs
    assert all(turn.probes == list(LARGE) for turn in turns)
    after = begin(rounds, LARGE, (minutes[-1] + 1) * MINUTE_S, costs_s)
    assert after.probes == list(LARGE)
    assert begin(rounds, LARGE, (minutes[-1] + 2) * MINUTE_S, costs_s).probes == []


def test_probe_of_two_gpus_costs_as_much_as_of_one(tmp_path: Path) -> None:
    rounds = paced(tmp_path)
    begin(rounds, (TRIAD,), 0.0)
    for at_s in (900.0, 1800.0):
        (probe,) = rounds.begin((TRIAD,), at_s, {"triad": 0.5}, on_battery=False).probes
        rounds.ran(probe)
        rounds.ran(probe)
    assert rounds.begin((TRIAD,), 2700.0, {"triad": 0.5}, on_battery=False).probes == [TRIAD]


def test_pause_of_the_machine_makes_due_what_it_made_late_and_a_clock_set_back_everything(
    tmp_path: Path,
) -> None:
    rounds, at_s = paced(tmp_path), 10 * HOUR_S
    assert begin(rounds, PROBES, at_s).probes == list(PROBES)
    assert begin(rounds, PROBES, at_s + 10).probes == []
    assert begin(rounds, PROBES, at_s + 610) == ([LAUNCH, EVENT, CALL], False, [], None)
    assert begin(rounds, PROBES, 2 * at_s) == (list(PROBES), True, [], None)
    assert begin(rounds, PROBES, at_s) == (list(PROBES), True, [], None)
    assert begin(rounds, PROBES, at_s + 60) == ([LAUNCH, CALL], False, [], None)


@pytest.mark.parametrize(
    ("choice", "minutes"),
    [("all", 1), ("small", 1), ("seldom", 15), ("none", None)],
)
def test_on_battery_the_gpu_takes_part_as_often_as_the_person_chose(
    tmp_path: Path, choice: str, minutes: int | None
) -> None:
    rounds = paced(tmp_path, on_battery=choice)
    turns = {
        minute: begin(rounds, PROBES, minute * MINUTE_S, on_battery=True) for minute in range(46)
    }
    took_part = [minute for minute, turn in turns.items() if LAUNCH in turn.probes]
    assert took_part == ([] if minutes is None else list(range(0, 46, minutes)))
    assert all(CALL in turn.probes for turn in turns.values())
    assert all(bool(turn.resting) is (n not in took_part) for n, turn in turns.items())
    assert not any(turn.look for n, turn in turns.items() if n not in took_part)
    if choice == "seldom":
        assert turns[44].rest_until_s == 45 * MINUTE_S
        assert EVENT in turns[45].probes, "what rests stays due"
        assert rounds.beat().gpu_s == 15 * MINUTE_S
    assert LAUNCH in begin(rounds, PROBES, 46 * MINUTE_S).probes, "on mains"
    assert rounds.beat().gpu_s == MINUTE_S


def test_end_of_the_rest_on_battery_is_that_of_a_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, wsl2=True, jitter=0, context_budget=0)
    machine.run(0.5 * HOUR_S, monkeypatch)  # the rounds that are near
    until_s: list[float | None] = []
    for _ in range(7):
        turn = begin(machine.rounds, PROBES, machine.now_s, on_battery=True)
        if LAUNCH in turn.probes:
            assert set(until_s) <= {machine.now_s}
            until_s.clear()
        else:
            until_s.append(turn.rest_until_s)
        machine.now_s += machine.rounds.interval_s()
    assert machine.rounds.beat().gpu_s == 20 * MINUTE_S


def test_pause_of_the_machine_brings_the_next_round_with_the_gpu_nearer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, wsl2=True, jitter=0)
    machine.run(3 * DAY_S, monkeypatch)
    last_s, beat = machine.made_s[-1], machine.rounds.beat()
    assert machine.now_s - last_s < beat.gpu_s / 2
    machine.now_s += beat.gpu_s
    machine.restart()  # the file knows it
    machine.run(1.0, monkeypatch)
    assert machine.made_s[-1] > last_s


def test_several_gpus_share_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, wsl2=True, gpus=4)
    machine.run(7 * DAY_S, monkeypatch)
    assert 240 <= machine.contexts.used <= 250


def test_interval_that_is_published_is_the_next_one_also_where_it_is_stretched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, wsl2=True, jitter=0)
    machine.run(2 * HOUR_S, monkeypatch)
    del machine.made_s[:-1]
    published_s = []
    while machine.contexts.used < 215:
        before = machine.contexts.used
        machine.run(1.0, monkeypatch)  # one round
        if machine.contexts.used > before:
            published_s.append(machine.rounds.beat().run_s(LAUNCH))
    assert published_s[:-1] == gaps(machine.made_s)[1:]
    assert {600.0, 1200.0, 1800.0, HOUR_S} <= set(published_s)
    assert machine.rounds.beat().run_s(TRIAD) == published_s[-1]
