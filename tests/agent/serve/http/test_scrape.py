"""How metrics are served: written once for everybody who asks while nothing has changed."""

from __future__ import annotations

import asyncio
import gzip
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from prometheus_client import generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily
from starlette.requests import Request

from gpud.agent.serve.http.response import CACHE_S
from gpud.agent.serve.http.scrape import MOST_FORMATS, Scrape
from gpud.agent.serve.metrics.collector import SnapshotCollector
from gpud.agent.serve.metrics.exposition import Format
from gpud.agent.state.events import ChildSpawned
from gpud.core.clock import Instant
from gpud.core.telemetry import Telemetry
from tests import snapshots
from tests.agent.serve.metrics.scraping import OPENMETRICS, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector

    from gpud.agent.serve.metrics.exposition import Texts
    from gpud.agent.state.snapshot import Snapshot


@dataclass
class World:
    """A snapshot, a clock, both set by hand, and a collector that counts how often it is asked."""

    snapshot: Snapshot = field(default_factory=snapshots.full)
    mono_s: float = snapshots.NOW.mono_s
    collected: int = 0

    def read(self) -> Snapshot:
        return self.snapshot

    def now(self) -> Instant:
        return Instant(snapshots.NOW.wall_s, self.mono_s)

    def collect(self) -> Iterator[Metric]:
        self.collected += 1
        yield GaugeMetricFamily("collected", "how often " * 100, value=self.collected)


def spawned() -> Snapshot:
    return ChildSpawned().apply(snapshots.full())


def silent() -> Snapshot:
    """No source of telemetry answers any more."""
    return replace(snapshots.full(), telemetry=Telemetry())


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def scrape(world: World) -> Scrape:
    return Scrape(world.read, world, world.now)


def get(scrape: Scrape, **headers: str) -> tuple[dict[str, str], bytes]:
    given = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
    request = Request({"type": "http", "method": "GET", "path": "/metrics", "headers": given})
    answer = asyncio.run(scrape.answer(request))
    return dict(answer.headers), bytes(answer.body)


def test_twenty_scrapes_at_once_are_written_once(scrape: Scrape, world: World) -> None:
    world.collected = 0
    told = {get(scrape)[1] for _ in range(20)} | {
        gzip.decompress(get(scrape, accept_encoding="gzip")[1]) for _ in range(20)
    }
    assert (len(told), world.collected) == (1, 1)


def test_what_has_changed_is_in_the_next_scrape(scrape: Scrape, world: World) -> None:
    _, before = get(scrape)
    world.snapshot = replace(world.snapshot)
    assert get(scrape)[1] != before


def test_after_a_second_what_is_old_by_now_is_looked_at_again(scrape: Scrape, world: World) -> None:
    _, before = get(scrape)
    world.mono_s += CACHE_S - 0.01
    assert get(scrape)[1] == before
    world.mono_s += 0.02
    assert get(scrape)[1] != before


def test_each_format_is_written_as_itself(scrape: Scrape) -> None:
    for _ in range(2):
        for accept, kind, end in (
            ("", "text/plain", b"collected"),
            (OPENMETRICS, "application/openmetrics-text", b"# EOF\n"),
        ):
            plain, body = get(scrape, accept=accept)
            packed, small = get(scrape, accept=accept, accept_encoding="gzip")
            assert plain["content-type"].startswith(kind)
            assert packed["content-type"] == plain["content-type"]
            assert "content-encoding" not in plain
            assert packed["content-encoding"] == "gzip"
            assert end in body
            assert body.endswith(b"# EOF\n") == (accept == OPENMETRICS)
            assert gzip.decompress(small) == body
            assert plain["vary"] == packed["vary"] == "accept, accept-encoding"


@pytest.mark.parametrize("version", ["abc", '"1.0.0"', "1.0.0-rc.1", "1.\xe9", "9" * 5000, "0x1"])
def test_a_version_that_is_none_gets_the_text_that_everybody_can_read(
    scrape: Scrape, version: str
) -> None:
    wanted = f"application/openmetrics-text;version={version},text/plain;version=0.0.4;q=0.5"
    plain, body = get(scrape)
    assert get(scrape, accept=wanted) == (plain, body)


def test_what_was_written_before_is_used_again_only_where_nothing_has_changed(
    world: World,
) -> None:
    """Whatever came before, the text is that of a first scrape."""
    given = settings("dcgm")
    collector = SnapshotCollector(world.read, given, world.now)
    scrape = Scrape(world.read, collector, world.now)
    worlds = [
        snapshots.full(),
        snapshots.bare(),
        snapshots.full(),
        silent(),
        spawned(),
        snapshots.full(),
    ]
    for snapshot in worlds:
        world.snapshot = snapshot
        world.mono_s += 30
        for accept in ("", OPENMETRICS, "text/plain;version=1.0.0;escaping=dots"):
            fresh = Format.of(accept).encoded(SnapshotCollector(world.read, given, world.now))
            assert get(scrape, accept=accept)[1] == fresh


def test_a_family_that_says_the_same_is_not_written_twice(world: World) -> None:
    texts: Texts = {}
    written: list[Metric] = []

    def write(collector: Collector) -> bytes:
        written.extend(collector.collect())
        return generate_latest(collector)

    form = Format("text/plain", write)
    collector = SnapshotCollector(world.read, settings(), world.now)
    first, families = form.encoded(collector, texts), len(written)
    assert form.encoded(collector, texts) == first
    assert len(written) == families > 50
    world.snapshot = spawned()
    assert form.encoded(collector, texts) != first
    assert [family.name for family in written[families:]] == ["gpud_children_spawned"]


def test_whoever_makes_up_versions_of_a_format_fills_no_memory(scrape: Scrape) -> None:
    for version in range(1, 50):
        get(scrape, accept=f"application/openmetrics-text;version={version}.0.0")
    assert len(scrape._texts) == MOST_FORMATS
