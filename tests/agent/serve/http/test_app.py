"""Page, metrics, health, files and runbooks over a real socket."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import socket
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud.agent.serve.http import assets, runbooks
from gpud.agent.serve.http.response import accepts_gzip, names_tag
from gpud.agent.serve.http.service import bind
from gpud.core.errors import ListenError
from tests import snapshots
from tests.agent.serve.http.armed import ask, served

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = assets.load()
OURS = sorted(name for name in FILES.files if "/" not in name)
PAGES = Path(__file__).resolve().parents[4] / "docs/runbooks"
RUNBOOKS = sorted(page.stem for page in PAGES.iterdir())


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with served(snapshots.full()) as number:
        yield number


# --- metrics, status, health ---------------------------------------------------------------------


def test_plain_client_gets_the_text_format(port: int) -> None:
    code, headers, body = ask(port, "/metrics")
    assert (code, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b"gpud_build_info{" in body


def test_status_has_failures_curves_and_a_value_or_a_reason_for_each_reading(port: int) -> None:
    document = json.loads(ask(port, "/api/v1/status")[2])
    assert (document["schema_version"], document["state"]) == (1, "failed")
    assert document["health"]["probes"]["reason"] == "verification_failed"
    probes = {probe["probe"]: probe for probe in document["probes"]}
    modes = [sample["mode"] for sample in probes["launch"]["samples"]]
    assert modes == ["submit", "roundtrip", "pipelined"]
    assert probes["crossover"]["curve"] == [
        {"n": 192, "cpu_s": 1.5e-4, "gpu_s": 2.2e-4},
        {"n": 256, "cpu_s": 3.1e-4, "gpu_s": 2.4e-4},
    ]
    readings = document["telemetry"]["readings"]
    absent = {each["field"]: each["absent"] for each in readings if each["value"] is None}
    assert absent["utilization_memory_ratio"] == "unsupported"
    assert all((each["value"] is None) != (each["absent"] is None) for each in readings)


def test_loopback_names_are_served_and_others_refused(port: int) -> None:
    for host in ("localhost:9945", "127.0.0.1", "[::1]:9945"):
        assert ask(port, "/-/healthy", host=host)[0] == 200
    for path in ("/api/v1/status", "/runbooks/GpudDown"):
        code, _, body = ask(port, path, host="attacker.example")
        assert code == 421
        assert b"gpud_" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed_over_http(port: int, method: str) -> None:
    for path in ("/", "/metrics", "/api/v1/status", "/-/healthy", "/runbooks/GpudDown"):
        assert ask(port, path, method=method)[0] == 405


def test_unknown_path_is_refused_in_plain_words(port: int) -> None:
    code, _, body = ask(port, "/nothing")
    assert (code, body) == (404, b"there is no '/nothing'; try / or /metrics\n")


def test_agent_is_ready_once_the_first_probe_has_ended(port: int) -> None:
    assert ask(port, "/-/ready")[0] == 200
    with served(snapshots.bare()) as number:
        assert ask(number, "/-/ready")[0] == 503
        assert ask(number, "/-/healthy")[0] == 200


# --- the listening socket ------------------------------------------------------------------------


def test_response_on_a_kept_connection_is_sent_at_once() -> None:
    """asyncio turns Nagle's algorithm off where the listener says that it speaks TCP."""
    with bind("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_address_that_is_taken_or_not_ours_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        number = holder.getsockname()[1]
        words = rf"127.0.0.1:{number} is taken by \S+ \(process \d+\)"
        with pytest.raises(ListenError, match=words) as caught:
            bind("127.0.0.1", number)
    assert caught.value.reason == "address_in_use"
    with pytest.raises(ListenError, match=r"cannot listen on 192\.0\.2\.1") as caught:
        bind("192.0.2.1", 0)
    assert caught.value.reason == "cannot_listen"


# --- gzip and tags -------------------------------------------------------------------------------


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
def test_accept_encoding_allows_or_forbids_gzip(header: str, *, expected: bool) -> None:
    assert accepts_gzip(header) is expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        *(('"a"', True), ('W/"a"', True), ('"b", "a"', True), ('"b",W/"a"', True), ("*", True)),
        *(("", False), ("a", False), ('"b"', False), ('"a-gzip"', False), ('W/"b"', False)),
    ],
)
def test_if_none_match_names_a_tag(header: str, *, expected: bool) -> None:
    assert names_tag(header, '"a"', '"c"') is expected


