"""Sinks that start a program or write a file, and `gpud alerts test`, which tries every one."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import pytest
from msgspec import structs

from gpud import processes
from gpud.agent import alerts
from gpud.agent.alerts import sink
from gpud.agent.alerts.message import Message
from gpud.agent.alerts.sink import Sink, run_test
from gpud.agent.alerts.sinks import apprise, toast
from gpud.agent.alerts.sinks.command import CommandSink
from gpud.agent.alerts.sinks.notice import LONGEST
from tests.agent.alerts.telling import (
    HOST,
    LOST,
    SLOW,
    context,
    ended,
    firing,
    hostile,
    only,
    receiver,
    refusal,
    says,
)
from tests.agent.telemetry.smi_world import World
from tests.e2e.program import alive
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.core.settings import Settings


def apprise_urls(*urls: str) -> str:
    return f"apprise_urls = {json.dumps(urls)}"


def test_service_gets_title_and_words(tmp_path: Path) -> None:
    with receiver() as there:
        url = f"json://127.0.0.1:{there.port}/s3cret"
        service = only("apprise", context(tmp_path, apprise_urls(url)))
        asyncio.run(service.send(firing(SLOW)))
        [document] = there.documents
    assert document["title"] == f"gpud on {HOST}: warning"
    assert document["message"] == f"{SLOW.summary}\n{SLOW.description}\nFix: {SLOW.fix}"
    assert (document["type"], service.place) == ("warning", "json")


@pytest.mark.parametrize(
    ("url", "reason"),
    [("json://ada:hunter2@127.0.0.1:{port}/T0KEN", "not_taken"), ("nonsense://T0KEN", "bad_url")],
)
def test_service_that_does_not_take_it_is_a_failure_without_its_address(
    url: str, reason: str, tmp_path: Path
) -> None:
    with receiver(says("500 No")) as there:
        urls = apprise_urls(url.format(port=there.port))
        error = refusal(only("apprise", context(tmp_path, urls)), firing(SLOW))
    assert error.reason == reason
    for secret in ("hunter2", "T0KEN"):
        assert secret not in f"{error} {error.fix} {error.output}"


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interpreter that has everything but Apprise stands in: -S leaves site-packages out."""
    root = Path(alerts.__file__).parents[3]
    start = f"import runpy, sys; sys.path.insert(0, {str(root)!r})\n"
    start += "runpy.run_module('gpud.agent.alerts.send', run_name='__main__')"
    monkeypatch.setattr(sink, "SEND", (sys.executable, "-I", "-S", "-c", start))
    error = refusal(only("apprise", context(tmp_path, apprise_urls("json://h/"))), firing(SLOW))
    assert error.reason == "no_apprise"
    hashed = "-m pip install --require-hashes -r deploy/requirements-apprise.txt"
    assert hashed in (error.fix or "")
    monkeypatch.setattr(apprise, "find_spec", lambda _: None)  # an installed gpud has no pip
    error = refusal(only("apprise", context(tmp_path, apprise_urls("json://h/"))), firing(SLOW))
    assert error.fix == "deploy/install --with apprise, then gpud restart"


SPEAKS = """#!/usr/bin/env python3
import json, os, sys
seen = {"argv": sys.argv, "environ": dict(os.environ), "cwd": os.getcwd()}
with open(sys.argv[0] + ".seen", "w") as file:
    json.dump(seen | {"leads": os.getpgrp() == os.getpid(), "stdin": sys.stdin.read()}, file)
"""


def hook(folder: Path, text: str) -> str:
    path = folder / "hook=1 $(x)"  # a name that a shell or env would take for something else
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def command(folder: Path, *command: str, timeout_s: float = 30.0) -> Sink:
    return only("command", context(folder, f"command = {json.dumps(command)}", timeout_s=timeout_s))


def test_program_gets_its_own_arguments_the_alerts_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUD_SECRET", "s3cret")
    path = hook(tmp_path, SPEAKS)
    arguments = ["", "a b", "$(touch x)", "`id`", "*", "A=B", "--", "\x1b[31m", "\u00b5"]
    asyncio.run(command(tmp_path, path, *arguments).send(firing(LOST, SLOW)))
    seen = json.loads((tmp_path / "hook=1 $(x).seen").read_text())
    assert seen["argv"] == [path, *arguments]
    assert seen["environ"].keys() <= {"PATH", "LANG", "LC_CTYPE", "PWD", "SHLVL", "_"}
    assert (seen["cwd"], seen["leads"]) == ("/", True)
    document = json.loads(seen["stdin"])
    assert document["version"] == "4"
    assert [alert["labels"]["alertname"] for alert in document["alerts"]] == [LOST.name, SLOW.name]


