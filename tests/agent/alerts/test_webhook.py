"""What a webhook gets, and how it is addressed; test_webhook_faults has what goes wrong."""

from __future__ import annotations

import asyncio
import base64
import os
from typing import TYPE_CHECKING

import pytest

from gpud.agent.alerts.sinks import webhook as plugin
from tests.agent.alerts.telling import (
    HOST,
    LOST,
    SLOW,
    context,
    firing,
    receiver,
    refusal,
    says,
    webhook,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_a_receiver_gets_alertmanagers_document(tmp_path: Path) -> None:
    with receiver() as there:
        asyncio.run(webhook(tmp_path, there.url("/a?b=c")).send(firing(LOST, SLOW)))
        [(head, _)] = there.requests
        [document] = there.documents
    assert head.startswith("POST /a?b=c HTTP/1.1\r\n")
    assert "Content-Type: application/json" in head
    assert document["status"] == "firing"
    assert [alert["labels"]["alertname"] for alert in document["alerts"]] == [LOST.name, SLOW.name]
    assert {alert["labels"]["instance"] for alert in document["alerts"]} == {HOST}


@pytest.mark.parametrize("status", ["202 Accepted", "204 No Content"])
def test_any_2xx_is_a_delivery(status: str, tmp_path: Path) -> None:
    with receiver(says(status)) as there:
        asyncio.run(webhook(tmp_path, there.url()).send(firing(SLOW)))
        assert len(there.requests) == 1


def test_one_that_does_not_listen_is_named_by_host_and_port_alone(tmp_path: Path) -> None:
    with receiver() as gone:
        port = gone.port
    url = f"http://user:hunter2@127.0.0.1:{port}/services/T0KEN?key=s3cret"
    error = refusal(webhook(tmp_path, url), firing(SLOW))
    assert error.reason == "refused"
    assert f"127.0.0.1:{port}" in str(error)
    for secret in ("hunter2", "T0KEN", "s3cret"):
        assert secret not in f"{error} {error.fix} {error.output}"


@pytest.mark.parametrize(
    "url",
    ["http://a..b/s3cret", f"http://{'a' * 300}/s3cret", "http://127.0.0.1:1/s3cret/\u00e9"],
)
def test_an_address_that_is_none_is_not_tried_again_and_not_quoted(
    url: str, tmp_path: Path
) -> None:
    error = refusal(webhook(tmp_path, url), firing(SLOW))
    assert error.reason in {"bad_url", "refused", "no_such_host"}
    assert "s3cret" not in f"{error} {error.fix}"
    assert "webhook" in (error.fix or "")


def test_the_token_comes_from_its_file_and_a_password_from_the_address(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("  t0ken\n")
    more = f'webhook_credentials_file = "{token}"'
    with receiver() as there:
        asyncio.run(webhook(tmp_path, there.url(), more=more).send(firing(SLOW)))
        named = there.url().replace("127", "ada:pa%20ss@127", 1)
        asyncio.run(webhook(tmp_path, named).send(firing(SLOW)))
        heads = [head for head, _ in there.requests]
    assert "Authorization: Bearer t0ken" in heads[0].splitlines()
    basic = base64.b64encode(b"ada:pa ss").decode()
    assert f"Authorization: Basic {basic}" in heads[1].splitlines()


@pytest.mark.parametrize("content", [None, b"a\nb", b"\xff\xfe", "fifo"])
def test_without_a_token_nothing_is_sent_and_it_is_told_before_the_first_alert(
    content: bytes | str | None, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    if content == "fifo":
        os.mkfifo(token)
    elif isinstance(content, bytes):
        token.write_bytes(content)
    with receiver() as there:
        one = webhook(tmp_path, there.url(), more=f'webhook_credentials_file = "{token}"')
        error = refusal(one, firing(SLOW))
        assert error.reason == "no_credentials"
        assert "webhook_credentials_file" in (error.fix or "")
        with pytest.raises(type(error)):
            asyncio.run(one.ready())
        assert there.requests == []


def test_proxies_of_the_environment_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver() as proxy, receiver() as there:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url())
        asyncio.run(webhook(tmp_path, there.url()).send(firing(SLOW)))
        assert (len(there.requests), proxy.requests) == (1, [])


def test_two_addresses_are_two_sinks(tmp_path: Path) -> None:
    with receiver() as there:
        urls = f'webhook_urls = ["{there.url("/1")}", "{there.url("/2")}"]'
        made = plugin.create(context(tmp_path, urls))
    assert [one.name for one in made] == ["webhook", "webhook_2"]