@pytest.mark.parametrize("link", ["/", "/metrics", FILES.href("main.js")])
def test_compressed_response_has_its_own_tag(port: int, link: str) -> None:
    _, plain, body = ask(port, link, accept_encoding="gzip;q=0")
    _, packed, small = ask(port, link, accept_encoding="gzip")
    assert "content-encoding" not in plain
    assert packed["content-encoding"] == "gzip"
    assert plain["vary"] == packed["vary"]
    if tag := packed.get("etag"):
        assert gzip.decompress(small) == body
        assert plain["etag"] != tag
        again = ask(port, link, accept_encoding="gzip", if_none_match=f'"x", W/{tag}')
        assert again[0] == 304


def test_page_has_the_headers_of_every_response_and_preloads_its_scripts(port: int) -> None:
    code, headers, body = ask(port, "/")
    assert (code, headers["cache-control"]) == (200, "no-store")
    assert "script-src 'self'" in headers["content-security-policy"]
    names = {link.removeprefix("/static/").partition("?")[0] for link in FILES.modules}
    assert "main.js" in names
    assert "charts.js" not in names, "charts are asked for when they are needed"
    for link in FILES.modules:
        assert f'<link rel="modulepreload" href="{link}">' in body.decode()


# --- /static/ ------------------------------------------------------------------------------------


def test_vendored_files_are_the_published_ones() -> None:
    (sums,) = assets.FOLDER.rglob("SHA256SUMS")
    listed = dict(line.split("  ")[::-1] for line in sums.read_text().splitlines())
    digests = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sums.parent.iterdir()
        if path != sums
    }
    assert digests == listed
    assert "LICENSE" in digests


@pytest.mark.parametrize("name", sorted(FILES.files))
def test_link_with_the_version_may_be_kept_for_ever(port: int, name: str) -> None:
    code, headers, body = ask(port, FILES.href(name))
    assert (code, body) == (200, FILES.files[name].plain)
    assert headers["cache-control"] == "public, max-age=31536000, immutable"
    assert headers["content-type"] == FILES.files[name].media_type
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("query", ["", "?v=", "?v=0123456789abcdef"])
def test_link_without_the_version_is_asked_again_each_time(port: int, query: str) -> None:
    code, headers, _ = ask(port, f"/static/main.js{query}")
    assert (code, headers["cache-control"]) == (200, "no-cache")
    code, _, body = ask(port, f"/static/main.js{query}", if_none_match=headers["etag"])
    assert (code, body) == (304, b"")


@pytest.mark.parametrize(
    "name", ["", "/", "nothing.js", "..", "vendor", "vendor/uPlot-1.6.32/SHA256SUMS"]
)
def test_other_names_are_no_files(port: int, name: str) -> None:
    assert ask(port, f"/static/{name}")[0] == 404


@pytest.mark.parametrize("name", OURS)
def test_own_file_is_short_names_no_origin_and_imports_what_there_is(name: str) -> None:
    text = (assets.FOLDER / name).read_text()
    assert len(text.splitlines()) <= (250 if name.endswith(".js") else 1000)
    assert not re.search(r"https?:|//\w+\.\w+/|@import", text)
    code = re.sub(r"^\s*(//|/?\*).*$", "", text, flags=re.MULTILINE)
    assert not re.search(r"\beval\(|Function\(|HTML\b|document\.write|setAttribute\(.on", code)
    sent = FILES.files[name].plain.decode()
    imports = r'^(?:import|export|\}) .*?"(\./.*?)"|\bimport\("(.*?)"\)'
    for link in re.findall(imports, sent, re.MULTILINE):
        neighbour, _, version = "".join(link).removeprefix("./").partition("?v=")
        assert (neighbour in FILES.files, version) == (True, FILES.version)


