"""Five hundred machines for a quarter of an hour: one driver is told of, and nothing else ever."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.fleet import tools
from tests.fleet.tools import fired, probes, running
from tests.fleet.world import ALERT, PAIR
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fleet.tools import Fleet, Tool

HOSTS = 500
HURRY = (60, 45)
INTERVAL_S = 15.0
ROUND_S = 120.0
CYCLES = 1
SLEPT_S = 5 * 3600.0


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with tools.fleet(HOSTS, ROUND_S) as made:
        yield made


def seen(look: Callable[[], bool], what: str) -> None:
    until(look, what, within_s=900, every_s=1.0)


def course(fleet: Fleet, store: Tool, judge: Tool, outage: Callable[[], None]) -> None:
    """Lead the fleet through sleep, churn and an outage, and see one pair at every turn."""
    seen(lambda: store.knows(HOSTS), "every machine is there")
    seen(lambda: probes(judge) == PAIR, "the driver is told of")
    for cycle in range(CYCLES):
        asleep = fleet.names(site="home")[cycle::10]
        gone = fleet.names()[cycle::5]
        fleet.tell(sleep=asleep, leave=gone)
        left = HOSTS - len({*asleep, *gone})
        seen(partial(store.knows, left), "they are gone")
        assert probes(judge) == PAIR
        outage()
        fleet.tell(wake=asleep, slept_s=SLEPT_S, join=gone)
        seen(lambda: store.knows(HOSTS), "all are back")
        seen(lambda: probes(judge) == PAIR, "the driver is told of again")
    seen(lambda: not judge.ill(), "every rule was evaluated well since the outage")


def scraped_twice(fleet: Fleet) -> None:
    """Wait until every machine that is awake and listed was scraped twice more."""
    before = fleet.tell()
    names = set(fleet.names())

    def awake() -> bool:
        now = fleet.tell()
        more = [now[key] - before[key] for key in before if key[0] in names]
        return sum(count >= 2 for count in more) >= len(names) * 2 // 3

    seen(awake, "scrapes")


def complete(fleet: Fleet, store: Tool, cut: int = 0) -> int:
    """Let every machine sleep, and see that every scrape that was answered is in the store.

    ``cut``: as often the shipper was ended, each time in the midst of a scrape of any machine.
    """
    fleet.tell(sleep=fleet.names())
    wanted = {host: count for (host, _), count in fleet.tell().items()}

    def kept() -> bool:
        counts = store.values('count_over_time(gpud_build_info{job="gpud"}[2h])')
        found = {labels["instance"]: int(count) for labels, count in counts}
        return found.keys() == wanted.keys() and all(
            wanted[host] - cut <= count <= wanted[host] for host, count in found.items()
        )

    seen(kept, "everything that was answered is stored")
    return sum(wanted.values())


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_scraped_by_prometheus(fleet: Fleet, tmp_path: Path) -> None:
    store = tools.scraper(tmp_path / "scraper", fleet.url(), interval_s=INTERVAL_S, hurry=HURRY)

    def outage() -> None:
        store.kill()
        store.start()

    with running(store):
        course(fleet, store, store, outage)
        assert fired(store) == ALERT


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_pushed_by_prometheus_to_prometheus(fleet: Fleet, tmp_path: Path) -> None:
    store = tools.receiver(tmp_path / "receiver", hurry=HURRY)
    address = f"http://127.0.0.1:{store.port}/api/v1/write"
    agent = tools.agent(tmp_path / "agent", fleet.url(), address, interval_s=INTERVAL_S)

    def outage() -> None:
        store.kill()
        scraped_twice(fleet)
        store.start()

    with running(store, agent):
        course(fleet, store, store, outage)
        assert complete(fleet, store)
        assert fired(store) == ALERT


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_pushed_by_vmagent_to_victoria_metrics(fleet: Fleet, tmp_path: Path) -> None:
    store = tools.victoria(tmp_path / "victoria")
    address = f"http://127.0.0.1:{store.port}/api/v1/write"
    shipper = tools.vmagent(tmp_path / "vmagent", fleet.url(), address, interval_s=INTERVAL_S)
    told = f"http://127.0.0.1:{fleet.port}"
    judge = tools.vmalert(tmp_path / "vmalert", store, told, hurry=HURRY)

    def outage() -> None:
        store.stop()
        scraped_twice(fleet)
        shipper.stop()  # what it could not send is on its disk
        shipper.start()
        store.start()

    with running(store, shipper, judge):
        course(fleet, store, judge, outage)
        assert complete(fleet, store, cut=CYCLES)
        assert fired(store) == ALERT
