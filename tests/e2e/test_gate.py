"""A good neighbour, seen from outside: when somebody else needs the GPU or the battery."""

from __future__ import annotations

import html
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.program import Program, cuda, nvml, only, program
from tests.standins.build import rewrite_script
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

HASTY: dict[str, dict[str, Any]] = {
    "gate": {"wait_for_idle_s": 0.5, "look_again_s": 0.1},
    "schedule": {
        "telemetry_interval_s": 1.0,
        "small_interval_s": 0.7,
        "large_interval_s": 1.5,
        "jitter_ratio": 0.0,
    },
    "probes": only("cpu_call", "cpu_matmul", "launch", "triad"),
}
UUID = "GPU-6d0c5f2e-8a41-4b7d-9e13-00000000000{}"


def supply(gpud: Program, name: str, **facts: str) -> None:
    """Write what the kernel says of a power supply."""
    folder = Path(gpud.sysroot, "sys/class/power_supply", name)
    folder.mkdir(parents=True, exist_ok=True)
    for fact, text in facts.items():
        (folder / fact).write_text(f"{text}\n")


@pytest.fixture
def gpud() -> Iterator[Program]:
    with program(**HASTY) as made:
        yield made


def skips(gpud: Program, probe: str, reason: str) -> float:
    return gpud.value("gpud_probe_skips_total", probe=probe, reason=reason) or 0.0


def probe(gpud: Program, name: str, gpu: int = 0) -> dict[str, Any] | None:
    """What the status says of a probe's last run on one GPU."""
    probes = (gpud.status() or {"probes": []})["probes"]
    return next((one for one in probes if (one["probe"], one["gpu"]) == (name, gpu)), None)


def before(gpud: Program, name: str) -> dict[str, Any]:
    """The conditions stored with its last run."""
    last = probe(gpud, name)
    found: dict[str, Any] = {} if last is None else last["conditions"]
    return found


def test_busy_gpu_is_left_alone_and_measured_afterwards(
    gpud: Program,
) -> None:
    library = nvml(gpud.home, "device.0.utilization_gpu_percent 97\n")
    gpud.settings |= {"cuda": cuda(gpud.home), "nvml": library}
    gpud.start()
    until(lambda: skips(gpud, "launch", "gpu_busy") >= 2, "small probes left out")
    until(lambda: skips(gpud, "triad", "gpu_busy") >= 1, "large probes left out")
    assert gpud.value("gpud_probe_runs_total", probe="launch") == 0
    assert (gpud.value("gpud_probe_skipped_in_a_row", gpu="0", probe="launch") or 0) >= 2
    assert (gpud.value("gpud_probe_runs_total", probe="cpu_call") or 0) >= 1
    assert gpud.value("gpud_own_gpu_seconds_total") == 0

    rewrite_script(Path(library["library"]), "device.0.utilization_gpu_percent 2\n")
    helper = until(gpud.nvml_helper, "the telemetry helper, which reads its script once")
    os.kill(helper, signal.SIGKILL)
    until(lambda: before(gpud, "launch").get("before.utilization_gpu_ratio") == 0.02, "a run")
    until(lambda: probe(gpud, "triad"), "a large one too")
    assert gpud.value("gpud_probe_skipped_in_a_row", gpu="0", probe="launch") == 0
    assert before(gpud, "launch")["after.throttle_reasons"] == "idle"


def test_of_two_gpus_the_busy_one_is_left_alone_whatever_nvml_calls_it(gpud: Program) -> None:
    # NVML's first GPU is CUDA's second: only the UUID tells.
    script = (
        f"devices 2\ndevice.0.uuid {UUID.format(1)}\ndevice.1.uuid {UUID.format(0)}\n"
        "device.0.utilization_gpu_percent 97\n"
    )
    gpud.settings |= {"cuda": cuda(gpud.home, "devices 2\n"), "nvml": nvml(gpud.home, script)}
    gpud.start()
    until(lambda: skips(gpud, "launch", "gpu_busy") >= 2, "the busy one left out")
    gpus = gpud.status_when(lambda said: len(said["gpus"]) == 2, "both GPUs")["gpus"]
    idle, busy = (gpus[UUID.format(index)]["number"] for index in (0, 1))
    until(lambda: probe(gpud, "launch", idle), "the idle one measured")
    assert probe(gpud, "launch", busy) is None


