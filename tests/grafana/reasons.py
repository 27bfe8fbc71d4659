"""Panels that may be empty in each view, because what they show did not happen or is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

UNDISTURBED: Final = {
    *("n-body in a container over n-body beside it", "Fields without a value", "Runs left out"),
    *("Runs that failed", "Runs that were marked", "Runs with two kinds of launch"),
    *("Share of launches in the slower hump", "annotation Machine paused"),
}
"""No container ran, no run was disturbed, no launch had two humps, the machine did not sleep."""
RARELY_RUN: Final = {"Memory and bus", "Arithmetic"}
NO_NVML: Final = {
    *("Temperature", "Power", "What holds the clocks down", "Time below the wanted clocks", "Fan"),
    *("Clocks", "Utilisation", "Memory", "Performance state", "Processes on the GPU"),
    *("PCIe link, now and at most", "PCIe traffic", "PCIe replays", "Memory errors"),
    *("Xid errors since the agent started", "Age of the latest readings", "Driver"),
}
NO_DOCKERD: Final = {
    *("dockerd", "dockerd answers", "Ping and start of dockerd", "dockerd starts after an end"),
    "Whose dockerd, and how it hands out GPUs",
}
NOTHING_CHANGED: Final = {
    *("Figures that are worse", "Slower than usual by", "Runs in the slow power state"),
    *("Latency, median of each run", "The CPU beside it, slower than usual by"),
    *("Alerts that fire", "annotation Alerts", "Changes for the worse that hold"),
    *("The latest driver, judged", "annotation Driver replaced", "annotation Other changes"),
}
IN_A_FLEET: Final = {
    *("Silent machines", "Restarts in the time chosen"),
    "Each driver against the best of its model",
}

MAY_BE_EMPTY: Final[Mapping[str, set[str]]] = {
    "lab": UNDISTURBED | RARELY_RUN | {"Reasons"},
    "laptop": UNDISTURBED
    | RARELY_RUN
    | NO_NVML
    | NO_DOCKERD
    | NOTHING_CHANGED
    | {"Smallest matrix worth the GPU"},
    "fleet, by a latency": IN_A_FLEET | {"Median throughput by model and driver"},
    "fleet, by a throughput": IN_A_FLEET
    | {
        *("Median latency by model and driver", "Models and their drivers"),
        "Slower than usual by, the middle machine",
    },
}
"""By view, the titles of panels."""
