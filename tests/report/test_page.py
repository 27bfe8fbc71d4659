"""The page: well-formed, complete in itself, harmless whatever a driver says, in Chromium too."""

from __future__ import annotations

import http.server
import re
import shutil
import subprocess
import threading
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from gpud.report import charts, command, page
from gpud.report.build import build
from gpud.report.model import Stretch
from gpud.report.rows import Rows
from tests.report import months

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpud.report.model import Report

MOST_BYTES = 500_000
NARROW = 360
WRAPPER = f"""<!doctype html><body><iframe src=/report.html width={NARROW} height=800></iframe>
<script>onload = () => {{ const page = frames[0].document;
document.title = [page.documentElement.scrollWidth, page.querySelectorAll('svg').length,
  page.querySelectorAll('img, script, iframe, object, embed, link').length].join(' ') }}</script>"""
EAGER = "<!doctype html><img src=/eager.png><script>console.error('I am heard')</script>"


class Reading(HTMLParser):
    """Collects what a browser would act on."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def parsed(drawn: str) -> ET.Element:
    return ET.fromstring(drawn.partition("\n")[2])  # noqa: S314  # ours


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A month in which the drivers' versions are hostile as well."""
    folder = tmp_path_factory.mktemp("hostile")
    drivers = (f"1{months.HOSTILE}", f"2{months.HOSTILE}")
    months.written(folder, spacing_s=4 * 3600.0, drivers=drivers)
    return command.report(folder, months.DAYS, now_s=months.UNTIL_S)


def test_the_page_is_well_formed_and_says_its_language(report: Report, hostile: Report) -> None:
    for found in (report, hostile, build(Rows(), since_s=0.0, until_s=9.0, file_bytes=0)):
        drawn = page.drawn(found, UTC)
        assert drawn.startswith("<!DOCTYPE html>\n")
        root = parsed(drawn)
        assert root.attrib == {"lang": "en"}


def test_nothing_foreign_becomes_markup(hostile: Report) -> None:
    drawn = page.drawn(hostile, UTC)
    read = Reading(drawn)
    assert not {"img", "script", "iframe", "a", "link", "object"} & set(read.tags)
    assert not [name for name, _ in read.attributes if name.startswith("on")]
    assert not any(character in drawn for character in "\x1b\u202e")
    assert "&lt;img src=x onerror=alert(1)&gt;" in drawn


def test_half_a_character_from_a_driver_can_be_written(report: Report) -> None:
    names = dict.fromkeys(report.gpus, "half \ud800 of one")
    drawn = page.drawn(replace(report, gpus=names), UTC)
    assert "half ? of one" in drawn.encode().decode()


def test_the_page_asks_for_nothing_and_forbids_what_it_does_not_need(report: Report) -> None:
    drawn = page.drawn(report, UTC)
    read = Reading(drawn)
    assert ("content", page.POLICY) in read.attributes
    assert not {"src", "href", "action", "srcset"} & {name for name, _ in read.attributes}
    assert not re.search(r"https?:|url\(|@import", drawn)


def test_tables_have_headers_and_charts_have_words(report: Report) -> None:
    root = parsed(page.drawn(report, UTC))
    for head in root.iter("th"):
        assert head.get("scope") in {"row", "col"}
    charts = list(root.iter("svg"))
    assert len(charts) == len(report.tracks) + 1
    for chart in charts:
        assert chart.get("role") == "img"
        assert chart.findtext("title")
        assert chart.findtext("desc")


def test_a_chart_says_in_words_what_it_shows(report: Report) -> None:
    drawn = page.drawn(report, UTC)
    assert "Median 12.4 µs under driver 572.16, then 13.9 µs under driver 576.02." in drawn
    assert "12 % slower with the new driver at 2025-10-27 00:00." in drawn


def test_a_month_of_ten_streams_makes_a_file_one_can_send(report: Report) -> None:
    size = len(page.drawn(report, UTC).encode())
    assert len(report.tracks) == 9
    assert size * 10 / 9 < MOST_BYTES / 2  # four-hour pieces: more runs make it no larger


@contextmanager
def served(**pages: str) -> Iterator[tuple[str, list[str]]]:
    """Serve pages by name on the loopback; give the address, and the paths that are asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = pages.get(self.path.strip("/").removesuffix(".html"), "").encode()
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def looked_at(url: str, profile: Path) -> tuple[str, list[str]]:
    """Open a page in Chromium; give its title, and what the console says."""
    ran = subprocess.run(
        [
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--no-first-run",
            f"--user-data-dir={profile}",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            "--enable-logging=stderr",
            "--dump-dom",
            url,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    title = re.search(r"<title>(.*?)</title>", ran.stdout)
    return title[1] if title else "", [one for one in ran.stderr.splitlines() if "CONSOLE" in one]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium here")
def test_chromium_shows_it_on_a_phone_without_a_word_of_complaint_or_a_request(
    hostile: Report, tmp_path: Path
) -> None:
    with served(report=page.drawn(hostile), phone=WRAPPER, eager=EAGER) as (address, asked):
        _, heard = looked_at(f"{address}/eager.html", tmp_path)
        assert any("I am heard" in line for line in heard)  # so silence means something
        assert "/eager.png" in asked
        asked.clear()
        title, console = looked_at(f"{address}/phone.html", tmp_path)
    assert console == []
    assert set(asked) <= {"/phone.html", "/report.html", "/favicon.ico"}
    wide, charts, foreign = map(int, title.split())
    assert wide <= NARROW  # nothing sticks out to the side
    assert (charts, foreign) == (len(hostile.tracks) + 1, 0)


@pytest.mark.parametrize(
    ("since_s", "names"),
    [
        ((0.0, 500.0), ["572.16", "576.02"]),
        ((0.0, 990.0), ["572.16", "to 576.02"]),
        ((900.0, 990.0), ["to 576.02"]),
        ((0.0, 20.0), ["576.02"]),
    ],
)
def test_a_chart_names_the_newest_driver_wherever_it_begins(
    report: Report, since_s: tuple[float, float], names: list[str]
) -> None:
    first, second = since_s
    stretches = (Stretch("572.16", first, second, 9), Stretch("576.02", second, 1000.0, 9))
    short = replace(report, begins_s=0.0, until_s=1000.0, stretches=stretches)
    drawn = ET.fromstring(charts.course(short, report.tracks[0], 10.0, UTC))  # noqa: S314  # ours
    shown = [one for one in drawn.iter("text") if "name" in (one.get("class") or "")]
    assert sorted(one.text or "" for one in shown) == sorted(names)