def test_beside_a_desktop_that_uses_12_percent_every_probe_runs_and_is_marked_busy(
    gpud: Program,
) -> None:
    script = "device.0.utilization_gpu_percent 12\ndevice.0.clocks_event_reasons 4\n"
    gpud.settings |= {"cuda": cuda(gpud.home), "nvml": nvml(gpud.home, script)}
    gpud.start()
    until(lambda: flagged(gpud, "busy") >= {"launch", "triad"}, "the flag of both last runs")
    for name, mode, family in (
        ("launch", "submit", "gpud_probe_latency_median_seconds"),
        ("triad", "triad", "gpud_probe_bytes_per_second"),
    ):
        assert gpud.value(family, gpu="0", probe=name, mode=mode)
        assert skips(gpud, name, "gpu_busy") == 0
    for flag in ("busy", "low"):
        assert gpud.value("gpud_probe_flagged_runs_total", probe="launch", flag=flag)
    why = "other programs use the GPU, so its runs are marked busy and not compared"
    assert why in html.unescape(gpud.get("/").decode())
    until(lambda: why in gpud.cli("status").stdout, "the same words in gpud status")


def test_a_gpu_used_to_35_percent_is_named_at_its_first_skipped_run(gpud: Program) -> None:
    gpud.settings |= {
        "cuda": cuda(gpud.home),
        "nvml": nvml(gpud.home, "device.0.utilization_gpu_percent 35\n"),
        "schedule": HASTY["schedule"] | {"small_interval_s": 60.0, "large_interval_s": 600.0},
        "probes": only("cpu_call", "launch"),
    }
    gpud.start()
    document = gpud.status_when(lambda said: said["put_off"], "the first skip")
    [skipped] = document["put_off"]
    assert skipped["probe"] == "launch"
    assert (skipped["reason"], skipped["count"], skipped["starving"]) == ("gpu_busy", 1, False)
    assert skipped["utilization_gpu_ratio"] == 0.35
    assert document["state"] == "ok"
    why = "1 probe is skipped on GPU 0: other programs use 35 % of the GPU"
    assert why in html.unescape(gpud.get("/").decode())
    until(lambda: why in gpud.cli("status").stdout, "the same words in gpud status")


def flagged(gpud: Program, flag: str) -> set[str]:
    """The probes whose last run has a flag."""
    return {
        one
        for one in ("launch", "triad")
        if gpud.value("gpud_probe_flag", gpu="0", probe=one, flag=flag)
    }


def test_on_battery_large_probes_rest_until_the_plug_is_in(gpud: Program) -> None:
    gpud.sysroot = str(gpud.home / "root")
    gpud.settings |= {"cuda": cuda(gpud.home), "nvml": nvml(gpud.home)}
    supply(gpud, "AC1", type="Mains", online="0")
    supply(gpud, "BAT1", type="Battery", status="Discharging", capacity="64")
    gpud.start()
    until(lambda: skips(gpud, "triad", "on_battery") >= 1, "large probes left out")
    until(lambda: skips(gpud, "cpu_matmul", "on_battery") >= 1, "the CPU's too")
    small = until(lambda: probe(gpud, "launch"), "a small one")
    assert small["conditions"]["before.ac"] is False
    assert small["conditions"]["before.battery_ratio"] == 0.64
    supply(gpud, "AC1", type="Mains", online="1")
    until(lambda: probe(gpud, "triad"), "a large one on mains")
