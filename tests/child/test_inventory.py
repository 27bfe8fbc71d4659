"""What a child says the GPUs are: their order, their instances, who shares them, and why not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gpud.core.sample import Reason
from tests.child.running import GPU, ask, run, scripted
from tests.standins.build import build_libcuda

if TYPE_CHECKING:
    from pathlib import Path

    from tests.child.running import Ended

SECOND = f"{GPU[:-1]}1"
MIG = "MIG-3b7e91c4-0d52-56a8-b16f-000000000000"
OLDER = ("cuDeviceGetUuid_v2",)


def listing(library: Path, **job: Any) -> Ended:
    return ask("--serve", json.dumps({"cuda_library": str(library), **job}))


@pytest.mark.parametrize(
    ("script", "without", "field", "values"),
    [
        ("devices 2", (), "index", [0, 1]),
        ("devices 2", (), "uuid", [GPU, SECOND]),
        ("device.0.name Another", (), "name", ["Another"]),
        ("device.0.mig 1g.10gb", (), "uuid", [MIG]),
        ("device.0.mig 1g.10gb", (), "mig", ["1g.10gb"]),
        ("driver_version 11050", OLDER, "uuid", [GPU]),
        ("driver_version 11050", OLDER, "mig", [None]),
        ("driver_version 11050", OLDER, "mps", [None]),
        ("devices 2\ndevice.1.mps 1", (), "mps", [False, True]),
        ("fail cuDeviceGetAttribute 999 4", (), "mps", [None]),
    ],
)
def test_every_gpu_is_listed_with_what_its_driver_knows(
    tmp_path: Path, script: str, without: tuple[str, ...], field: str, values: list[Any]
) -> None:
    ended = listing(build_libcuda(tmp_path, script, without))
    assert [gpu[field] for gpu in ended.document["devices"]] == values
    assert ended.document["failure"] is None


def test_a_mig_instance_is_measured_by_its_uuid(tmp_path: Path) -> None:
    library = build_libcuda(tmp_path, "device.0.mig 3g.40gb")
    ended = run("launch", library, gpu=MIG)
    assert ended.samples
    assert ended.document["device"]["mig"] == "3g.40gb"
    whole = run("launch", library, gpu=GPU).failure
    assert whole["reason"] == Reason.NO_DEVICE
    assert GPU in whole["detail"]
    assert "gone" in whole["advice"]


@pytest.mark.parametrize(
    ("script", "version"), [("", "12.8"), ("driver_version 0", None)], ids=["told", "withheld"]
)
def test_the_version_of_the_driver_is_listed_or_unknown(
    tmp_path: Path, script: str, version: str | None
) -> None:
    assert listing(build_libcuda(tmp_path, script)).document["cuda_version"] == version


def test_the_folder_of_windows_driver_store_that_the_driver_was_loaded_from_is_listed(
    tmp_path: Path,
) -> None:
    store = tmp_path / "usr/lib/wsl/drivers/nv_dispi.inf_amd64_1"
    store.mkdir(parents=True)
    for folder, name in ((store, "nv_dispi.inf_amd64_1"), (tmp_path, None)):
        library = build_libcuda(folder)
        result = listing(library).document
        assert (result["driver_folder"], result["library"]) == (name, str(library))


def test_inventory_waits_for_a_slow_start_of_the_driver(tmp_path: Path) -> None:
    library = build_libcuda(tmp_path, "delay cuInit 1700")
    assert listing(library, budget_s=0.5).document["devices"][0]["uuid"] == GPU


@pytest.mark.parametrize("function", ["cuDeviceGetName", "cuDeviceTotalMem_v2"])
def test_second_gpu_that_cannot_be_described_costs_only_itself(
    tmp_path: Path, function: str
) -> None:
    script = f"devices 2\nfail {function} 999 1"
    result = listing(build_libcuda(tmp_path, script)).document
    assert [gpu["uuid"] for gpu in result["devices"]] == [GPU]
    assert result["failure"] is None
    (refused,) = result["refused"]
    assert (refused["function"], refused["code"]) == (function, 999)
    assert "GPU 1" in refused["detail"]
    assert scripted(tmp_path / "run", "launch", script).samples


@pytest.mark.parametrize("script", ["devices 0", "fail cuInit 100", "fail cuDeviceGetCount 100"])
def test_an_inventory_without_gpus_says_why(tmp_path: Path, script: str) -> None:
    ended = listing(build_libcuda(tmp_path, script))
    assert (ended.code, ended.document["devices"]) == (1, [])
    assert ended.document["failure"]["reason"] == Reason.NO_DEVICE
