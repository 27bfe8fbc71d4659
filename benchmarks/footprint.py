"""What the agent and root weigh after an hour of the schedule in a minute, over a kept history.

    .venv/bin/python benchmarks/footprint.py [--days 20] [--seconds 60]

A whole ``gpud run`` with stand-in drivers and every probe; viewers ask for the page and for charts
of an hour to a year meanwhile. The budgets: agent 64 MB, root 40 MB. Exit code 1 beyond them.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.cost import LAPTOP
from benchmarks.history import DAY_S, MODES, lived, templates
from benchmarks.start import rss_mb
from gpud.agent.history.store import Store
from tests.e2e.program import Program, cuda, nvml, program, until

AGENT_MB, ROOT_MB = 64, 40
HOUR_IN_A_MINUTE = {
    "telemetry_interval_s": 0.2,
    "small_interval_s": 1.0,
    "large_interval_s": 15.0,
    "jitter_ratio": 0.1,
}
SPANS_S = {"an hour": DAY_S / 24, "a day": DAY_S, "a month": 30 * DAY_S, "a year": 365 * DAY_S}


def keep(state: Path, days: int) -> None:
    """Write a history of so many days that anyone may lead on."""
    state.mkdir(parents=True)
    store = Store(state)
    store.read(lambda c: c.execute("PRAGMA synchronous=OFF"))  # to be done today
    reports, began_s = templates(), time.time() // 3600 * 3600 - days * DAY_S
    for number in range(days):
        lived(store, number, began_s, reports)
    store.close()
    for path in (state, *state.iterdir()):
        path.chmod(0o777)


def weighed(gpud: Program, when: str) -> tuple[float, float]:
    """Print a line, and give the MB of agent and root."""
    agent = gpud.agent_pid()
    assert agent is not None
    assert gpud.process is not None
    found = rss_mb(agent), rss_mb(gpud.process.pid)
    print(f"{when:<24} agent {found[0]:5.1f} MB  root {found[1]:5.1f} MB", flush=True)
    return found


def main() -> int:
    """Print what they weigh as things happen."""
    parser = argparse.ArgumentParser(description="what gpud weighs")
    parser.add_argument("--days", type=int, default=20, help="of the history there is")
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    with program(schedule=HOUR_IN_A_MINUTE, probes={}) as gpud:
        gpud.settings |= {"cuda": cuda(gpud.home, LAPTOP), "nvml": nvml(gpud.home)}
        keep(gpud.home / "var/lib/gpud", given.days)
        gpud.start()
        until(gpud.metrics, "the first answer", 60)
        found = [weighed(gpud, "first answer")]
        gpud.health("probes", 0, within_s=60)
        found.append(weighed(gpud, "every probe has run"))
        for name, span_s in SPANS_S.items():
            charts(gpud, span_s)
            found.append(weighed(gpud, f"charts of {name}"))
        until_s = time.monotonic() + given.seconds
        while time.monotonic() < until_s:
            gpud.get("/")
            gpud.metrics()
            charts(gpud, DAY_S)
            time.sleep(1)
        found.append(weighed(gpud, f"{given.seconds:g} s later"))
    agent, root = (max(side) for side in zip(*found, strict=True))
    print(f"at most: agent {agent:.1f} of {AGENT_MB} MB, root {root:.1f} of {ROOT_MB} MB")
    return 0 if agent <= AGENT_MB and root <= ROOT_MB else 1


def charts(gpud: Program, span_s: float) -> None:
    """Ask for what a page of charts shows."""
    since_s = time.time() - span_s
    for probe in MODES:
        gpud.get(f"/api/v1/history?probe={probe}&since={since_s:.0f}&points=800")


if __name__ == "__main__":
    sys.exit(main())
