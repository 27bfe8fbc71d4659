"""Every probe on the real GPU, beside a C loop. Without a GPU the first fails and says why."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from deploy.gpu_check.compare import LATENCY
from deploy.gpu_check.contexts import Contexts
from deploy.gpu_check.processes import FIRST_S, RATIO, Hung, finished, wsl
from gpud import discovery
from gpud.child import probes
from gpud.core.sample import Backend, ProbeSpec, Reason, Unit
from tests.child.running import CHILD, Ended
from tests.standins.build import build_submit_loop

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

pytestmark = pytest.mark.gpu

SPECS: dict[str, ProbeSpec] = {
    name: module.SPEC
    for name, module in discovery.modules(probes, ("SPEC", "run"))[0].items()
    if module.SPEC.backend is Backend.CUDA
}
PLAUSIBLE = {
    Unit.SECONDS: (2e-8, 1e-2),  # the first launch, which compiles, is looked at on its own
    Unit.BYTES_PER_SECOND: (5e8, 5e13),
    Unit.FLOPS_PER_SECOND: (1e10, 1e16),  # FP64 of a small GeForce, INT8 of a large accelerator
    Unit.ELEMENTS: (255, 2**22 + 1),
}
TRIALS = 5
LAUNCHES = 4000
AS_THE_CHILD = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_MODULE_LOADING": "EAGER"}


contexts = Contexts(print)


@pytest.fixture(scope="module")
def inventory() -> Iterator[dict[str, Any]]:
    ended = asked({}, FIRST_S)
    if failure := ended.document["failure"]:
        words = f"{failure['reason']}: {failure['detail']}; {failure['advice']}"
        pytest.exit(f"these tests need an NVIDIA GPU: {words}", returncode=1)
    yield ended.document
    contexts.close()


def asked(job: dict[str, Any], budget_s: float) -> Ended:
    """Give a child one job; in WSL2 nothing ends one that hangs, and no other is started."""
    given = json.dumps(job | {"budget_s": budget_s, "alarm": not wsl()})
    return done([*CHILD, "--serve"], given, FIRST_S + RATIO * budget_s)


def done(
    command: Sequence[str], given: str, limit_s: float, environment: Mapping[str, str] = os.environ
) -> Ended:
    try:
        ended = finished(command, given, dict(environment), limit_s)
    except Hung as error:
        pytest.exit(str(error), returncode=1)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def run_on(
    gpu: dict[str, Any], probe: str, seed: int = 1, peer: dict[str, Any] | None = None
) -> Ended:
    contexts.add(1 if peer is None else 2)
    job = {"probe": probe, "gpu": gpu["uuid"], "seed": seed}
    job |= {} if peer is None else {"peer": peer["uuid"]}
    return asked(job, SPECS[probe].budget_s)


PEERED = {name for name, spec in SPECS.items() if spec.peer}


@pytest.mark.parametrize("probe", sorted(PEERED))
def test_copies_between_gpus_bring_verified_and_plausible_figures(
    inventory: dict[str, Any], probe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a machine with one GPU that is all there is to say."""
    low, high = PLAUSIBLE[SPECS[probe].unit]
    devices = inventory["devices"]
    if len(devices) == 1:
        assert run_on(devices[0], probe).failure["reason"] == Reason.UNSUPPORTED
    for gpu, peer in pairwise([*devices, devices[0]]) if len(devices) > 1 else ():
        ended = run_on(gpu, probe, peer=peer)
        figures = {mode: sample["median"] for mode, sample in ended.samples.items()}
        with capsys.disabled():
            print(f"\n{json.dumps({'gpu': gpu['name'], 'probe': probe, **figures})}")
        assert all(low < figure < high for figure in figures.values())


@pytest.mark.parametrize("probe", sorted(SPECS.keys() - PEERED))
def test_a_probe_brings_verified_and_plausible_figures_from_every_gpu(
    inventory: dict[str, Any], probe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    low, high = PLAUSIBLE[SPECS[probe].unit]
    for gpu in inventory["devices"]:
        ended = run_on(gpu, probe)
        missing = {gap["mode"] for gap in ended.document["missing"]}
        assert set(ended.samples) | missing == set(SPECS[probe].modes)
        assert ended.document["conditions"]["verified"] is True
        assert ended.document["device"] == gpu
        assert ended.document["gpu_seconds"] < 1
        figures = {mode: sample["median"] for mode, sample in ended.samples.items()}
        with capsys.disabled():
            print(f"\n{json.dumps({'gpu': gpu['name'], 'probe': probe, **figures})}")
        assert 0 < figures.pop("first_launch", 1.0) < 60
        assert all(low < figure < high for figure in figures.values())


@pytest.mark.parametrize("probe", sorted(SPECS.keys() - PEERED))
def test_another_seed_verifies_too(inventory: dict[str, Any], probe: str) -> None:
    ended = run_on(inventory["devices"][0], probe, seed=20_260_101)
    assert ended.samples or ended.document["missing"]


def test_a_run_leaves_no_memory_taken(inventory: dict[str, Any]) -> None:
    gpu = inventory["devices"][0]
    conditions = [run_on(gpu, "triad").document["conditions"] for _ in range(3)]
    free = [facts["memory_free_bytes"] for facts in conditions]
    assert max(free) - min(free) < conditions[0]["array_bytes"]


def test_throughput_says_the_same_twice(inventory: dict[str, Any]) -> None:
    for probe in ("triad", "nbody", "matmul", "device_copy"):
        first, second = (
            run_on(inventory["devices"][0], probe).samples[probe]["median"] for _ in range(2)
        )
        assert first == pytest.approx(second, rel=0.1)


def test_submit_is_what_a_c_loop_measures_on_the_same_driver(
    inventory: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = build_submit_loop(tmp_path)
    gpu = inventory["devices"][0]  # the first in PCI bus order, as is the loop's
    theirs, ours = [], []
    for _ in range(TRIALS):
        contexts.add()
        command = [str(loop), inventory["library"], str(LAUNCHES)]
        ended = done(command, "", FIRST_S, os.environ | AS_THE_CHILD)
        launch_ns, clock_ns, *_ = map(int, ended.out.split())
        theirs.append((launch_ns - clock_ns) * 1e-9)
        ours.append(run_on(gpu, "launch").samples["submit"]["median"])
    with capsys.disabled():
        figures = {"gpu": gpu["name"], "c_loop": median(theirs), "submit": median(ours)}
        print(f"\n{json.dumps(figures)}")
    ratio, difference = median(ours) / median(theirs), median(ours) - median(theirs)
    assert LATENCY.holds(ratio, difference), f"{LATENCY}: {figures}"
