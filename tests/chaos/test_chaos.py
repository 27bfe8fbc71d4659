"""Faults at random for a whole gpud, with a fresh seed each time; planted faults are caught."""

from __future__ import annotations

import os
import time
from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING

import pytest

from tests.chaos import faults
from tests.chaos.distribution import distribution
from tests.chaos.faults import Fault
from tests.chaos.invariants import MEDIAN, invented, unwanted
from tests.chaos.trial import Trial, plan, ready, run
from tests.wsl.machine import Process

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.chaos.distribution import Distribution
    from tests.chaos.faults import Damage

FOR_S = 180.0
WELL = [
    Process(10, 2, 1, "gpud", 0, "/opt/gpud/bin/python -I -m gpud up "),
    Process(11, 3, 10, "python", 999, "/opt/gpud/bin/python -I -m gpud.agent --home / "),
    Process(12, 4, 11, "python", 999, "/opt/gpud/bin/python -I -m gpud.child --serve "),
    Process(13, 5, 10, "dockerd", 0, "/usr/sbin/dockerd "),
    Process(14, 6, 13, "containerd", 0, "containerd "),
]
TEMPERATURE = ("gpud_gpu_temperature_celsius", (("gpu", "0"),))
LATENCY = (MEDIAN, (("gpu", "0"), ("mode", "submit"), ("probe", "launch")))


def end_the_container(distro: Distribution, chance: random.Random) -> Damage:
    for pid in distro.machine.containers():
        os.kill(pid, 9)
    yield None


def test_gpud_is_well_after_faults_at_random_and_a_planted_loss_is_caught(
    installed_layer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = time.time_ns() % 1_000_000
    print(f"deploy/chaos --seed {seed}")
    with distribution(installed_layer) as distro:
        witness = ready(distro)
        deadline_s, done = time.monotonic() + FOR_S, []
        for trial in plan(seed, faults.classes()):
            if time.monotonic() >= deadline_s:
                break
            record = run(trial, distro, witness)
            done.append(str(trial.number))
            again = f"deploy/chaos --seed {seed} --replay {','.join(done)}"
            assert not record.broken, f"{trial.faults}: {record.broken}\n{again}"
        planted = Fault("planted", "planted", end_the_container, frozenset())
        monkeypatch.setitem(faults.FAULTS, "planted", planted)
        record = run(Trial(seed, -1, ("planted",)), distro, witness)
        assert [words for words in record.broken if words.startswith("containers ended")]


def test_seeds_in_a_row_try_each_class_alone_and_each_pair_as_often() -> None:
    classes = faults.classes()
    assert plan(5, classes) == plan(5, classes)
    of = {variant: name for name, variants in classes.items() for variant in variants}
    rounds = [[[of[each] for each in t.faults] for t in plan(n, classes)] for n in range(70, 110)]
    tried = Counter(" ".join(sorted(names)) for trials in rounds for names in trials)
    alone = [tried[name] for name in classes]
    pairs = [tried[" ".join(sorted(pair))] for pair in combinations(classes, 2)]
    assert alone == [40] * len(classes)
    assert min(pairs) >= 3
    assert max(pairs) <= 4
    assert plan(5, classes)[0].chance.random() == plan(5, classes)[0].chance.random()


@pytest.mark.parametrize(
    ("extra", "missing", "words"),
    [
        ((), (), []),
        ((Process(20, 8, 1, "dockerd", 0, "/usr/sbin/dockerd "),), (), ["2 processes dockerd"]),
        ((Process(20, 8, 1, "gpud", 0, "gpud up "),), (), ["2 processes gpud"]),
        ((Process(20, 8, 13, "dockerd", 0, "/usr/sbin/dockerd "),), (), []),  # not yet another
        (
            (Process(20, 8, 1, "python", 999, "python -m gpud.child --serve"),),
            (),
            ["orphan: python -m gpud.child --serve"],
        ),
        ((), ("containerd",), ["0 processes containerd"]),
    ],
)
def test_second_daemon_and_orphan_are_caught(
    extra: tuple[Process, ...], missing: tuple[str, ...], words: list[str]
) -> None:
    assert unwanted([*(p for p in WELL if p.name not in missing), *extra]) == words


@pytest.mark.parametrize(
    ("scrape", "caught"),
    [
        ({TEMPERATURE: 47.0, LATENCY: 3e-6}, 0),
        ({}, 0),  # what is not known is absent
        ({TEMPERATURE: 0.0}, 1),
        ({("gpud_gpu_temperature_celsius", (("gpu", "1"),)): 47.0}, 1),
        ({LATENCY: 0.0}, 1),
        ({LATENCY: float("nan")}, 2),
    ],
)
def test_invented_value_is_caught(
    scrape: dict[tuple[str, tuple[tuple[str, str], ...]], float], caught: int
) -> None:
    assert len(invented(scrape, {TEMPERATURE: 47.0})) == caught
