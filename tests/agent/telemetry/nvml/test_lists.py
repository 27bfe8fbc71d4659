"""What NVML gives as lists, the processes on a GPU and its Xid errors: neither is just believed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gpud.core.fields import plausible
from tests.agent.telemetry.nvml import asking
from tests.standins.build import build_libnvml, rewrite_script

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_libnvml(tmp_path_factory.mktemp("nvml"))


def test_a_list_that_grows_between_two_calls_is_read_whole(library: Path) -> None:
    pids = ",".join(str(pid) for pid in range(1000, 1040))
    rewrite_script(library, f"device.0.compute_pids {pids}\ndevice.0.claimed_processes 2\n")
    assert asking.values(library)["processes"] == 40.0


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("device.0.claimed_processes 4294967295\n", "failed"),
        ("device.0.claimed_processes 1000000\n", "failed"),
        ("fail nvmlDeviceGetGraphicsRunningProcesses_v3 7\n", "failed"),
        ("fail nvmlDeviceGetGraphicsRunningProcesses_v3 4\n", "not_permitted"),
        (
            "device.0.compute_pids none\ndevice.0.graphics_pids none\n",
            "unsupported",
        ),
    ],
)
def test_a_list_that_is_not_to_be_had_or_believed_is_no_count(
    library: Path, script: str, reason: str
) -> None:
    rewrite_script(library, script)
    fields = asking.values(library)
    assert fields["processes"] == reason
    assert fields["power_watts"] == 23.5


# Xids


def test_xids_are_counted_from_the_drivers_events_each_once(library: Path) -> None:
    rewrite_script(
        library,
        "devices 2\ndevice.0.event_types 8\ndevice.1.event_types 8\n"
        "device.0.xid 31 2\ndevice.1.xid 79\ndevice.0.xid 13\n",
    )
    first, second = asking.answers(library, times=2)
    for answer in (first, second):
        fields = asking.plain(asking.of(answer["readings"], 0))
        assert (fields["xids"], fields["xid_last"]) == ("13:1,31:2", 13.0)
        assert asking.plain(asking.of(answer["readings"], 1))["xids"] == "79:1"


def test_xids_of_a_former_helper_are_counted_on_by_uuid(library: Path) -> None:
    rewrite_script(library, "devices 2\ndevice.0.event_types 8\ndevice.1.event_types 8\n")
    uuids = [asking.values(library, gpu=gpu)["uuid"] for gpu in (0, 1)]
    earlier = json.dumps({uuids[0]: ["31:2,79:1", 79.0], "GPU-gone": ["13:1", 13.0]})
    rewrite_script(
        library,
        "devices 2\ndevice.0.event_types 8\ndevice.1.event_types 8\ndevice.0.xid 31 2\n",
    )
    [answer] = asking.answers(library, f"--xids={earlier}")
    first, second = (asking.plain(asking.of(answer["readings"], gpu)) for gpu in (0, 1))
    assert (first["xids"], first["xid_last"]) == ("31:4,79:1", 31.0)
    assert (second["xids"], second["xid_last"]) == ("none", 0.0)
    rewrite_script(library, "device.0.event_types 8\n")
    assert asking.values(library, f"--xids={earlier}")["xid_last"] == 79.0


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("device.0.xid 79\n", "unsupported"),  # the driver offers none, as Windows does
        ("device.0.event_types none\n", "unsupported"),
        ("device.0.event_types 8\nfail nvmlEventSetCreate 999\n", "failed"),
        ("device.0.event_types 8\nfail nvmlDeviceRegisterEvents 4\n", "not_permitted"),
        ("device.0.event_types 8\nfail nvmlEventSetWait_v2 999\n", "failed"),
    ],
)
def test_where_no_events_are_to_be_had_there_are_no_xids_either(
    library: Path, script: str, reason: str
) -> None:
    rewrite_script(library, script)
    fields = asking.values(library)
    assert (fields["xids"], fields["xid_last"]) == (reason, reason)
    assert fields["power_watts"] == 23.5


def test_an_endless_or_senseless_stream_of_events_is_bounded(library: Path) -> None:
    senseless = "".join(
        f"device.0.xid {code}\n" for code in [0, 2**64 - 1, 2**32, 1001, *range(1, 41)]
    )
    endless = f"device.0.event_types 8\n{senseless}device.0.xid 40 {2**62}\n"
    rewrite_script(library, endless)
    for answer in asking.answers(library, times=3):
        fields = asking.plain(asking.of(answer["readings"]))
        codes = dict(part.split(":") for part in str(fields["xids"]).split(","))
        assert len(codes) == 16
        assert all(0 < int(code) <= 40 for code in codes)
        assert plausible("xids", fields["xids"]) == fields["xids"]
        assert len(str(fields["xids"])) < 256
        assert fields["power_watts"] == 23.5
