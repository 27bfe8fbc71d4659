"""What it means that there is no GPU, or one less: for every machine, its own verdict."""

from __future__ import annotations

from typing import Any

import pytest

from gpud.agent.state import presence
from gpud.agent.state.facts import GPUS
from gpud.agent.state.presence import (
    GPU_FORGOTTEN,
    GPU_SEEN,
    misses_a_gpu,
)
from gpud.agent.state.snapshot import Snapshot
from gpud.core.health import Level
from gpud.core.sample import (
    Condition,
    Failure,
    Inventory,
    Reason,
)
from gpud.document.machine import Expected
from tests.agent.state.folding import listed
from tests.events import altered, folded, inventory_taken, made, remembered, says

MISSING = Failure(Reason.LIBRARY_MISSING, "no libcuda.so.1", advice="install the driver")
NONE = Failure(Reason.NO_DEVICE, "cuInit: no CUDA-capable device is detected", advice="stray?")
HUNG = Failure(Reason.HUNG, "no answer")
INIT_FAILED = Failure(Reason.INIT_FAILED, "cuInit: 999")


KERNELS = {
    "2": "6.6.87.2-microsoft-standard-WSL2",
    "1": "4.4.0-19041-Microsoft",
    "": "6.1.0-28-amd64",
}


def machine(
    *,
    wsl: str = "2",
    exposed: str | None = "yes",
    nvml: str | None = "library_missing",
    expected: tuple[str, ...] = (),
    configured: bool = False,
) -> Snapshot:
    """A machine that was looked at, before CUDA was asked."""
    platform = {"wsl": wsl, "kernel": KERNELS[wsl]}
    snapshot = made("1", 0.0, platform=platform, library_configured=configured)
    known = {uuid: Expected(f"card {uuid}") for uuid in expected}
    snapshot = remembered(known, 1.0)(snapshot)
    if nvml is not None:
        snapshot = says("nvml", reason=nvml)(snapshot)
    if exposed is not None:
        snapshot = says("dxg", gpu=None, exposed=exposed)(snapshot)
    return snapshot


def health_after(snapshot: Snapshot, inventory: Inventory) -> dict[str, tuple[Level, str | None]]:
    health = inventory_taken(inventory, 2.0)(snapshot).health
    return {
        name: (health[name].level, health[name].reason)
        for name in ("cuda", "devices", "nvml")
        if name in health
    }


NO_GPU = dict.fromkeys(("cuda", "devices", "nvml"), (Level.OK, "no_gpu"))
OFF = dict.fromkeys(("cuda", "devices", "nvml"), (Level.OK, "disabled"))
BROKEN = {
    "cuda": (Level.FAILED, "library_missing"),
    "nvml": (Level.FAILED, "library_missing"),
}


VANISHED = (Level.FAILED, "gpu_vanished")


def cuda(reason: str) -> dict[str, tuple[Level, str | None]]:
    return {"cuda": (Level.FAILED, reason)}


@pytest.mark.parametrize(
    ("parts", "failure", "health"),
    [
        *(
            ({"wsl": wsl, "exposed": "no"}, failure, NO_GPU)
            for wsl in ("", "1", "2")
            for failure in (MISSING, NONE)
        ),
        pytest.param({}, MISSING, NO_GPU, id="of another maker"),
        pytest.param({"exposed": "disabled"}, MISSING, OFF, id="switched off"),
        pytest.param(
            {"exposed": "disabled", "expected": ("A",)}, MISSING, OFF, id="was here, switched off"
        ),
        pytest.param({"exposed": "no", "configured": True}, MISSING, BROKEN, id="configured"),
        pytest.param(
            {"exposed": None, "nvml": None}, MISSING, cuda("library_missing"), id="nobody can tell"
        ),
        *(
            ({"exposed": exposed, "nvml": None}, INIT_FAILED, cuda("init_failed"))
            for exposed in ("yes", "no", None)
        ),
        pytest.param({"nvml": None}, NONE, cuda("no_device"), id="no device"),
        pytest.param(
            {"nvml": None, "expected": ("A",)}, HUNG, cuda("hung"), id="a hang loses no GPU"
        ),
        pytest.param(
            {"exposed": "no", "expected": ("A",)},
            MISSING,
            BROKEN | {"devices": VANISHED},
            id="gone with its driver",
        ),
    ],
)
def test_health_of_a_machine_on_which_cuda_lists_no_gpu(
    parts: dict[str, Any], failure: Failure, health: dict[str, tuple[Level, str | None]]
) -> None:
    assert health_after(machine(**parts), Inventory(failure=failure)) == health


@pytest.mark.parametrize(
    ("wsl", "exposed", "more", "detail", "fix"),
    [
        ("", "no", {}, "this machine has no NVIDIA GPU", None),
        ("1", "no", {}, "WSL 1 offers no GPU", "--set-version"),
        ("2", "no", {}, "Windows offers no GPU to this machine", "install its driver in Windows"),
        ("2", "no", {"container": "1"}, "this container was given no GPU", "--gpus all"),
        ("2", "yes", {"container": "1"}, MISSING.detail, MISSING.advice),  # it has one, and fails
    ],
)
def test_machine_without_a_gpu_has_the_way_to_one(
    wsl: str, exposed: str, more: dict[str, str], detail: str, fix: str | None
) -> None:
    snapshot = machine(wsl=wsl, exposed=exposed)
    snapshot = altered(snapshot, platform={**snapshot.machine.platform, **more})
    cuda = inventory_taken(Inventory(failure=MISSING), 2.0)(snapshot).health["cuda"]
    assert cuda.detail == detail
    assert cuda.fix is None if fix is None else fix in (cuda.fix or "")