def test_changed_file_makes_another_version(tmp_path: Path) -> None:
    (tmp_path / "main.js").write_text("1")
    first = assets.load(tmp_path)
    (tmp_path / "main.js").write_text("2")
    assert assets.load(tmp_path).version != first.version
    with pytest.raises(KeyError):
        first.href("other.js")


# --- /runbooks/ ----------------------------------------------------------------------------------


class Shape(HTMLParser):
    """The text of a page, its links, and whether what is opened is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.style, self.links = "", "", list[str]()
        self.open, self.wrong = list[str](), list[str]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "link":
            self.style = dict(attrs)["href"] or ""
            return
        self.links += [value or "" for name, value in attrs if name in {"href", "src"}]
        if tag in {"h1", "h2", "p", "ul", "li", "header", "main"}:
            self.text += "\n"
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_list_of_runbooks_leads_to_every_page(port: int) -> None:
    for path in ("/runbooks", "/runbooks/"):
        code, headers, body = ask(port, path)
        assert (code, headers["content-type"]) == (200, "text/html; charset=utf-8")
        links = [link for link in Shape(body.decode()).links if link.count("/") == 2]
        pages = [link for link in links if link != "/runbooks/"]
        assert pages == [f"/runbooks/{name}" for name in RUNBOOKS]


@pytest.mark.parametrize("name", RUNBOOKS)
def test_runbook_is_shown_whole_without_its_markdown(port: int, name: str) -> None:
    code, headers, body = ask(port, f"/runbooks/{name}")
    assert code == 200
    assert "default-src 'none'" in headers["content-security-policy"]
    shape = Shape(body.decode())
    assert (shape.open, shape.wrong) == ([], [])
    text = (PAGES / f"{name}.md").read_text()
    marks = r"`|(?<!\w)\*|\*(?!\w)|^(#+|-) |\[(\w+)\]\(\w+\.md\)"
    words = re.sub(marks, r"\2", text, flags=re.MULTILINE).split()
    assert words == shape.text.partition("runbooks")[2].split()
    for link in (*shape.links, shape.style):
        assert ask(port, link)[0] == 200
    assert ask(port, f"/runbooks/{name}.md")[2].decode() == text


@pytest.mark.parametrize(
    "name", ["GpudNothing", "..%2Fmetrics", "%2e%2e%2fmetrics.md", "Gpud%00Down", "%1b[31m"]
)
def test_unknown_runbook_is_refused_in_plain_words(port: int, name: str) -> None:
    code, headers, body = ask(port, f"/runbooks/{name}")
    assert (code, headers["content-type"]) == (404, "text/plain; charset=utf-8")
    assert body.startswith(b"there is no ")
    assert b"\x1b" not in body


def test_markup_in_a_runbook_is_shown_as_text(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script> `<b>` *<i>* [x](javascript:alert(1)) & \"'\n- <img src=x>"
    (tmp_path / "GpudEvil.md").write_text(f"# T\n\n{hostile}\n")
    (tmp_path / "not a name.md").write_text("x")
    with served(snapshots.bare(), runbooks.routes("/static/page.css", tmp_path)) as number:
        page = ask(number, "/runbooks/GpudEvil")[2].decode()
        assert ask(number, "/runbooks/")[2].count(b"<li>") == 1
    shape = Shape(page)
    assert set(shape.links) == {"/", "/runbooks/"}
    for text in ("<script>alert(1)</script>", "<b>", "<i>", "[x](javascript", "<img src=x>"):
        assert text in shape.text


def test_runbooks_of_a_checkout_are_the_files_of_docs() -> None:
    assert runbooks.folder() == PAGES
