"""Page and metrics are rendered once for all clients while nothing has changed."""

from __future__ import annotations

import asyncio
import gzip
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from prometheus_client.metrics_core import GaugeMetricFamily
from starlette.requests import Request

from gpud.agent.serve.http.response import CACHE_S
from gpud.agent.serve.http.views import MetricsView, PageView
from gpud.agent.serve.metrics.collector import Format, SnapshotCollector
from gpud.agent.state.snapshot import Snapshot
from gpud.agent.telemetry.answers import Telemetry
from gpud.core.clock import Instant
from gpud.core.settings import parse
from tests import snapshots
from tests.agent.serve.metrics.scraping import OPENMETRICS, settings
from tests.events import altered, child_spawned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from gpud.agent.serve.metrics.collector import Texts


@dataclass
class World:
    """A snapshot and a clock, both set by hand; counts how often they are read and collected."""

    snapshot: Snapshot = field(default_factory=snapshots.full)
    mono_s: float = snapshots.NOW.mono_s
    reads: int = 0
    collected: int = 0

    def read(self) -> Snapshot:
        self.reads += 1
        return self.snapshot

    def now(self) -> Instant:
        ahead_s = self.mono_s - snapshots.NOW.mono_s
        return Instant(snapshots.NOW.wall_s + ahead_s, self.mono_s)

    def collect(self) -> Iterator[Metric]:
        self.collected += 1
        yield GaugeMetricFamily("collected", "how often " * 100, value=self.collected)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def page(world: World) -> PageView:
    return PageView(world.read, parse(None, {}), world.now, "laptop")


@pytest.fixture
def metrics(world: World) -> MetricsView:
    return MetricsView(world.read, world, world.now)


def get(view: PageView | MetricsView, **headers: str) -> tuple[int, dict[str, str], bytes]:
    pairs = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
    request = Request({"type": "http", "method": "GET", "path": "/", "headers": pairs})
    answer = asyncio.run(view.answer(request))
    return answer.status_code, dict(answer.headers), bytes(answer.body)


def test_page_is_rendered_once_a_second_also_when_the_clock_goes_back(
    page: PageView, world: World
) -> None:
    bodies = {get(page)[2] for _ in range(50)}
    assert (len(bodies), world.reads) == (1, 1)
    for step_s in (1.0, -50.0):
        world.mono_s += step_s
        world.reads = 0
        get(page)
        assert world.reads == 1


def test_page_keeps_its_tag_until_it_changes(page: PageView, world: World) -> None:
    code, headers, body = get(page)
    assert (code, headers["content-type"]) == (200, "text/html; charset=utf-8")
    tag = headers["etag"]
    assert get(page, if_none_match=f'"x", W/{tag}')[::2] == (304, b"")
    assert gzip.decompress(get(page, accept_encoding="gzip, br")[2]) == body
    world.snapshot = altered(snapshots.full(), version="9.9")
    world.mono_s += 2
    code, headers, other = get(page, if_none_match=tag)
    assert (code, headers["etag"] != tag, other != body) == (200, True, True)


def test_page_names_its_machine_and_its_settings(page: PageView) -> None:
    text = get(page)[2].decode()
    assert "<title>Failed: gpud on laptop</title>" in text
    assert ">/etc/gpud/gpud.toml</code>" in text


def test_twenty_scrapes_at_once_are_written_once(metrics: MetricsView, world: World) -> None:
    bodies = {get(metrics)[2] for _ in range(20)} | {
        gzip.decompress(get(metrics, accept_encoding="gzip")[2]) for _ in range(20)
    }
    assert (len(bodies), world.collected) == (1, 1)


def test_scrape_is_written_anew_for_a_new_snapshot_and_after_a_second(
    metrics: MetricsView, world: World
) -> None:
    get(metrics)
    world.snapshot = copy(world.snapshot)
    get(metrics)
    assert world.collected == 2
    world.mono_s += CACHE_S - 0.01
    get(metrics)
    assert world.collected == 2
    world.mono_s += 0.02
    get(metrics)
    assert world.collected == 3


def test_each_format_is_written_as_itself(metrics: MetricsView) -> None:
    for _ in range(2):
        for accept, kind, end in (
            ("", "text/plain", b"collected"),
            (OPENMETRICS, "application/openmetrics-text", b"# EOF\n"),
        ):
            _, plain, body = get(metrics, accept=accept)
            _, packed, small = get(metrics, accept=accept, accept_encoding="gzip")
            assert plain["content-type"].startswith(kind)
            assert packed["content-type"] == plain["content-type"]
            assert packed["content-encoding"] == "gzip"
            assert end in body
            assert body.endswith(b"# EOF\n") == (accept == OPENMETRICS)
            assert gzip.decompress(small) == body
            assert plain["vary"] == packed["vary"] == "accept, accept-encoding"


def spawned() -> Snapshot:
    return child_spawned()(snapshots.full())


def test_reused_text_is_that_of_a_first_scrape(world: World) -> None:
    options = settings("dcgm")
    view = MetricsView(world.read, SnapshotCollector(world.read, options, world.now), world.now)
    silent = altered(snapshots.full(), telemetry=Telemetry())
    full, bare = snapshots.full(), snapshots.bare()
    for snapshot in (full, bare, full, silent, spawned(), full):
        world.snapshot = snapshot
        world.mono_s += 30
        for accept in ("", OPENMETRICS):
            fresh = Format.of(accept).encoded(SnapshotCollector(world.read, options, world.now))
            assert get(view, accept=accept)[2] == fresh


def test_family_that_did_not_change_is_not_written_again(world: World) -> None:
    texts: Texts = {}
    collector = SnapshotCollector(world.read, settings(), world.now)
    first = Format.TEXT.encoded(collector, texts)
    before = dict(texts)
    assert Format.TEXT.encoded(collector, texts) == first
    assert len(texts) > 50
    world.snapshot = spawned()
    assert Format.TEXT.encoded(collector, texts) != first
    written = [name for name, text in texts.items() if text is not before[name]]
    assert written == ["gpud_children_spawned"]
