"""Delivery as a whole: real sinks, real sockets, a real history; time is short, not faked."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from gpud.agent import deliveryrows, reader
from gpud.agent.alerts.registry import found
from gpud.agent.clocks import now
from gpud.agent.store import FILE
from gpud.core.alerts import SINK_FAILING
from gpud.core.clock import Instant
from gpud.core.errors import DeliveryError
from gpud.core.events import ClockJumped
from gpud.core.health import Level
from tests.agent.alerts.story import SOON, Told, telling
from tests.agent.alerts.telling import LOST, SLOW, context, ended, receiver, says
from tests.agent.scraping import scrape
from tests.agent.ticking import HELD_UP_S, ticking

if TYPE_CHECKING:
    import socket
    from pathlib import Path


def test_an_alert_is_told_to_every_sink_once_and_its_end_as_well(tmp_path: Path) -> None:
    one, two = Told("one"), Told("two")

    async def story() -> None:
        async with telling(tmp_path, one, two) as told:
            told.publish(SLOW)
            await told.when(lambda: one.heard and two.heard, "both told")
            told.publish(replace(SLOW, updated_s=time.time()))
            told.publish(ended(SLOW, time.time()))
            await told.when(lambda: len(one.heard) == len(two.heard) == 2, "both told the end")
            assert told.health.level is Level.OK
            assert (told.state("one").sent, told.state("one").failed) == (2, 0)

    asyncio.run(story())
    assert one.words == two.words == [f"+{SLOW.name}", f"-{SLOW.name}"]


def test_what_comes_within_the_wait_is_one_message(tmp_path: Path) -> None:
    one = Told()

    async def story() -> None:
        async with telling(tmp_path, one, text="group_wait_s = 1.0\nwarm_up_s = 0.0\n") as told:
            told.publish(SLOW)
            await asyncio.sleep(0.1)
            told.publish(SLOW, LOST)
            await told.when(lambda: one.heard, "told")

    asyncio.run(story())
    assert [len(message.firing) for message in one.heard] == [2]


def test_what_was_told_is_kept_in_a_history_that_was_begun_anew_too(tmp_path: Path) -> None:
    before, after = Told("one"), Told("one")

    async def story() -> None:
        async with telling(tmp_path, before) as told:
            told.publish(SLOW)
            await told.when(lambda: before.heard, "told")
            await told.when(lambda: _kept(tmp_path), "kept")
            _delete(tmp_path)
            await told.history.append()  # as the next run does
            told.publish(replace(SLOW, updated_s=time.time()))
            await told.when(lambda: _kept(tmp_path), "kept again")
        async with telling(tmp_path, after) as told:
            told.publish(ended(SLOW, time.time()))
            await told.when(lambda: after.heard, "told the end")

    asyncio.run(story())
    assert (before.words, after.words) == ([f"+{SLOW.name}"], [f"-{SLOW.name}"])


def test_a_history_that_cannot_be_read_at_the_start_is_waited_for(tmp_path: Path) -> None:
    before, after = Told("one"), Told("one")
    file, aside = tmp_path / FILE, tmp_path / "aside"

    async def story() -> None:
        async with telling(tmp_path, before) as told:
            told.publish(SLOW)
            await told.when(lambda: before.heard, "told")
        file.rename(aside)
        file.mkdir()
        # The history comes back while it is quiet, on a busy machine too.
        quiet = "group_wait_s = 0.0\nwarm_up_s = 4.0\n"
        async with telling(tmp_path, after, text=quiet) as told:
            told.publish(SLOW)
            await asyncio.sleep(0.2)
            file.rmdir()
            aside.rename(file)
            await asyncio.sleep(4.5)
            assert not after.heard
            told.publish(ended(SLOW, time.time()))
            await told.when(lambda: after.heard, "told the end")

    asyncio.run(story())
    assert after.words == [f"-{SLOW.name}"]


def _delete(folder: Path) -> None:
    for file in folder.glob(f"{FILE}*"):
        file.unlink()


def _kept(folder: Path) -> bool:
    return bool(reader.ask(folder, deliveryrows.kept))


def test_a_restart_tells_nothing_again_and_the_end_of_what_was_told_before(tmp_path: Path) -> None:
    one = Told()

    async def story() -> None:
        async with telling(tmp_path, one) as told:
            told.publish(SLOW)
            await told.when(lambda: one.heard, "told")
        async with telling(tmp_path, one) as told:
            told.publish(SLOW, LOST)
            await told.when(lambda: len(one.heard) == 2, "told what is new")
        async with telling(tmp_path, one) as told:
            told.publish(ended(SLOW, time.time()), LOST)
            await told.when(lambda: len(one.heard) == 3, "told the end")

    asyncio.run(story())
    assert one.words == [f"+{SLOW.name}", f"+{LOST.name}", f"-{SLOW.name}"]


def test_after_a_long_pause_nothing_new_is_told_for_a_while(tmp_path: Path) -> None:
    one = Told()

    async def story() -> None:
        text = "group_wait_s = 0.0\nwarm_up_s = 0.5\n"
        async with telling(tmp_path, one, text=text) as told:
            begun = now()
            told.board.post(ClockJumped(3600.0, begun.wall_s, begun.mono_s))
            told.publish(SLOW)
            await told.when(lambda: one.heard, "told after all")
            assert now().mono_s - begun.mono_s >= 0.5

    asyncio.run(story())


def hang(connection: socket.socket) -> None:
    connection.recv(1)


def test_a_sink_that_hangs_delays_neither_the_others_nor_a_scrape(tmp_path: Path) -> None:
    async def story() -> None:
        with receiver(hang) as dead, receiver() as well:
            urls = f'{SOON}webhook_urls = ["{dead.url()}", "{well.url()}"]\n'
            async with telling(tmp_path, text=urls, timeout_s=2.0) as told, ticking() as gap:
                told.publish(SLOW)
                await told.when(lambda: dead.requests and well.requests, "both asked")
                scraped = scrape(told.board.read(), now())
                assert 'gpud_notifications_total{sink="webhook"} 0.0' in scraped
                assert 'gpud_notifications_failures_total{sink="webhook_2"} 0.0' in scraped
                await told.when(lambda: told.state("webhook_2").sent, "the other one has it")
                assert told.state("webhook").failed == 0  # it still waits
                await told.when(lambda: told.state("webhook").failed, "the deadline")
            assert gap.largest_s < HELD_UP_S

    asyncio.run(story())


def test_after_an_outage_a_sink_is_told_how_things_are_by_then(tmp_path: Path) -> None:
    one = Told(error=DeliveryError("down", reason="refused", fix="start it"))

    async def story() -> None:
        async with telling(tmp_path, one) as told:
            for number in range(3):
                alert = replace(SLOW, labels={"gpu": str(number)})
                told.publish(alert)
                tries = one.tries
                await told.when(lambda tries=tries: one.tries > tries, "a try")  # type: ignore[misc]
                told.publish(ended(alert, time.time()))
            told.publish(LOST)
            one.error = None
            await told.when(lambda: one.heard, "told at last")

    asyncio.run(story())
    assert one.words == [f"+{LOST.name}"]


def test_a_sink_that_fails_is_told_of_by_the_others_until_it_delivers(tmp_path: Path) -> None:
    dead = Told("webhook", error=DeliveryError("host: nobody", reason="refused", fix="start it"))
    well = Told("log")

    async def story() -> None:
        async with telling(tmp_path, dead, well) as told:
            told.publish(SLOW)
            await told.when(lambda: f"+{SINK_FAILING}" in well.words, "the trouble told")
            assert dead.tries >= 3
            assert told.health.level is Level.DEGRADED
            assert (told.health.reason, told.health.fix) == ("refused", "start it")
            assert "webhook: host: nobody" in (told.health.detail or "")
            state = told.state("webhook")
            assert (state.sent, state.reason) == (0, "refused")
            assert state.failed >= 3
            dead.error = None
            await told.when(lambda: f"-{SINK_FAILING}" in well.words, "its end told")
            assert told.health.reason is None
            assert told.state("webhook").reason is None

    asyncio.run(story())
    assert dead.words == [f"+{SLOW.name}"]  # not of its own trouble
    assert well.words == [f"+{SLOW.name}", f"+{SINK_FAILING}", f"-{SINK_FAILING}"]


def test_a_trouble_that_concerns_nobody_any_more_is_over(tmp_path: Path) -> None:
    dead = Told("webhook", error=DeliveryError("down", reason="refused", fix="start it"))
    well = Told("log")

    async def story() -> None:
        async with telling(tmp_path, dead, well) as told:
            told.publish(SLOW)
            await told.when(lambda: f"+{SINK_FAILING}" in well.words, "the trouble told")
            told.publish(ended(SLOW, time.time()))
            await told.when(lambda: f"-{SINK_FAILING}" in well.words, "its end told")
            assert told.health.level is Level.DEGRADED  # as long as nothing was delivered

    asyncio.run(story())
    assert dead.words == []


def test_a_refusal_is_not_repeated(tmp_path: Path) -> None:
    async def story() -> None:
        with receiver(says("404 Not Found")) as there:
            urls = f'{SOON}webhook_urls = ["{there.url("/T0KEN")}"]\ndisabled = ["log"]\n'
            async with telling(tmp_path, text=urls) as told:
                told.publish(SLOW)
                await told.when(lambda: told.state("webhook").failed, "refused")
                told.publish(SLOW, LOST)
                await told.when(lambda: told.state("webhook").failed == 2, "refused")
                told.publish(ended(SLOW, time.time()), LOST)
                await asyncio.sleep(0.3)
                assert len(there.requests) == 2
                assert "T0KEN" not in repr(told.board.read())
                assert "T0KEN" not in scrape(told.board.read(), now())

    asyncio.run(story())


def test_a_sink_that_throws_whatever_it_likes_stops_nobody_and_its_words_are_not_shown(
    tmp_path: Path,
) -> None:
    bad, well = Told("bad", error=ValueError("http://T0KEN@host")), Told("log")

    async def story() -> None:
        async with telling(tmp_path, bad, well) as told:
            told.publish(SLOW)
            await told.when(lambda: well.heard and told.state("bad").failed, "both asked")
            assert told.state("bad").reason == "crashed"
            assert "ValueError" in (told.state("bad").detail or "")
            assert "T0KEN" not in repr(told.board.read())

    with structlog.testing.capture_logs() as logged:
        asyncio.run(story())
    assert "T0KEN" not in repr(logged)


def test_a_sink_that_cannot_deliver_says_so_before_there_is_anything_to_tell(
    tmp_path: Path,
) -> None:
    one = Told("toast", unready=DeliveryError("interop is off", reason="interop_off", fix="on"))

    async def story() -> None:
        async with telling(tmp_path, one) as told:
            await told.when(lambda: "toast" in told.board.read().sinks, "its state")
            await told.when(lambda: told.state("toast").reason == "interop_off", "its reason")
            assert (told.health.level, told.health.fix) == (Level.DEGRADED, "on")
            assert told.state("toast").failed == 0
            one.unready = None
            told.publish(SLOW)
            await told.when(lambda: one.heard, "told all the same")
            assert told.health.level is Level.OK

    asyncio.run(story())


def test_the_notice_goes_with_what_fires_across_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "run/gpud/notice"

    def said() -> str:
        return path.read_text() if path.exists() else ""

    async def story() -> None:
        async with telling(tmp_path) as told:
            told.publish(SLOW)
            await told.when(said, "a line")
        path.write_text("")  # a boot empties /run
        async with telling(tmp_path) as told:
            told.publish(SLOW)
            await told.when(said, "the line again")
            assert said() == f"{SLOW.summary.replace('µ', 'u')}\n"  # a shell may know no more
            told.publish(replace(SLOW, acknowledged_s=time.time()))
            await told.when(lambda: not said(), "nothing, for it was seen")
            told.publish(LOST)
            await told.when(said, "the next line")
            told.publish(ended(LOST, time.time()))
            await told.when(lambda: said().startswith("resolved: "), "its end")

    asyncio.run(story())


def test_without_a_history_alerts_are_told_all_the_same(tmp_path: Path) -> None:
    one = Told()
    (tmp_path / "gpud.db").mkdir()  # no database can be opened there

    async def story() -> None:
        async with telling(tmp_path, one) as told:
            told.publish(SLOW)
            await told.when(lambda: one.heard, "told")

    asyncio.run(story())


def test_a_sink_that_does_not_exist_cannot_be_disabled_in_silence(tmp_path: Path) -> None:
    there = found(context(tmp_path, 'disabled = ["notice", "telegram"]'))
    assert [sink.name for sink in there.sinks] == ["log"]
    assert "no such sink" in there.refused["telegram"]


def test_a_wall_clock_that_jumps_tells_nothing_again(tmp_path: Path) -> None:
    one, offset_s = Told(), [0.0]

    def clock() -> Instant:
        return Instant(time.time() + offset_s[0], time.monotonic())

    async def story() -> None:
        async with telling(tmp_path, one, clock=clock) as told:
            told.publish(SLOW)
            await told.when(lambda: one.heard, "told")
            for offset_s[0] in (-86400.0, 86400.0 * 400):
                told.publish(replace(SLOW, updated_s=time.time()))
                await asyncio.sleep(0.1)

    asyncio.run(story())
    assert len(one.heard) == 1


def test_a_trouble_is_among_the_alerts_that_everybody_sees(tmp_path: Path) -> None:
    dead = Told("webhook", error=DeliveryError("down", reason="refused", fix="start it"))

    async def story() -> None:
        async with telling(tmp_path, dead) as told:

            def seen() -> list[bool]:
                alerts = told.board.read().alerts
                return [alert.firing for alert in alerts if alert.name == SINK_FAILING]

            told.publish(SLOW)
            await told.when(lambda: seen() == [True], "the trouble published")
            told.publish(SLOW, LOST)
            assert seen() == [True]  # whoever tells what fires knows nothing of sinks
            dead.error = None
            await told.when(lambda: seen() == [False], "its end published")

    asyncio.run(story())
    assert SINK_FAILING not in " ".join(dead.words)


def test_one_that_said_no_and_is_not_asked_again_is_told_of_after_ten_minutes(
    tmp_path: Path,
) -> None:
    no = DeliveryError("403", reason="http_403", fix="mend it", again=False)
    dead, well, passed_s = Told("webhook", error=no), Told("log"), [0.0]

    def clock() -> Instant:
        return Instant(time.time() + passed_s[0], time.monotonic() + passed_s[0])

    async def story() -> None:
        async with telling(tmp_path, dead, well, clock=clock) as told:
            told.publish(SLOW)
            await told.when(lambda: well.heard and told.state("webhook").failed, "both asked")
            passed_s[0] = 601.0
            told.publish(replace(SLOW, updated_s=time.time()))
            await told.when(lambda: f"+{SINK_FAILING}" in well.words, "the trouble told")

    asyncio.run(story())
    assert dead.tries == 1


def test_each_of_several_troubles_is_told_with_its_own_fix(tmp_path: Path) -> None:
    one = Told("toast", unready=DeliveryError("interop is off", reason="interop_off", fix="on"))
    two = Told("apprise", unready=DeliveryError("not there", reason="no_apprise", fix="install"))

    async def story() -> None:
        async with telling(tmp_path, one, two) as told:
            await told.when(lambda: "alerts" in told.board.read().health, "health")
            await told.when(lambda: "; " in (told.health.detail or ""), "both")
            assert told.health.fix == "toast: on; apprise: install"

    asyncio.run(story())
