"""Delivery as a whole: real sinks, real sockets, a real history; time is short, not faked."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import pytest
import structlog
from msgspec import structs

from gpud.agent.history.schema import FILE
from gpud.agent.measure.clocks import now
from gpud.core.alerts import SINK_FAILING
from gpud.core.clock import Instant
from gpud.core.errors import DeliveryError
from gpud.core.health import Level
from tests.agent.alerts.story import SOON, RecordingSink, delivering
from tests.agent.alerts.telling import LOST, SLOW, receiver
from tests.agent.measure.ticking import HELD_UP_S, ticking
from tests.agent.serve.metrics.scraping import scrape
from tests.events import clock_jumped, post
from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from tests.agent.alerts.story import Story

DOWN = DeliveryError("host: down", reason="refused", fix="start it")


def failing(story: Story) -> list[float]:
    """Give since when sinks are reported as failing."""
    alerts = story.board.read().alerts.alerts
    return [a.starts_s for a in alerts if a.name == SINK_FAILING and a.firing]


async def test_every_sink_gets_an_alert_once_and_its_end(tmp_path: Path) -> None:
    sink, two = RecordingSink("one"), RecordingSink("two")

    async with delivering(tmp_path, sink, two) as story:
        story.fire(SLOW)
        await story.when(lambda: sink.messages and two.messages, "both have it")
        story.fire(structs.replace(SLOW, updated_s=time.time()))
        story.fire()
        await story.when(lambda: len(sink.messages) == len(two.messages) == 2, "its end")
        assert story.health.level is Level.OK
        assert (story.state_of("one").sent, story.state_of("one").failed) == (2, 0)
    assert sink.sent == two.sent == [f"+{SLOW.name}", f"-{SLOW.name}"]


async def test_restart_repeats_nothing_and_sends_the_end_of_what_was_sent_before(
    tmp_path: Path,
) -> None:
    sink = RecordingSink()

    async with delivering(tmp_path, sink) as story:
        story.fire(SLOW)
        await story.when(lambda: sink.messages, "a message")
    async with delivering(tmp_path, sink) as story:
        await story.when(lambda: story.board.read().alerts.alerts, "what fired before")
        story.fire(SLOW, LOST)
        await story.when(lambda: len(sink.messages) == 2, "the new alert")
    async with delivering(tmp_path, sink) as story:
        await story.when(lambda: story.board.read().alerts.alerts, "what fired before")
        story.fire(LOST)
        await story.when(lambda: len(sink.messages) == 3, "the end")
    assert sink.sent == [f"+{SLOW.name}", f"+{LOST.name}", f"-{SLOW.name}"]


async def test_after_a_long_pause_nothing_new_is_sent_for_a_while(tmp_path: Path) -> None:
    sink = RecordingSink()

    text = "group_wait_s = 0.0\nwarm_up_s = 0.5\n"
    async with delivering(tmp_path, sink, text=text) as story:
        begun = now()
        post(story.board, clock_jumped(3600.0, begun.wall_s, begun.mono_s))
        story.fire(SLOW)
        await story.when(lambda: sink.messages, "a message after all")
        assert now().mono_s - begun.mono_s >= 0.5


async def test_sink_that_hangs_delays_neither_the_others_nor_a_scrape(tmp_path: Path) -> None:
    over = threading.Event()

    def hang(_: socket.socket) -> None:
        over.wait()

    with (
        receiver(hang) as dead,
        receiver() as well,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(over.set)
        urls = f'{SOON}webhook_urls = ["{dead.url()}", "{well.url()}"]\n'
        async with (
            delivering(tmp_path, text=urls, timeout_s=LIMIT_S) as story,
            ticking() as gap,
        ):
            story.fire(SLOW)
            await story.when(lambda: dead.requests and well.requests, "both requests")
            scraped = scrape(story.board.read(), now())
            assert 'gpud_notifications_total{sink="webhook"} 0.0' in scraped
            assert 'gpud_notifications_failures_total{sink="webhook_2"} 0.0' in scraped
            await story.when(lambda: story.state_of("webhook_2").sent, "the other address")
            assert story.state_of("webhook").failed == 0  # it still waits
            assert len(dead.requests) == 1  # and nothing waits behind it
            over.set()
            await story.when(lambda: story.state_of("webhook").failed, "its failure")
        assert gap.largest_s < HELD_UP_S


async def test_after_an_outage_a_sink_gets_the_present_state(tmp_path: Path) -> None:
    sink = RecordingSink(error=DOWN)

    async with delivering(tmp_path, sink) as story:
        for number in range(3):
            story.fire(structs.replace(SLOW, labels={"gpu": str(number)}))
            tries = sink.tries
            await story.when(lambda tries=tries: sink.tries > tries, "a try")  # type: ignore[misc]
            story.fire()
        story.fire(LOST)
        await story.when(
            lambda: [a for a in story.board.read().alerts.alerts if a.name == LOST.name],
            "the last",
        )
        sink.error = None
        await story.when(lambda: sink.messages, "a message at last")
    assert sink.sent == [f"+{LOST.name}"]


async def test_alert_about_a_sink_ends_when_nothing_waits_for_it(tmp_path: Path) -> None:
    dead, well = RecordingSink("webhook", error=DOWN), RecordingSink("log")

    async with delivering(tmp_path, dead, well) as story:
        story.fire(SLOW)
        await story.when(lambda: f"+{SINK_FAILING}" in well.sent, "the alert about it")
        story.fire()
        await story.when(lambda: f"-{SINK_FAILING}" in well.sent, "its end")
    assert dead.sent == []


async def test_without_a_history_alerts_are_sent_all_the_same(tmp_path: Path) -> None:
    sink = RecordingSink()
    (tmp_path / FILE).mkdir()

    async with delivering(tmp_path, sink) as story:
        story.fire(SLOW)
        await story.when(lambda: sink.messages, "a message")


async def test_sink_that_cannot_be_used_is_reported_before_the_first_alert(tmp_path: Path) -> None:
    async with delivering(tmp_path, text=f'{SOON}disabled = ["telegram"]') as story:
        await story.when(lambda: story.health.level is Level.DEGRADED, "its health")
        assert story.health.reason == "refused"
        assert "telegram: [alerts] disabled: there is no such sink" in str(story.health.detail)


async def test_sink_that_fails_is_reported_by_the_others_until_it_delivers(tmp_path: Path) -> None:
    dead, well = RecordingSink("webhook", error=DOWN), RecordingSink("log")

    async with delivering(tmp_path, dead, well) as story:
        story.fire(SLOW)
        await story.when(lambda: f"+{SINK_FAILING}" in well.sent, "the alert about it")
        assert dead.tries >= 3
        assert (story.health.level, story.health.reason) == (Level.DEGRADED, "refused")
        assert (story.health.fix, story.health.detail) == ("start it", "webhook: host: down")
        assert (story.state_of("webhook").sent, story.state_of("webhook").reason) == (
            0,
            "refused",
        )
        [began_s] = failing(story)
    async with delivering(tmp_path, dead, well) as story:  # a restart does not end it
        await story.when(lambda: story.state_of("webhook").failed > 3, "more failures")
        assert failing(story) == [began_s]
        dead.error = None
        await story.when(lambda: f"-{SINK_FAILING}" in well.sent, "its end")
        assert story.health.reason is None
        assert story.state_of("webhook").reason is None
    assert dead.sent == [f"+{SLOW.name}"]  # nothing about itself
    assert well.sent == [f"+{SLOW.name}", f"+{SINK_FAILING}", f"-{SINK_FAILING}"]


async def test_sink_that_raises_stops_no_other_and_its_words_are_not_shown(tmp_path: Path) -> None:
    bad, well = RecordingSink("bad", error=ValueError("http://T0KEN@host")), RecordingSink("log")

    with structlog.testing.capture_logs() as logged:
        async with delivering(tmp_path, bad, well) as story:
            story.fire(SLOW)
            await story.when(lambda: well.messages and story.state_of("bad").failed, "both")
            assert story.state_of("bad").reason == "crashed"
            assert "ValueError" in (story.state_of("bad").detail or "")
            assert "T0KEN" not in repr(story.board.read())
    assert "T0KEN" not in repr(logged)
    assert {entry["sink"] for entry in logged if entry["event"] == "sink_crashed"} == {"bad"}


@pytest.mark.parametrize("jump_s", [-86400.0, 86400.0 * 400])
async def test_wall_clock_that_jumps_repeats_nothing(tmp_path: Path, jump_s: float) -> None:
    sink, offset_s = RecordingSink(), [0.0]

    def clock() -> Instant:
        return Instant(time.time() + offset_s[0], time.monotonic())

    async with delivering(tmp_path, sink, clock=clock) as story:
        story.fire(SLOW)
        await story.when(lambda: sink.messages, "a message")
        offset_s[0] = jump_s
        story.fire(structs.replace(SLOW, updated_s=clock().wall_s), LOST)
        await story.when(lambda: len(sink.messages) == 2, "the new alert")
    assert sink.sent == [f"+{SLOW.name}", f"+{LOST.name}"]
