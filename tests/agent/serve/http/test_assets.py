"""The files beside the page: which there are, how long they may be kept, that they are whole."""

from __future__ import annotations

import gzip
import hashlib
import re
from typing import TYPE_CHECKING

import pytest

from gpud.agent.serve.http import assets
from tests import snapshots
from tests.agent.serve.http.test_web import ask, served

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = assets.load()
OURS = sorted(name for name in FILES.files if "/" not in name)
LONGEST = 250


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with served(snapshots.bare()) as number:
        yield number


def test_what_is_vendored_is_what_was_published() -> None:
    (sums,) = assets.FOLDER.rglob("SHA256SUMS")
    listed = dict(line.split("  ")[::-1] for line in sums.read_text().splitlines())
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sums.parent.iterdir()
        if path != sums
    }
    assert found == listed
    assert "LICENSE" in found


@pytest.mark.parametrize("name", sorted(FILES.files))
def test_a_link_with_the_version_may_be_kept_for_ever(port: int, name: str) -> None:
    code, headers, body = ask(port, FILES.href(name))
    assert code == 200
    assert headers["cache-control"] == "public, max-age=31536000, immutable"
    assert headers["content-type"] == FILES.files[name].media_type
    assert headers["x-content-type-options"] == "nosniff"
    assert body == FILES.files[name].plain


@pytest.mark.parametrize("query", ["", "?v=", "?v=0123456789abcdef"])
def test_a_link_without_it_is_asked_again_and_answered_shortly(port: int, query: str) -> None:
    code, headers, _ = ask(port, f"/static/main.js{query}")
    assert (code, headers["cache-control"]) == (200, "no-cache")
    code, _, body = ask(port, f"/static/main.js{query}", if_none_match=headers["etag"])
    assert (code, body) == (304, b"")


def test_it_travels_packed_to_who_can_unpack_it(port: int) -> None:
    name = "vendor/uPlot-1.6.32/uPlot.iife.min.js"
    _, headers, body = ask(port, FILES.href(name), accept_encoding="gzip, deflate")
    assert headers["content-encoding"] == "gzip"
    assert gzip.decompress(body) == (assets.FOLDER / name).read_bytes()


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "nothing.js",
        "..",
        "../assets.py",
        "%2e%2e/assets.py",
        "..%2fassets.py",
        "vendor",
        "vendor/uPlot-1.6.32/SHA256SUMS",
        "vendor/../main.js",
        "main.js%00",
        "/etc/passwd",
    ],
)
def test_no_other_name_leads_to_a_file(port: int, name: str) -> None:
    assert ask(port, f"/static/{name}")[0] == 404


def test_a_module_names_its_neighbours_with_the_version_and_each_is_there() -> None:
    for name in OURS:
        if not name.endswith(".js"):
            continue
        text = FILES.files[name].plain.decode()
        imports = re.findall(r'^(?:import|export) .*? ?from "(.*?)";$', text, re.MULTILINE)
        imports += re.findall(r'^} from "(.*?)";$', text, re.MULTILINE)
        imports += re.findall(r'\bimport\("(.*?)"\)', text)
        for link in imports:
            neighbour, _, version = link.removeprefix("./").partition("?v=")
            assert neighbour in FILES.files, name
            assert version == FILES.version, name


@pytest.mark.parametrize("name", OURS)
def test_our_own_files_can_be_read_in_one_sitting_and_name_no_other_origin(name: str) -> None:
    text = (assets.FOLDER / name).read_text()
    assert len(text.splitlines()) <= (LONGEST if name.endswith(".js") else 4 * LONGEST)
    assert not re.search(r"https?:|//\w+\.\w+/|@import", text)
    code = re.sub(r"^\s*(//|/?\*).*$", "", text, flags=re.MULTILINE)
    assert not re.search(r"\beval\(|Function\(|HTML\b|document\.write|setAttribute\(.on", code)


def test_another_file_makes_another_version(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("static")
    (folder / "main.js").write_text("1")
    one = assets.load(folder)
    (folder / "main.js").write_text("2")
    assert assets.load(folder).version != one.version
    with pytest.raises(KeyError):
        one.href("other.js")


def test_what_the_page_needs_at_once_is_asked_for_at_once_and_charts_are_not(port: int) -> None:
    names = [link.removeprefix("/static/").partition("?")[0] for link in FILES.modules]
    assert {"main.js", "live.js", "view.js", "time.js"} <= set(names)
    assert not {"charts.js", "history.js"} & set(names)
    page = ask(port, "/")[2].decode()
    assert all(f'<link rel="modulepreload" href="{link}">' in page for link in FILES.modules)
