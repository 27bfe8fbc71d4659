"""A good neighbour, seen from outside: when somebody else needs the GPU."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.program import Program, cuda, nvml, only, program
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

HASTY: dict[str, dict[str, Any]] = {
    "schedule": {
        "telemetry_interval_s": 1.0,
        "small_interval_s": 0.7,
        "large_interval_s": 1.5,
        "jitter_ratio": 0.0,
    },
    "probes": only("cpu_call", "cpu_matmul", "launch", "triad"),
}


@pytest.fixture
def gpud() -> Iterator[Program]:
    with program(**HASTY) as made:
        yield made


def probe(gpud: Program, name: str, gpu: int = 0) -> dict[str, Any] | None:
    """What the status says of a probe's last run on one GPU."""
    probes = (gpud.status() or {"probes": []})["probes"]
    return next((item for item in probes if (item["probe"], item["gpu"]) == (name, gpu)), None)


def shown(gpud: Program, words: str) -> None:
    """Wait until the words are on the page and in ``gpud status``."""
    until(lambda: words in html.unescape(gpud.get("/").decode()), f"{words!r} on the page")
    until(lambda: words in gpud.cli("status").stdout, f"{words!r} in gpud status")


def test_busy_gpu_is_left_alone_and_one_with_a_desktop_is_measured_and_marked(
    gpud: Program,
) -> None:
    busy = nvml(gpud.home, "device.0.utilization_gpu_percent 35\n")
    gpud.settings |= {"cuda": cuda(gpud.home), "nvml": busy}
    gpud.start()
    document = gpud.status_when(lambda d: d["put_off"] and d["state"] == "ok", "a skip, all well")
    skipped = document["put_off"][0]
    assert (skipped["reason"], skipped["utilization_gpu_ratio"]) == ("gpu_busy", 0.35)
    assert skipped["starving"] is False
    until(lambda: gpud.skips("launch", "gpu_busy") >= 2, "small probes left out")
    until(lambda: gpud.skips("triad", "gpu_busy") >= 1, "large probes left out")
    shown(gpud, "skipped on GPU 0: other programs use 35 % of the GPU")
    assert gpud.runs("launch") == 0
    assert (gpud.value("gpud_probe_skipped_in_a_row", gpu="0", probe="launch") or 0) >= 2
    assert gpud.runs() >= 1
    assert gpud.value("gpud_own_gpu_seconds_total") == 0

    gpud.rewrite("nvml", "device.0.utilization_gpu_percent 12\n")
    gpud.kill_nvml_helper()  # which reads its script once
    flag = "gpud_probe_flag"
    until(lambda: gpud.value(flag, gpu="0", probe="launch", flag="busy"), "a small run")
    until(lambda: gpud.value(flag, gpu="0", probe="triad", flag="busy"), "a large one")
    conditions = (probe(gpud, "launch") or {})["conditions"]
    assert conditions["before.utilization_gpu_ratio"] == 0.12
    assert conditions["after.throttle_reasons"] == "idle"
    assert gpud.value("gpud_probe_skipped_in_a_row", gpu="0", probe="launch") == 0
    shown(gpud, "other programs use the GPU, so its runs are marked busy and not compared")
