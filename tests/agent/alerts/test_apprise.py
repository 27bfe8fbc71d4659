"""The real Apprise, in its own process, against a receiver on a real socket."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.agent import alerts
from gpud.agent.alerts import sink
from gpud.agent.alerts.sinks import apprise
from tests.agent.alerts.telling import (
    HOST,
    SLOW,
    context,
    firing,
    only,
    receiver,
    refusal,
    says,
)

if TYPE_CHECKING:
    import pytest


def settings(*urls: str) -> str:
    return f"apprise_urls = {json.dumps(urls)}"


def test_service_gets_title_and_words(tmp_path: Path) -> None:
    with receiver() as there:
        url = f"json://127.0.0.1:{there.port}/s3cret"
        service = only("apprise", context(tmp_path, settings(url)))
        asyncio.run(service.send(firing(SLOW)))
        [document] = there.documents
    assert document["title"] == f"gpud on {HOST}: warning"
    assert document["message"] == f"{SLOW.summary}\n{SLOW.description}\nFix: {SLOW.fix}"
    assert (document["type"], service.place) == ("warning", "json")


def test_service_that_does_not_take_it_is_a_failure_without_its_address(tmp_path: Path) -> None:
    with receiver(says("500 No")) as there:
        url = f"json://ada:hunter2@127.0.0.1:{there.port}/T0KEN"
        error = refusal(only("apprise", context(tmp_path, settings(url))), firing(SLOW))
    assert error.reason == "not_taken"
    for secret in ("hunter2", "T0KEN"):
        assert secret not in f"{error} {error.fix} {error.output}"


def test_service_that_apprise_does_not_know_is_a_wrong_address(tmp_path: Path) -> None:
    service = only("apprise", context(tmp_path, settings("nonsense://T0KEN")))
    error = refusal(service, firing(SLOW))
    assert error.reason == "bad_url"
    assert "T0KEN" not in str(error)


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interpreter that has everything but Apprise stands in: -S leaves site-packages out."""
    root = Path(alerts.__file__).parents[3]
    start = f"import runpy, sys; sys.path.insert(0, {str(root)!r})\n"
    start += "runpy.run_module('gpud.agent.alerts.send', run_name='__main__')"
    monkeypatch.setattr(sink, "SEND", (sys.executable, "-I", "-S", "-c", start))
    error = refusal(only("apprise", context(tmp_path, settings("json://h/"))), firing(SLOW))
    assert error.reason == "no_apprise"
    hashed = "-m pip install --require-hashes -r deploy/requirements-apprise.txt"
    assert hashed in (error.fix or "")
    monkeypatch.setattr(apprise, "find_spec", lambda _: None)  # an installed gpud has no pip
    error = refusal(only("apprise", context(tmp_path, settings("json://h/"))), firing(SLOW))
    assert error.fix == "deploy/install --with apprise, then gpud restart"


def test_several_addresses_are_sinks_of_their_own(tmp_path: Path) -> None:
    made = apprise.create(context(tmp_path, settings("ntfy://a", "mailto://u:p@h")))
    assert [(service.name, service.place) for service in made] == [
        ("apprise", "ntfy"),
        ("apprise_2", "mailto"),
    ]
