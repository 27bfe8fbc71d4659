"""The words that telemetry brings: modes and reasons, each one series that is 1 or 0."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from gpud.core import throttle
from gpud.core.fields import LONGEST_TEXT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.metrics_core import Metric

    from gpud.core.sample import Reading

SWITCHES = {
    "ecc_mode": ("gpud_gpu_ecc_enabled", "nvmlDeviceGetEccMode"),
    "mig_mode": ("gpud_gpu_mig_enabled", "nvmlDeviceGetMigMode"),
}
POSITIONS = {"enabled": 1.0, "disabled": 0.0}

EXPOSED = ("yes", "no", "disabled")

_XID = re.compile(r"([0-9]{1,5}):([0-9]{1,15})")  # no more digits than a double holds exactly


def families(readings: Iterable[Reading]) -> Iterator[Metric]:
    """Yield what is known; a word that nobody knows is left out rather than guessed at."""
    words: dict[str, dict[int | None, str]] = {}
    for reading in readings:
        if type(reading.value) is str:
            words.setdefault(reading.field, {}).setdefault(reading.gpu, reading.value)
    exposed = GaugeMetricFamily(
        "gpud_gpu_exposed",
        "1 for whether the system offers a GPU at all: /dev/dxg in WSL, a PCI device elsewhere.",
        labels=["state"],
    )
    if (said := words.get("exposed", {}).get(None)) in EXPOSED:
        for state in EXPOSED:
            exposed.add_metric([state], float(state == said))
    yield exposed
    for field, (name, asked) in SWITCHES.items():
        switch = GaugeMetricFamily(
            name, f"NVML {asked}; may come from another source.", labels=["gpu"]
        )
        for gpu, position in _by_gpu(words, field):
            if position in POSITIONS:
                switch.add_metric([gpu], POSITIONS[position])
        yield switch
    yield _throttle(words)
    yield _xids(words)


def _throttle(words: dict[str, dict[int | None, str]]) -> Metric:
    family = GaugeMetricFamily(
        "gpud_gpu_throttle_reason",
        "NVML nvmlDeviceGetCurrentClocksEventReasons, 1 for each reason that holds the clocks "
        "down; may come from another source.",
        labels=["gpu", "reason"],
    )
    for gpu, text in _by_gpu(words, "throttle_reasons"):
        holding = set(text.split(",")) - {"none"}
        foreign = not holding <= set(throttle.WORDS)
        for reason in throttle.WORDS:
            family.add_metric([gpu, reason], float(reason in holding))
        family.add_metric([gpu, throttle.UNKNOWN], float(foreign))
    return family


def _xids(words: dict[str, dict[int | None, str]]) -> Metric:
    family = CounterMetricFamily(
        "gpud_gpu_xid_errors",
        "NVML nvmlEventSetWait, critical errors by their Xid since the agent started.",
        labels=["gpu", "xid"],
    )
    for gpu, text in _by_gpu(words, "xids"):
        seen = dict[str, int]()
        parts = text.split(",")
        if len(text) >= LONGEST_TEXT:
            parts.pop()  # it was cut there, and its count may have lost digits
        for part in parts:
            if told := _XID.fullmatch(part):
                seen.setdefault(str(int(told[1])), int(told[2]))
        for code, count in sorted(seen.items(), key=lambda item: int(item[0])):
            family.add_metric([gpu, code], count)
    return family


def _by_gpu(words: dict[str, dict[int | None, str]], field: str) -> list[tuple[str, str]]:
    found = ((gpu, text) for gpu, text in words.get(field, {}).items() if gpu is not None)
    return [(str(gpu), text) for gpu, text in sorted(found)]
