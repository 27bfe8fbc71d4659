"""Panels that may be empty, each with its reason and what else Prometheus has where that holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tests.grafana.world import LAB, LAPTOP, MACHINES

if TYPE_CHECKING:
    from collections.abc import Mapping


class Reason(NamedTuple):
    """Why a panel is empty, and an expression that has a result when it is so."""

    why: str
    holds: str


OF_JUDGED: Final = (
    *("Figures that are worse", "Slower than usual by", "Runs in the slow power state"),
    *("Latency, median of each run", "The CPU beside it, slower than usual by"),
)


def _common(instance: str) -> dict[str, Reason]:
    of = f'instance="{instance}"'
    settled = f'gpud_judged_samples_total{{{of}, probe=~"nbody|triad"}}'
    few = Reason("a large probe has run a few times only", f"min({settled}) < 9")
    return {
        "n-body in a container over n-body beside it": Reason(
            "no container ran",
            f'absent(gpud_probe_runs_total{{{of}, probe="container_nbody"}} > 0)',
        ),
        "Fields without a value": Reason(
            "whoever is asked tells everything", f"gpud_telemetry_level{{{of}}} >= 2"
        ),
        "Runs left out": Reason(
            "every run was started", f"sum(gpud_probe_skipped_in_a_row{{{of}}}) == 0"
        ),
        "Runs that failed": Reason(
            "every run was good", f'gpud_health{{{of}, component="probes"}} == 0'
        ),
        "Runs that were marked": Reason("nothing disturbed", f"absent(gpud_probe_flag{{{of}}})"),
        "Runs with two kinds of launch": Reason(
            "launches had one hump",
            f'gpud_probe_latency_median_seconds{{{of}, probe="launch", mode="submit"}}',
        ),
        "Share of launches in the slower hump": Reason(
            "likewise",
            f'gpud_probe_latency_median_seconds{{{of}, probe="launch", mode="submit"}}',
        ),
        "Memory and bus": few,
        "Arithmetic": few,
        "annotation Machine paused": Reason(
            "the machine did not sleep", f"gpud_vm_paused_seconds_total{{{of}}} < 5"
        ),
    }


def _lab() -> dict[str, Reason]:
    well = Reason("all is well", f'sum(gpud_health{{instance="{LAB}"}}) == 0')
    return {**_common(LAB), "Reasons": well}


def _laptop() -> dict[str, Reason]:
    of = f'instance="{LAPTOP}"'
    no_nvml = Reason("there is no NVML", f"gpud_telemetry_level{{{of}}} == 2")
    no_dockerd = Reason(
        "gpud leaves dockerd alone", f'gpud_dockerd_owner_info{{{of}, owner="none"}}'
    )
    unchanged = Reason("nothing changed", f"sum(gpud_changes_total{{{of}}}) == 0")
    quiet = Reason("nothing fires", f"sum(gpud_alerts_firing{{{of}}}) == 0")
    not_run = Reason(
        "the probe is switched off",
        f'absent(gpud_probe_runs_total{{{of}, probe=~"nbody|crossover"}})',
    )
    judged = f"min(gpud_judged_samples_total{{{of}}})"
    of_nvml = (
        *(
            "Temperature",
            "Power",
            "What holds the clocks down",
            "Time below the wanted clocks",
            "Fan",
        ),
        *("Clocks", "Utilisation", "Memory", "Performance state", "Processes on the GPU"),
        *("PCIe link, now and at most", "PCIe traffic", "PCIe replays", "Memory errors"),
        *("Xid errors since the agent started", "Age of the latest readings", "Driver", "Fan"),
    )
    of_dockerd = (
        *("dockerd", "dockerd answers", "Ping and start of dockerd", "dockerd starts after an end"),
        "Whose dockerd, and how it hands out GPUs",
    )
    return {
        **_common(LAPTOP),
        **dict.fromkeys(of_nvml, no_nvml),
        **dict.fromkeys(of_dockerd, no_dockerd),
        **dict.fromkeys(OF_JUDGED, Reason("few runs were judged", f"{judged} < 9")),
        "Alerts that fire": quiet,
        "annotation Alerts": quiet,
        "Changes for the worse that hold": Reason(
            "nothing became slower", f"max(gpud_regression_active{{{of}}}) == 0 or {judged} < 9"
        ),
        "The latest driver, judged": unchanged,
        "annotation Driver replaced": unchanged,
        "annotation Other changes": unchanged,
        "Arithmetic": not_run,
        "Smallest matrix worth the GPU": not_run,
    }


def _fleet(kind: str) -> dict[str, Reason]:
    of_other = {
        "latency": "Median throughput by model and driver",
        "throughput": "Median latency by model and driver",
    }
    other = {
        "latency": 'gpud_probe_latency_median_seconds{probe="launch", mode="submit"}',
        "throughput": 'gpud_probe_bytes_per_second{probe="triad", mode="triad"}',
    }
    answer = f"count(time() - timestamp(gpud_build_info) < 60) == {MACHINES}"
    found = {
        of_other[kind]: Reason("the chosen probe measures something else", other[kind]),
        "Silent machines": Reason("all of them answer", answer),
        "Restarts in the time chosen": Reason(
            "no agent ended", "sum(gpud_agent_restarts_total) == 0"
        ),
    }
    same = Reason("the machines are one and the same", f"count(up) == {MACHINES}")
    found["Each driver against the best of its model"] = same
    if kind == "throughput":
        few = Reason(
            "a large probe has run a few times only",
            'min(gpud_judged_samples_total{probe="triad"}) < 9',
        )
        found |= {
            "Slower than usual by, the middle machine": few,
            "Models and their drivers": few,
        }
    return found


MAY_BE_EMPTY: Final[Mapping[str, Mapping[str, Reason]]] = {
    "lab": _lab(),
    "laptop": _laptop(),
    "fleet, by a latency": _fleet("latency"),
    "fleet, by a throughput": _fleet("throughput"),
}
"""By who looks at what, and the title of the panel."""