@pytest.mark.parametrize(
    ("text", "reason", "words"),
    [
        ("#!/bin/sh\necho boo >&2; exit 3\n", "failed", "ended with 3"),
        ("#!/bin/sh\nkill -9 $$\n", "failed", "ended by SIGKILL"),
        ("#!/nonexistent/interpreter\n", "cannot_execute", "is not there"),
        ("#!/bin/sh\ncat /dev/zero\n", "too_talkative", "said more"),
    ],
)
def test_failure_is_reported_and_output_shown_by_the_test_alone(
    text: str, reason: str, words: str, tmp_path: Path
) -> None:
    error = refusal(command(tmp_path, hook(tmp_path, text)), firing(SLOW))
    assert error.reason == reason
    assert words in str(error)
    assert "boo" not in f"{error} {error.fix}"
    assert "gpud alerts test command" in (error.fix or "")
    if "boo" in text:
        assert error.output == "boo"


def test_program_that_cannot_be_executed_is_reported(tmp_path: Path) -> None:
    for path in ("/nonexistent/program", str(tmp_path)):
        error = refusal(command(tmp_path, path), firing(SLOW))
        assert error.reason == "cannot_execute"
        assert (error.fix or "").startswith("correct the path in [alerts] command")


def test_program_that_hangs_is_ended_with_what_it_has_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    text = (
        f"#!/bin/sh\necho waiting for the server\nsleep 600 &\necho $$ $! >{pids}\n"
        "trap '' TERM\nsleep 600\nwait\n"
    )
    path = hook(tmp_path, text)

    error = refusal(command(tmp_path, path, timeout_s=3.0), firing(SLOW))
    assert (error.reason, error.output) == ("timed_out", "waiting for the server")
    for pid in map(int, pids.read_text().split()):
        until(lambda pid=pid: not alive(pid), f"the end of {pid}")  # type: ignore[misc]


def test_program_that_was_killed_and_stays_keeps_the_next_from_starting(tmp_path: Path) -> None:
    made = command(tmp_path, hook(tmp_path, SPEAKS))
    assert isinstance(made, CommandSink)
    made._program._last = processes.ref(os.getpid())
    error = refusal(made, firing(SLOW))
    assert error.reason == "stuck"
    assert "is still there (state R" in str(error)
    assert not (tmp_path / "hook=1 $(x).seen").exists()


PLACE = f"mnt/c/{toast.INSIDE}"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    with made.interop():
        yield made


def toaster(world: World, *, timeout_s: float = 30.0) -> Sink:
    return only("toast", context(world.root, "toast = true", timeout_s=timeout_s))


def noting(world: World, then: str = "printf shown") -> None:
    seen = world.root / "seen"
    world.program(PLACE, f"printf '%s\\n' \"$@\" >{seen}; env >{seen}.env; cat >{seen}.in\n{then}")


def texts(world: World) -> dict[str, str]:
    sent: dict[str, str] = json.loads(base64.b64decode((world.root / "seen.in").read_bytes()))
    return sent


def test_script_is_a_constant_and_the_words_are_data_on_stdin(world: World) -> None:
    noting(world)
    asyncio.run(toaster(world).send(firing(LOST, SLOW)))
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
    asyncio.run(toaster(world).send(firing(hostile(mark, long=long))))
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
    error = refusal(toaster(world, timeout_s=1.0 if reason == "timed_out" else 30.0), firing(SLOW))
    assert error.reason == reason
    assert error.fix
    assert "Element" not in str(error)


def test_without_interop_it_fails_and_says_why(tmp_path: Path) -> None:
    world = World(tmp_path)
    noting(world)
    error = refusal(toaster(world), firing(SLOW))
    assert (error.reason, "wsl.conf" in (error.fix or ""), world.starts) == (
        "interop_off",
        True,
        [],
    )
    (tmp_path / PLACE).unlink()
    with world.interop():
        error = refusal(toaster(world), firing(SLOW))
    assert (error.reason, PLACE in str(error)) == ("absent", True)


OVER = ended(SLOW, SLOW.starts_s + 60)
LINE = SLOW.summary.replace("µ", "u")
"""The notice is shown by whatever terminal there is."""


@pytest.fixture
def notice(tmp_path: Path) -> Sink:
    return only("notice", context(tmp_path))


def shown(sink: Sink, message: Message) -> str:
    asyncio.run(sink.send(message))
    return Path(sink.place).read_text(encoding="ascii")


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (firing(SLOW), f"{LINE}\n"),
        (
            Message((), (), (LOST, SLOW, structs.replace(SLOW, labels={}))),
            f"{LOST.summary} (and 2 more: gpud alerts)\n",
        ),
        (Message((), (OVER,)), f"resolved: {LINE}\n"),
        (Message((), (OVER,), (LOST,)), f"{LOST.summary}\n"),
        (Message((), (OVER, ended(LOST, OVER.updated_s + 1))), f"resolved: {LOST.summary}\n"),
        (Message(), ""),
    ],
)
def test_notice_has_the_worst_of_what_fires_or_what_ended_last(
    message: Message, text: str, notice: Sink
) -> None:
    shown(notice, firing(LOST))
    assert shown(notice, message) == text


