"""Drivers swapped and GPUs gone under the real program, while it runs and while it does not."""

from __future__ import annotations

from typing import Any

from tests.e2e.program import Program, cuda, nvml, only, program
from tests.waiting import until

DRIVER = "driver_version 572.16\n"
SWAPPED = "driver_version 576.02\n"
AGAIN = "driver_version 580.88\n"
NO_GPU = ("this machine has no NVIDIA GPU", "this container was given no GPU")


def versions(gpud: Program, kind: str = "driver_version") -> list[tuple[str | None, str]]:
    return [(event["old"], event["new"]) for event in gpud.events(kind)]


def changes(document: dict[str, Any], kind: str) -> list[tuple[str | None, str]]:
    return [(c["old"], c["new"]) for c in document["changes"] if c["kind"] == kind]


def test_replaced_driver_is_one_event_whether_gpud_runs_or_not(gpud: Program) -> None:
    gpud.settings = {"cuda": cuda(gpud.home), "nvml": nvml(gpud.home, DRIVER)}
    gpud.start()
    until(lambda: versions(gpud), "the first sight of a driver")
    assert versions(gpud) == [(None, "572.16")]

    gpud.kill_nvml_helper()
    gpud.health("nvml", 1, "crashed")
    assert versions(gpud) == [(None, "572.16")]  # that nobody says it is no change
    gpud.rewrite("nvml", SWAPPED)
    swapped = [("572.16", "576.02")]
    gpud.status_when(lambda d: changes(d, "driver_version") == swapped, "the new driver")
    until(lambda: versions(gpud)[1:] == swapped, "the change in the history")

    gpud.stop()
    gpud.rewrite("nvml", AGAIN)
    gpud.start()
    swapped.append(("576.02", "580.88"))
    document = gpud.status_when(
        lambda d: changes(d, "driver_version") == swapped, "the driver of the night"
    )
    assert document["counters"]["changes"]["driver_version"] == 1  # since this start
    until(lambda: versions(gpud)[1:] == swapped, "both changes in the history")
    assert "Traceback" not in gpud.logs()


def test_a_gpu_that_is_gone_is_missed_across_restarts_until_it_is_forgotten(gpud: Program) -> None:
    gpud.settings = {"cuda": cuda(gpud.home, "devices 2\n")}
    gpud.start()
    gpud.health("devices", 0)
    both = until(lambda: versions(gpud, "gpus"), "the first sight of the GPUs")[0][1].split(",")
    assert len(both) == 2

    gpud.rewrite("cuda", "devices 1\n")
    lost = gpud.health("devices", 2, "gpu_vanished")
    assert both[1] in lost["detail"]
    until(lambda: versions(gpud, "gpus")[1:] == [(",".join(both), both[0])], "the loss, held twice")

    gpud.stop()
    gpud.start()
    again = gpud.health("devices", 2, "gpu_vanished")
    assert both[1] in again["detail"]
    assert again["detail"].rpartition("since")[2] == lost["detail"].rpartition("since")[2]

    forgotten = gpud.cli("gpus", "forget", both[1])
    assert (forgotten.returncode, both[1] in forgotten.stdout) == (0, True)
    gpud.health("devices", 0)
    [event] = gpud.events("gpu_forgotten")
    assert event["uuid"] == both[1]
    assert "Traceback" not in gpud.logs()


def test_a_machine_without_a_gpu_is_well_and_status_says_so() -> None:
    with program(cuda={}, nvml={}, probes=only("cpu_call")) as gpud:
        gpud.start()
        for component in ("cuda", "nvml", "devices"):
            health = gpud.health(component, 0, "no_gpu")
            assert health["detail"] in NO_GPU
        gpud.status_when(lambda d: d["state"] == "ok" and d["probes"], "everything well")
        request = gpud.cli("status")
        assert request.returncode == 0, request.stdout
        assert "health_changed" not in gpud.logs()  # it was at no moment said to be broken
        restarted = gpud.stop()
        assert restarted == 0
