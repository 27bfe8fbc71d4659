"""What every alert sink keeps, wherever it leads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from gpud import discovery
from gpud.agent.alerts import sinks as folder
from gpud.agent.alerts.sink import OFFERS
from gpud.core.errors import DeliveryError
from tests.agent.alerts.telling import LOST, SLOW, context, firing, hostile
from tests.agent.measure.ticking import HELD_UP_S, ticking

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.agent.alerts.sink import Sink

USABLE, REFUSED = discovery.modules(folder, OFFERS)
each = pytest.mark.parametrize("module", USABLE.values(), ids=list(USABLE))
SECRET = "T0KEN"  # noqa: S105  # that is what is looked for
EVERYTHING = f"""
webhook_urls = ["http://u:{SECRET}@127.0.0.1:1/{SECRET}?{SECRET}"]
command = ["/nonexistent/program", "{SECRET}"]
toast = true
apprise_urls = ["json://u:{SECRET}@127.0.0.1:1/{SECRET}"]
"""


def made(module: Any, folder: Path, text: str = EVERYTHING) -> tuple[Sink, ...]:
    sinks: tuple[Sink, ...] = module.create(context(folder, text))
    return sinks


def test_every_file_in_the_folder_makes_sinks() -> None:
    assert REFUSED == {}
    assert USABLE.keys() >= {"apprise", "command", "log", "notice", "toast", "webhook"}


@each
def test_a_sink_is_called_after_its_file_and_shows_no_secret(module: Any, tmp_path: Path) -> None:
    assert module.__name__.endswith(f".{module.NAME}")
    [sink] = made(module, tmp_path)
    assert sink.name == module.NAME
    assert sink.place
    assert SECRET not in f"{sink.name} {sink.place}"


@each
def test_where_nothing_is_configured_only_the_notice_and_the_log_are_told(
    module: Any, tmp_path: Path
) -> None:
    assert len(made(module, tmp_path, "")) == (module.NAME in {"notice", "log"})


@each
@pytest.mark.parametrize("long", [False, True])
def test_a_sink_delivers_or_says_why_and_what_to_do_and_never_blocks(
    module: Any, *, long: bool, tmp_path: Path
) -> None:
    message = firing(hostile(tmp_path / "mark", long=long), LOST, SLOW)

    async def once() -> list[DeliveryError]:
        [sink] = made(module, tmp_path)
        caught = []
        async with ticking() as gap:
            try:
                await sink.send(message)
            except DeliveryError as error:
                caught.append(error)
        assert gap.largest_s < HELD_UP_S
        return caught

    for error in asyncio.run(once()):
        assert error.reason.replace("_", "").isalnum()
        assert error.fix
        assert SECRET not in f"{error} {error.fix}"
    assert not (tmp_path / "mark").exists()
