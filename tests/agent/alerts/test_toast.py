"""The toast, against a script in PowerShell's place that notes what it was started with."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import pytest

from gpud.agent.alerts.sinks import toast
from tests.agent.alerts.telling import LOST, SLOW, context, firing, hostile, only, refusal
from tests.agent.telemetry.smi_world import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpud.agent.alerts.sink import Sink

PLACE = f"mnt/c/{toast.INSIDE}"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    with made.interop():
        yield made


def sink(world: World, *, timeout_s: float = 30.0) -> Sink:
    return only("toast", context(world.root, "toast = true", timeout_s=timeout_s))


def noting(world: World, then: str = "printf shown") -> None:
    seen = world.root / "seen"
    world.program(PLACE, f"printf '%s\\n' \"$@\" >{seen}; env >{seen}.env; cat >{seen}.in\n{then}")


def texts(world: World) -> dict[str, str]:
    sent: dict[str, str] = json.loads(base64.b64decode((world.root / "seen.in").read_bytes()))
    return sent


def test_script_is_a_constant_and_the_words_are_data_on_stdin(world: World) -> None:
    noting(world)
    asyncio.run(sink(world).send(firing(LOST, SLOW)))
    arguments = (world.root / "seen").read_text().splitlines()
    assert tuple(arguments) == toast.ARGUMENTS
    assert base64.b64decode(arguments[-1]).decode("utf-16-le") == toast.SCRIPT
    assert texts(world) == {"title": "gpud: 2 alerts", "text": f"{LOST.summary}\n{SLOW.summary}"}
    environment = (world.root / "seen.env").read_text()
    assert f"WSL_INTEROP={world.root}/run/WSL/8_interop" in environment


@pytest.mark.parametrize("long", [False, True])
def test_hostile_text_is_base64_on_stdin_and_fit_for_xml(*, long: bool, world: World) -> None:
    noting(world)
    mark = world.root / "mark"
    asyncio.run(sink(world).send(firing(hostile(mark, long=long))))
    assert tuple((world.root / "seen").read_text().splitlines()) == toast.ARGUMENTS
    assert len((world.root / "seen.in").read_bytes()) <= 4096
    sent = texts(world)
    assert len(sent["text"]) <= toast.LONGEST_TEXT
    # As the script does it: escaped, then parsed; it comes out as one text that holds all of it.
    parsed = ET.fromstring(f"<text>{escape(sent['text'])}</text>")  # noqa: S314  # ours
    assert parsed.text == sent["text"]
    assert list(parsed) == []
    assert not mark.exists()


def test_script_escapes_both_texts_before_they_become_xml() -> None:
    for name in ("title", "text"):
        escapes = f"${name} = [Security.SecurityElement]::Escape([string]$texts.{name})"
        assert escapes in toast.SCRIPT
    assert toast.SCRIPT.count("$texts.") == 2


@pytest.mark.parametrize(
    ("then", "reason"),
    [
        ("echo 'Element not found.' >&2; exit 1", "failed"),
        ("exit 0", "failed"),  # it says nothing of having shown anything
        ("printf DisabledForUser; exit 3", "switched_off"),
        ("exec sleep 600", "timed_out"),
    ],
)
def test_toast_that_was_not_shown_is_no_delivery(then: str, reason: str, world: World) -> None:
    noting(world, then)
    error = refusal(sink(world, timeout_s=1.0 if reason == "timed_out" else 30.0), firing(SLOW))
    assert error.reason == reason
    assert error.fix
    assert "Element" not in str(error)


def test_without_interop_it_fails_and_says_why(tmp_path: Path) -> None:
    world = World(tmp_path)
    noting(world)
    error = refusal(sink(world), firing(SLOW))
    assert error.reason == "interop_off"
    assert "wsl.conf" in (error.fix or "")
    assert world.starts == []


def test_without_powershell_it_says_where_it_looked(world: World) -> None:
    error = refusal(sink(world), firing(SLOW))
    assert error.reason == "absent"
    assert PLACE in str(error)


def test_toast_is_there_only_where_it_is_switched_on(tmp_path: Path) -> None:
    assert toast.create(context(tmp_path)) == ()