@pytest.mark.parametrize(
    ("expected", "name"), [(("GPU-1",), "GPU-1"), (("A", "B"), "UUID"), (("A; rm -r",), "UUID")]
)
def test_fix_for_a_lost_gpu_names_it_where_it_is_one_and_can_be_copied(
    expected: tuple[str, ...], name: str
) -> None:
    after = inventory_taken(Inventory(failure=NONE), 2.0)(machine(expected=expected))
    fix = after.health["devices"].fix
    assert f"`gpud gpus forget {name}`" in (fix or "")
    assert after.health["cuda"].fix == fix != NONE.advice
    assert misses_a_gpu(after)


def test_what_nvml_has_shown_is_a_gpu_still_when_nvml_itself_is_gone() -> None:
    shown, gone = says("nvml", uuid="GPU-1", name="card"), says("nvml", reason="library_missing")
    snapshot = folded(machine(exposed="no", nvml=None), shown, gone)
    assert health_after(snapshot, Inventory(failure=MISSING)) == BROKEN


def test_a_gpu_that_windows_still_sees_is_not_gone_when_cuda_finds_no_device() -> None:
    before = machine(nvml="driver_not_loaded", expected=("A",))
    lost = inventory_taken(Inventory(failure=NONE), 2.0)(before)
    assert lost.health["devices"].reason == "gpu_vanished"
    after = says("nvidia_smi_exe", 3.0, uuid="A")(lost)
    assert after.health["devices"].level is Level.OK
    assert (after.health["cuda"].level, after.health["cuda"].reason) == (Level.FAILED, "no_device")
    # With a list of CUDA's, that list counts: NVML keeps the name of a GPU that fell off.
    others = inventory_taken(listed("B"), 4.0)(after)
    assert others.health["devices"].reason == "gpu_vanished"


def test_a_gpu_that_was_forgotten_is_not_missed_any_more() -> None:
    before = machine(exposed="no", expected=("A",))
    lost = inventory_taken(Inventory(failure=NONE), 2.0)(before)
    assert lost.health["devices"].level is Level.FAILED
    after = remembered({}, 3.0)(lost)
    healths = {name: after.health[name] for name in NO_GPU}
    assert {name: (health.level, health.reason) for name, health in healths.items()} == NO_GPU


def test_the_history_tells_which_gpus_to_expect_and_since_when_one_is_gone() -> None:
    seen: dict[str, Condition] = {"uuid": "A", "name": "card A"}
    events: list[tuple[float, str, dict[str, Condition]]] = [
        (1.0, GPU_SEEN, seen),
        (1.0, GPUS, {"old": None, "new": "A"}),
        (2.0, GPU_SEEN, {"uuid": "B", "name": "card B"}),
        (2.0, GPUS, {"old": "A", "new": "A,B"}),
        (3.0, GPUS, {"old": "A,B", "new": "B"}),
        (4.0, GPUS, {"old": "B", "new": ""}),
    ]
    assert presence.remembered(events[:4]) == {"A": Expected("card A"), "B": Expected("card B")}
    assert presence.remembered(events) == {
        "A": Expected("card A", 3.0),
        "B": Expected("card B", 4.0),
    }
    assert presence.remembered([*events, (5.0, GPU_FORGOTTEN, {"uuid": "A"})]).keys() == {"B"}
    back = [*events, (5.0, GPU_FORGOTTEN, seen), (6.0, GPU_SEEN, seen)]
    assert presence.remembered(back)["A"] == Expected("card A")


@pytest.mark.parametrize(
    ("nvml", "failure", "fix"),
    [
        ("driver_not_loaded", NONE, "f"),
        ("blocked_by_the_operating_system", NONE, "f"),
        ("library_missing", NONE, "stray?"),
        ("hung", NONE, "stray?"),
        (None, NONE, "stray?"),
        ("driver_not_loaded", HUNG, None),
    ],
)
def test_why_cuda_finds_no_device_nvml_knows_better(
    nvml: str | None, failure: Failure, fix: str | None
) -> None:
    after = inventory_taken(Inventory(failure=failure), 2.0)(machine(nvml=nvml))
    assert (after.health["cuda"].level, after.health["cuda"].fix) == (Level.FAILED, fix)


def test_a_gpu_that_others_see_in_wsl_reaches_it() -> None:
    for wsl, helped in (("2", True), ("", False)):
        snapshot = machine(wsl=wsl, nvml=None, expected=("GPU-1",))
        snapshot = says("nvml", uuid="GPU-1")(snapshot)
        after = inventory_taken(Inventory(failure=NONE), 2.0)(snapshot)
        assert after.health["cuda"].level is Level.FAILED
        assert ("the driver was replaced" in str(after.health["cuda"].fix)) is helped
