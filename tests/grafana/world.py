"""What dashboards are tried on: live gpuds, Debian's Prometheus, the rules of deploy/prometheus.

The machine has everything there is to see: dockerd, NVML that tells all, a driver that was replaced
and made launches slower. It is scraped as several, because drivers are compared from five machines
on; one of them is always on, one pushes.
"""

from __future__ import annotations

import contextlib
import subprocess
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.dockerd import private_dockerd
from tests.e2e import scraping
from tests.e2e.driven import DATA_CENTRE, NEW, SCHEDULE, Machine, alerts
from tests.e2e.program import Program, only, program
from tests.e2e.scraping import api, number
from tests.fleet import tools
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LABS: Final = tuple(f"lab{number}" for number in range(1, 6))
LAB: Final = LABS[0]
MACHINES: Final = len(LABS) + 1  # one of them is scraped under its address too
SLOWER: Final = 1.4
KNOWN: Final = 15
"""Runs of the old driver: enough to compare with, where the new one is so much slower."""
SLOW: Final = 'alertname="GpudLatencyRegression", probe="launch", mode="submit"'
LAUNCHES: Final = "gpud_submit_latency_seconds_count"
TARGETS: Final = "relabel_configs: [{}]".format(
    ", ".join(
        f"{{source_labels: [instance], regex: {name}, target_label: {label}, replacement: 'true'}}"
        for name, label in zip(LABS, ("always_on", "pushed"), strict=False)
    )
)
WINDOW: Final = "20s"
"""What a rate is taken over, in place of Grafana's interval."""


class Rich(Machine):
    """A machine that has everything."""

    def nvml_script(self) -> str:
        """Tell what a data-centre card tells."""
        return super().nvml_script() + DATA_CENTRE


@dataclass(frozen=True, slots=True)
class World:
    """Where Prometheus answers, and the moment that everything is asked of."""

    port: int
    now_s: float

    def ask(self, expression: str, over_s: float = 0.0) -> list[dict[str, Any]]:
        """Give the series of an expression: now, or over the last ``over_s`` in steps of 5 s.

        Errors: ``AssertionError`` with Prometheus' own words.
        """
        if over_s:
            start = str(self.now_s - over_s)
            asked = {"start": start, "end": str(self.now_s), "step": "5"}
            found = api(self.port, "query_range", query=expression, **asked)
        else:
            found = api(self.port, "query", query=expression, time=str(self.now_s))
        assert found is not None, f"refused: {expression}"
        series: list[dict[str, Any]] = found["result"]
        return series

    def rules(self) -> list[dict[str, Any]]:
        """Give every rule as Prometheus has it, with what went wrong."""
        groups = api(self.port, "rules")["groups"]
        return [
            rule | {"labels": rule.get("labels", {})} for group in groups for rule in group["rules"]
        ]

    def alerts(self, name: str) -> list[dict[str, Any]]:
        """Give the alerts of a rule that fire."""
        alerts = api(self.port, "alerts")["alerts"]
        firing = [alert for alert in alerts if alert["state"] == "firing"]
        return [alert for alert in firing if alert["labels"]["alertname"] == name]

    def values(self, label: str, series: str) -> list[str]:
        """Give the values of a label, as Grafana fills a variable."""
        values: list[str] = api(self.port, f"label/{label}/values", **{"match[]": series})
        return values


@contextlib.contextmanager
def world(folder: Path) -> Iterator[World]:
    """Bring everything up, replace the driver, and wait until all of it has been seen."""
    with private_dockerd() as dockerd, program() as kept:
        rich = _rich(kept, dockerd.settings())
        pattern = tools.rules(folder / "hurried", (86400, 1))
        others = dict.fromkeys(LABS, kept.port)
        rich.start()
        with scraping.prometheus(kept.port, folder, pattern, others=others, job=TARGETS) as port:
            until(lambda: rich.good() >= KNOWN, f"{KNOWN} runs", every_s=0.2)
            [old] = dockerd.dockerds()
            subprocess.run(["kill", "-9", str(old)], check=True)
            rich.swap(NEW, SLOWER)
            until(lambda: alerts(kept), "the alert", every_s=0.2)
            _all_seen(port)
            yield World(port, number(port, "vector(time())"))


def _rich(gpud: Program, dockerd: dict[str, Any]) -> Rich:
    made = Rich(gpud, virtual=False)
    gpud.settings |= {
        "dockerd": dockerd,
        "schedule": SCHEDULE | {"large_interval_s": 2.0},
        "probes": only("cpu_call", "launch", "nbody", "triad"),
    }
    return made


def _all_seen(port: int) -> None:
    wanted = (
        f'count_over_time(gpud_alerts_firing{{instance="{LAB}"}}[5m]) > 0',
        f'gpud_driver_verdict{{instance="{LAB}", state="regressed"}} == 1',
        f'ALERTS{{instance="{LAB}", {SLOW}, alertstate="firing"}}',
        f"sum(max by (instance) (gpud_regression_active)) == {MACHINES}",
        *(
            f'stream:gpud_probe_cost_over_usual:ratio{{instance="{LAB}", mode="{mode}"}}'
            for mode in ("submit", "nbody", "triad")
        ),
        f'gpu_driver:gpud_slowdown_ratio:newest{{driver_version="{NEW}", mode="triad"}}',
        f'gpud_dockerd_restarts_total{{instance="{LAB}"}}',
        f'gpud_gpu_xid_errors_total{{instance="{LAB}"}}',
        f'driver:gpud_probe_cost_over_best:ratio{{driver_version="{NEW}", mode="submit"}}',
        f'driver:gpud_probe_cost_over_best:stderrs{{driver_version="{NEW}", mode="submit"}}',
        f'sum(rate({LAUNCHES}{{instance="{LAB}", mode="submit"}}[{WINDOW}])) > 0',
    )
    for expression in wanted:
        until(partial(_seen, port, expression), expression, every_s=0.2)


def _seen(port: int, expression: str) -> bool:
    return bool((api(port, "query", query=expression) or {}).get("result"))
