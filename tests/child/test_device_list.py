"""What a child says the GPUs are: their order, their instances, who shares them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gpud.core.sample import Reason
from tests.child.running import GPU, ask, run
from tests.standins.build import build_libcuda

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    Listed = Callable[..., list[dict[str, Any]]]

SECOND = f"{GPU[:-1]}1"
MIG = "MIG-3b7e91c4-0d52-56a8-b16f-000000000000"


@pytest.fixture
def listed(tmp_path: Path) -> Listed:
    def of(script: str, without: Iterable[str] = ()) -> list[dict[str, Any]]:
        library = build_libcuda(tmp_path, script, without)
        ended = ask("--inventory", json.dumps({"cuda_library": str(library)}))
        found: list[dict[str, Any]] = ended.document["devices"]
        return found

    return of


def test_every_gpu_is_listed_with_its_own_uuid(listed: Listed) -> None:
    assert [device["uuid"] for device in listed("devices 2")] == [GPU, SECOND]


def test_a_mig_instance_has_its_own_kind_of_uuid_and_its_profile(listed: Listed) -> None:
    (device,) = listed("device.0.mig 1g.10gb")
    assert (device["uuid"], device["mig"]) == (MIG, "1g.10gb")


def test_a_mig_instance_is_measured_by_its_uuid(tmp_path: Path) -> None:
    library = build_libcuda(tmp_path, "device.0.mig 3g.40gb")
    ended = run("launch", library, gpu=MIG)
    assert ended.samples
    assert ended.document["device"]["mig"] == "3g.40gb"
    whole = run("launch", library, gpu=GPU).failure
    assert whole["reason"] == Reason.NO_DEVICE
    assert "gone" in whole["advice"]


def test_a_gpu_that_mps_shares_says_so(listed: Listed) -> None:
    assert [device["mps"] for device in listed("devices 2\ndevice.1.mps 1")] == [False, True]


def test_older_driver_that_does_not_know_mps_is_listed_with_mps_unknown(listed: Listed) -> None:
    (device,) = listed("driver_version 11050", ["cuDeviceGetUuid_v2"])
    assert (device["uuid"], device["mig"], device["mps"]) == (GPU, None, None)


def test_the_folder_of_windows_driver_store_that_the_driver_was_loaded_from_is_told(
    tmp_path: Path,
) -> None:
    store = tmp_path / "usr/lib/wsl/drivers/nv_dispi.inf_amd64_1"
    store.mkdir(parents=True)
    for folder, name in ((store, "nv_dispi.inf_amd64_1"), (tmp_path, None)):
        library = build_libcuda(folder)
        ended = ask("--inventory", json.dumps({"cuda_library": str(library)}))
        assert ended.document["driver_folder"] == name
        assert ended.document["library"] == str(library)
