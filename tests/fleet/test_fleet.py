"""Sixty machines through sleep, churn and an outage; samples whose moment is not now."""

from __future__ import annotations

import json
import time
import urllib.request
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.e2e.scraping import running
from tests.fleet import tools, world
from tests.fleet.tools import fired, probes
from tests.fleet.world import ALERT, PAIR
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.scraping import Tool
    from tests.fleet.tools import Fleet

HOSTS = 60
HURRY = (600, 30)
ROUND_S = 4.0
SLEPT_S = 5 * 3600.0
DAY_S, AWAY_D = 86400, 14
[REDONE] = [spec for spec in world.SPECS if spec.name == world.REDONE[0]]


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with tools.fleet(HOSTS, ROUND_S) as made:
        yield made


def seen(look: Callable[[], bool], what: str) -> None:
    until(look, what, every_s=0.2)


def keeps(store: Tool, wanted: dict[str, int]) -> bool:
    """Say whether there is one sample for each scrape that was answered, of each machine."""
    counts = store.values('count_over_time(gpud_build_info{job="gpud"}[1h])')
    return {labels["instance"]: int(count) for labels, count in counts} == wanted


def evaluate(tool: Tool) -> None:
    """Wait until every group of rules has been evaluated once more."""

    def moments() -> list[str]:
        return [group["lastEvaluation"] for group in tool.api("rules")["groups"]]

    before = moments()
    seen(lambda: all(a != b for a, b in zip(before, moments(), strict=True)), "an evaluation")
    assert not tool.ill()


@pytest.mark.soak
def test_scraped_fleet_reports_one_slow_driver_while_machines_sleep_and_leave(
    fleet: Fleet, tmp_path: Path
) -> None:
    listed = tmp_path / "home.json"
    with urllib.request.urlopen(fleet.url(1, of=2)) as answer:
        half = json.load(answer)
    listed.write_text(json.dumps(half))
    store = tools.scraper(
        tmp_path / "scraper", fleet.url(0, of=2), str(listed), interval_s=3, hurry=HURRY
    )
    with running(store):
        seen(lambda: store.knows(HOSTS), "every machine is scraped")
        seen(lambda: probes(store) == PAIR, "the driver is told of")
        # Half of them measure by another version of a probe.
        told = store.values(f'count by (version) (gpud_probe_info{{probe="{REDONE.name}"}})')
        versions = Counter(world.version(host, REDONE) for host in world.fleet(HOSTS))
        assert {int(labels["version"]): count for labels, count in told} == versions
        asleep = fleet.names(site="home")[::5]
        gone = set(fleet.names()[::5])
        fleet.tell(sleep=asleep, leave=sorted(gone))
        listed.write_text(
            json.dumps([one for one in half if one["labels"]["instance"] not in gone])
        )
        seen(lambda: store.known() == HOSTS - len(gone.union(asleep)), "they are gone")
        evaluate(store)
        assert probes(store) == PAIR
        fleet.tell(wake=asleep, slept_s=SLEPT_S, join=sorted(gone))
        listed.write_text(json.dumps(half))
        seen(lambda: store.knows(HOSTS), "all are back")
        evaluate(store)
        assert probes(store) == PAIR
        assert fired(store) == ALERT


@pytest.mark.soak
def test_samples_pushed_during_an_outage_of_the_store_all_arrive_afterwards(
    fleet: Fleet, tmp_path: Path
) -> None:
    prometheus = tools.receiver(tmp_path / "receiver", hurry=HURRY)
    victoria = tools.victoria(tmp_path / "victoria")
    silent = f"http://127.0.0.1:{fleet.port}"  # it accepts what is sent to an Alertmanager
    vmalert = tools.vmalert(tmp_path / "vmalert", victoria, silent, hurry=HURRY)
    shippers = {
        "Prometheus": (
            prometheus,
            tools.agent(
                tmp_path / "agent",
                fleet.url(),
                f"http://127.0.0.1:{prometheus.port}/api/v1/write",
                interval_s=3,
            ),
        ),
        "vm_promscrape": (
            victoria,
            tools.vmagent(
                tmp_path / "vmagent",
                fleet.url(),
                f"http://127.0.0.1:{victoria.port}/api/v1/write",
                interval_s=3,
            ),
        ),
    }
    with running(prometheus, victoria, vmalert, *(shipper for _, shipper in shippers.values())):
        for store in (prometheus, victoria):
            seen(partial(store.knows, HOSTS), "every machine has arrived")
        for judge in (prometheus, vmalert):
            seen(lambda judge=judge: probes(judge) == PAIR, "the driver is told of")  # type: ignore[misc]
        prometheus.kill()
        victoria.stop()
        before = fleet.tell()
        seen(
            lambda: all(count >= before[key] + 2 for key, count in fleet.tell().items()),
            "all are scraped while the stores are away",
        )
        prometheus.start()
        victoria.start()
        fleet.tell(sleep=fleet.names())
        served = fleet.tell()
        for name, (store, _) in shippers.items():
            wanted = {host: count for (host, whom), count in served.items() if whom == name}
            assert len(wanted) == HOSTS
            seen(partial(keeps, store, wanted), f"{name} has sent everything")
        assert fired(prometheus) == fired(victoria) == ALERT


def push(shipper: Tool, instance: str, at_s: float) -> None:
    """Have a shipper send one scrape with a moment of its own, the shipper's and gpud's."""
    of = f'{{job="gpud",instance="{instance}"}}'
    at_ms = int(at_s * 1000)
    lines = f"gpud_build_info{of} 1 {at_ms}\ngpud_time_seconds{of} {at_s} {at_ms}"
    url = f"http://127.0.0.1:{shipper.port}/api/v1/import/prometheus"
    with urllib.request.urlopen(url, lines.encode(), timeout=LIMIT_S) as answer:
        assert answer.status == 204


def test_two_week_old_samples_arrive_and_a_fast_clock_disturbs_no_other_machine(
    tmp_path: Path,
) -> None:
    store = tools.receiver(tmp_path / "receiver", hurry=(600, 1))
    shipper = tools.vmagent(
        tmp_path / "vmagent",
        "http://127.0.0.1:1/none.json",
        f"http://127.0.0.1:{store.port}/api/v1/write",
        interval_s=30,
    )

    def arrived(instance: str, count: int) -> bool:
        kept = f'count_over_time(gpud_build_info{{instance="{instance}"}}[{AWAY_D + 1}d])'
        return [value for _, value in store.values(kept)] == [count]

    with running(store, shipper):
        push(shipper, "others", time.time())
        until(lambda: arrived("others", 1), "the store has a present")
        push(shipper, "laptop", time.time() - AWAY_D * DAY_S)
        until(lambda: arrived("laptop", 1), "what was kept arrives")
        push(shipper, "ahead", time.time() + 5 * DAY_S)
        until(
            lambda: bool(store.values("gpud_build_info", time=str(time.time() + 5 * DAY_S))),
            "the future has arrived",
        )
        push(shipper, "others", time.time())
        until(lambda: arrived("others", 2), "the others are heard of")

        def told() -> set[str]:
            push(shipper, "ahead", time.time() + 5 * DAY_S)
            push(shipper, "others", time.time())
            return {
                one["labels"]["instance"]
                for one in store.alerts()
                if one["labels"]["alertname"] == "GpudClockSkew" and one["state"] == "firing"
            }

        assert until(told, "a clock is told of", every_s=1) == {"ahead"}
