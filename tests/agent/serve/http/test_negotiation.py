"""What a request says of the answer it wants, and that every answer beside the API heeds it."""

from __future__ import annotations

import pytest

from gpud.agent.serve.http import assets
from gpud.agent.serve.http.response import accepts_gzip, names_tag
from tests import snapshots
from tests.agent.serve.http.test_web import ask, served

LINKS = ("/", "/metrics", assets.load().href("main.js"))


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", False),
        ("gzip", True),
        ("GZIP", True),
        ("deflate, gzip;q=0.5", True),
        ("gzip;q=0", False),
        ("*", True),
        ("*, gzip;q=0.0", False),
        ("identity", False),
        ("gzip;q=x", False),
        ("gzip;level=9", False),
    ],
)
def test_gzip_is_sent_to_who_accepts_it(header: str, *, expected: bool) -> None:
    assert accepts_gzip(header) is expected


@pytest.mark.parametrize("header", ['"a"', 'W/"a"', '"b", "a"', '"b",W/"a"', "*"])
def test_a_tag_is_found_in_a_list_weak_or_strong(header: str) -> None:
    assert names_tag(header, '"a"', '"c"')


@pytest.mark.parametrize("header", ["", "a", '"b"', '"a-gzip"', 'W/"b"'])
def test_another_tag_is_another(header: str) -> None:
    assert not names_tag(header, '"a"', '"c"')


def test_who_forbids_gzip_gets_none_and_a_packed_answer_has_a_tag_of_its_own() -> None:
    with served(snapshots.full()) as port:
        for link in LINKS:
            _, plain, _ = ask(port, link, accept_encoding="gzip;q=0")
            _, packed, _ = ask(port, link, accept_encoding="gzip")
            assert "content-encoding" not in plain, link
            assert packed["content-encoding"] == "gzip", link
            assert "etag" not in plain or plain["etag"] != packed["etag"], link
            assert plain["vary"] == packed["vary"], link
            if tag := packed.get("etag"):
                again = ask(port, link, accept_encoding="gzip", if_none_match=f'"x", W/{tag}')
                assert again[0] == 304, link
