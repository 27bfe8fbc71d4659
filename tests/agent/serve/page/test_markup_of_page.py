"""What holds for every page, whatever it says: well-formed, named, reachable, harmless."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from gpud.agent.serve import page
from gpud.core.health import Level
from tests import snapshots
from tests.agent.serve.page import machines
from tests.agent.serve.page.measured import BIG, SMALL
from tests.agent.serve.page.reading import Page, read, view
from tests.events import altered, health_set

if TYPE_CHECKING:
    from gpud.agent.state.snapshot import Snapshot

EVERY = {
    "full": snapshots.full(),
    "bare": snapshots.bare(),
    "two GPUs": machines.slower(machines.fine(BIG, SMALL), BIG),
    "none": machines.fine(),
}


@pytest.fixture(scope="module", params=sorted(EVERY))
def shown(request: pytest.FixtureRequest) -> Page:
    return read(EVERY[request.param])


def test_what_is_opened_is_closed_and_every_id_is_there_once(shown: Page) -> None:
    assert shown.wrong == []
    ids = [one.attributes["id"] for one in shown.all() if "id" in one.attributes]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[a-zA-Z][\w-]*", one) for one in ids)


def test_what_names_another_element_names_one_that_is_there(shown: Page) -> None:
    for one in shown.all():
        if "aria-labelledby" in one.attributes:
            assert shown[one.attributes["aria-labelledby"]].words
        if one.tag == "a" and one.attributes["href"].startswith("#"):
            assert one.attributes["href"][1:] in shown


def test_every_section_is_named_by_its_heading_and_every_table_by_its_caption(shown: Page) -> None:
    for one in shown.all("section"):
        assert one.attributes["aria-labelledby"] == f"{one.attributes['id']}-title"
    for one in shown.all("table"):
        (caption,) = one.all("caption")
        assert caption.words
        box = one.parent
        assert box is not None
        assert (box.attributes["tabindex"], box.attributes["role"]) == ("0", "region")
        for cell in one.all("th"):
            assert cell.attributes["scope"] in {"row", "col"}
    assert len(shown.all("h1")) == len(shown.all("main")) == 1


def test_headings_leave_out_no_level(shown: Page) -> None:
    levels = [int(one.tag[1]) for one in shown.all() if re.fullmatch("h[1-6]", one.tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_only_the_line_of_the_state_is_read_out(shown: Page) -> None:
    loud = [one.attributes["id"] for one in shown.all() if "aria-live" in one.attributes]
    assert loud == ["state-line"]


def test_no_live_part_lies_in_another_and_none_holds_a_chart(shown: Page) -> None:
    live = [one for one in shown.all() if "data-live" in one.attributes]
    assert live
    for one in live:
        assert one.attributes["id"]
        assert not any("data-live" in above.attributes for above in one.above())
        assert not any("data-chart" in each.attributes for each in one.all())


def test_there_is_neither_style_nor_script_in_the_page_itself(shown: Page) -> None:
    assert not shown.all("style")
    for one in shown.all():
        assert not any(name == "style" or name.startswith("on") for name in one.attributes)
    (script,) = shown.all("script")
    assert (script.attributes, script.children) == (
        {"src": "/static/main.js", "type": "module"},
        [],
    )
    for one in shown.all("a"):
        assert one.attributes["href"].startswith(("/", "#"))


def test_a_page_on_which_nothing_changed_is_the_same_page() -> None:
    first = view(snapshots.full())
    later = replace(first, document=structs.replace(first.document, written_s=first.now_s + 20))
    drop = re.compile(r"<dl>.*?</dl>")  # shares of the running time
    assert drop.sub("", page.page(first)) == drop.sub("", page.page(later))
    assert page.page(first) == page.page(view(snapshots.full()))


HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(2)>\"' \x1b[31m\u202e"


def hostile() -> Snapshot:
    """Everything that is a text in a snapshot, said by an enemy, and a megabyte of it."""
    long = HOSTILE * 20_000
    made = snapshots.full()
    for component in ("dockerd", "cuda", "probes", f"x{HOSTILE}"):
        made = health_set(component, Level.FAILED, 1.0, HOSTILE, long, HOSTILE)(made)
    return altered(
        made,
        version=HOSTILE,
        platform={HOSTILE: long},
        alerts=(replace(snapshots.SLOWER, summary=long, description=long, fix=long),),
    )


def test_nothing_foreign_becomes_markup_or_floods_the_page() -> None:
    shown = read(hostile())
    assert shown.wrong == []
    assert len(shown.all("script")) == 1
    assert not shown.all("img")
    assert "alert(1)" in shown.root.words
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown.text)
    assert len(shown.text) < 200_000