def test_notice_is_a_line_of_ascii_that_a_shell_shows_whole(tmp_path: Path, notice: Sink) -> None:
    alert = hostile(tmp_path / "mark", long=True)
    text = shown(notice, Message((), (), (alert, SLOW)))
    assert len(text) <= LONGEST + 1 <= 300
    assert text.endswith(" (and 1 more: gpud alerts)\n")
    assert all(" " <= letter <= "~" for letter in text[:-1])


def test_it_is_written_in_place_and_not_when_nothing_changes(notice: Sink) -> None:
    """A file that root made stays the file that root made."""
    shown(notice, firing(LOST))
    before = Path(notice.place).stat()
    shown(notice, firing(LOST))
    assert Path(notice.place).stat().st_mtime_ns == before.st_mtime_ns
    shown(notice, firing(SLOW))
    assert Path(notice.place).stat().st_ino == before.st_ino


@pytest.mark.parametrize("there", ["link", "fifo", "directory", "nothing"])
def test_what_is_no_plain_file_is_neither_followed_nor_waited_for(
    there: str, tmp_path: Path, notice: Sink
) -> None:
    path, elsewhere = tmp_path / "run/gpud/notice", tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    if there == "link":
        path.symlink_to(elsewhere)
    elif there == "fifo":
        os.mkfifo(path)
    elif there == "directory":
        path.mkdir()
    else:
        path.parent.rmdir()
    assert refusal(notice, firing(SLOW)).fix
    assert elsewhere.read_text() == "mine"


@pytest.fixture(autouse=True)
def log_closed() -> Iterator[None]:
    """Close the log that a command leaves open for the end of its process to close."""
    yield
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, RotatingFileHandler)]:
        root.removeHandler(handler)
        handler.close()


def settings_of(folder: Path, text: str) -> Settings:
    return context(folder, text).settings


def test_every_sink_gets_a_test_and_each_says_how_it_went(tmp_path: Path) -> None:
    with receiver() as well, receiver(says("401 No")) as dead:
        urls = json.dumps([well.url("/T0KEN"), dead.url("/T0KEN")])
        lines, code = run_test(settings_of(tmp_path, f"webhook_urls = {urls}\n"))
        [document] = well.documents
    assert code == 1
    assert document["alerts"][0]["labels"]["alertname"] == "GpudTest"
    text = "\n".join(lines)
    assert f"webhook: delivered to 127.0.0.1:{well.port}" in lines
    assert f"webhook_2: not delivered: 127.0.0.1:{dead.port} answers 401" in text
    assert "  fix: let [alerts] webhook_credentials_file name a file" in text
    assert "T0KEN" not in text
    assert "notice: " in text
    assert (tmp_path / "run/gpud/notice").read_text().startswith("a test of gpud's alerts")


def test_log_gets_a_line_and_the_terminal_none(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = settings_of(tmp_path, "")
    path = Path(made.log_dir, "agent/agent.log")
    assert run_test(made, "log") == ([f"log: delivered to {path}"], 0)
    line = json.loads(path.read_text())
    assert (line["event"], line["alertname"]) == ("alert_firing", "GpudTest")
    assert capfd.readouterr() == ("", "")
    path.unlink()
    path.parent.rmdir()
    lines, code = run_test(made, "log")
    assert (code, "not delivered" in lines[0], lines[1][:7]) == (1, True, "  fix: ")


def test_sink_can_be_chosen_by_its_name_or_all_of_a_kind(tmp_path: Path) -> None:
    with receiver() as first, receiver() as second:
        made = settings_of(tmp_path, f"webhook_urls = {json.dumps([first.url(), second.url()])}\n")
        delivered = [f"webhook_2: delivered to 127.0.0.1:{second.port}"]
        assert run_test(made, "webhook_2") == (delivered, 0)
        assert run_test(made, "webhook")[1] == 0
        assert (len(first.requests), len(second.requests)) == (1, 2)
    assert not (tmp_path / "run/gpud/notice").exists()


@pytest.mark.parametrize("name", ["webhook", "nonsense", "\x1b[31m"])
def test_sink_that_is_not_configured_is_a_usage_error_that_lists_the_sinks(
    name: str, tmp_path: Path
) -> None:
    lines, code = run_test(settings_of(tmp_path, ""), name)
    assert code == 2
    assert "only log, notice" in lines[0]
    assert "gpud.toml" in lines[1]
    assert "\x1b" not in "".join(lines)


def test_output_of_a_program_is_shown_to_the_person_who_tries_it(tmp_path: Path) -> None:
    script = tmp_path / "hook"
    script.write_text("#!/bin/sh\nprintf 'no \\033[31mroute\\n\\nsorry\\n' >&2\nexit 7\n")
    script.chmod(0o755)
    lines, code = run_test(settings_of(tmp_path, f'command = ["{script}"]'), "command")
    assert code == 1
    assert lines[0] == f"command: not delivered: {script} ended with 7"
    assert lines[1:] == ["  it said: no \\x1b[31mroute", "  it said: sorry"]  # no fix: it is this
