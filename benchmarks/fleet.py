"""What a fleet costs who scrapes, ships and stores it, with scrapes made by gpud's own exporter.

    .venv/bin/python benchmarks/fleet.py [--hosts 100] [--interval 5] [--seconds 60]

Each line is one program in turn, with the same machines: samples a second, CPU of one core for
1,000 hosts that are scraped every 15 s (CPU follows the samples), and resident memory for 1,000
hosts (what it had when it started, and what was added for each machine). The store's lines are
those it had while the shipper above wrote into it. Needs the Debian packages prometheus and
victoria-metrics.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from prometheus_client.parser import text_string_to_metric_families

from tests.fleet import tools
from tests.waiting import until

if TYPE_CHECKING:
    from tests.e2e.scraping import Tool
    from tests.fleet.tools import Fleet

USUAL_INTERVAL_S = 15.0
THOUSAND = 1000


def series(fleet: Fleet) -> int:
    """Count the series of one machine, and one for each of Prometheus' own."""
    url = f"http://127.0.0.1:{fleet.port}/{fleet.names()[0]}/metrics"
    with urllib.request.urlopen(url) as answer:
        return sum(not line.startswith(b"#") for line in answer)


def line(name: str, tool: Tool, before: tuple[float, float], idle_mb: float, run: Run) -> None:
    """Print what a program took since ``before``, scaled to 1,000 hosts."""
    cpu_s, mb = tool.cost()
    used = (cpu_s - before[0]) / run.seconds
    scaled = used * THOUSAND / run.hosts * run.interval_s / USUAL_INTERVAL_S
    memory = idle_mb + max(0.0, mb - idle_mb) * THOUSAND / run.hosts
    print(
        f"{name:<34} {run.samples:>9.0f} {used * 1e6 / run.samples:>8.1f} {scaled:>8.1%}"
        f" {mb:>6.0f} {memory:>7.0f}",
        flush=True,
    )


class Run:
    """How much was measured."""

    def __init__(self, fleet: Fleet, hosts: int, interval_s: float, seconds: float) -> None:
        self.fleet, self.hosts, self.interval_s, self.seconds = fleet, hosts, interval_s, seconds
        self.per_host = series(fleet)
        self.samples = 0.0

    def measure(self, **tools_by_name: tuple[Tool, float]) -> None:
        """Let the programs work, after a time to warm up, and print a line for each."""
        time.sleep(3 * self.interval_s)
        served = sum(self.fleet.tell().values())
        before = {name: tool.cost() for name, (tool, _) in tools_by_name.items()}
        time.sleep(self.seconds)
        scrapes = sum(self.fleet.tell().values()) - served
        self.samples = scrapes * self.per_host / self.seconds
        for name, (tool, idle_mb) in tools_by_name.items():
            line(name.replace("_", " "), tool, before[name], idle_mb, self)


def rules(tool: Tool) -> None:
    """Print what one evaluation of each group of rules took, of those that took longest."""
    with urllib.request.urlopen(f"http://127.0.0.1:{tool.port}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
        took = {
            sample.labels["rule_group"].rpartition(";")[2]: sample.value
            for family in families
            if family.name == "prometheus_rule_group_last_duration_seconds"
            for sample in family.samples
        }
    for name, seconds in sorted(took.items(), key=lambda item: -item[1]):
        print(f"  one evaluation of {name:<24} {seconds * 1e3:>8.1f} ms")


def main() -> None:
    """Measure each program in turn."""
    parser = argparse.ArgumentParser(description="what a fleet costs")
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between scrapes")
    parser.add_argument("--seconds", type=float, default=60.0, help="that each is measured for")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        fleet = stack.enter_context(tools.fleet(given.hosts, round_s=60))
        run = Run(fleet, given.hosts, given.interval, given.seconds)
        print(f"{given.hosts} hosts of {run.per_host} series, every {given.interval:g} s")
        head = ("samples/s", "us each", "1,000", "MB", "1,000")
        print(f"{'':<34} {head[0]:>9} {head[1]:>8} {head[2]:>8} {head[3]:>6} {head[4]:>7}")

        def started(tool: Tool) -> tuple[Tool, float]:
            tool.start()
            stack.callback(tool.stop)
            return tool, tool.cost()[1]

        def writes_into(store: Tool) -> str:
            return f"http://127.0.0.1:{store.port}/api/v1/write"

        scraper = started(
            tools.scraper(folder / "scraper", fleet.url(), interval_s=given.interval, hurry=(2, 1))
        )
        until(lambda: scraper[0].known() == given.hosts, "all are scraped", 300)
        run.measure(prometheus_scrapes_and_judges=scraper)
        rules(scraper[0])
        scraper[0].stop()

        receiver = started(tools.receiver(folder / "receiver", hurry=(2, 1)))
        agent = started(
            tools.agent(
                folder / "agent", fleet.url(), writes_into(receiver[0]), interval_s=given.interval
            )
        )
        until(lambda: receiver[0].known() == given.hosts, "all have arrived", 300)
        run.measure(prometheus_agent=agent, to_prometheus_which_judges=receiver)
        agent[0].stop()
        receiver[0].stop()

        victoria = started(tools.victoria(folder / "victoria"))
        vmagent = started(
            tools.vmagent(
                folder / "vmagent", fleet.url(), writes_into(victoria[0]), interval_s=given.interval
            )
        )
        until(lambda: victoria[0].known() == given.hosts, "all have arrived", 300)
        run.measure(vmagent=vmagent, to_victoria_metrics=victoria)


if __name__ == "__main__":
    main()
