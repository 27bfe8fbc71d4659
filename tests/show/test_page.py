"""Page: its state line, and what holds for every page: well-formed, named, reachable, harmless."""

from __future__ import annotations

import re
from html import unescape
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.serve.markup import LONGEST, Html, el, joined, plain, text
from gpud.core.stats import human
from gpud.show.headline import SLOWER, WORDS
from tests import snapshots
from tests.browser import worlds
from tests.show.documents import NOW_S, html, machine, of, read, screen, two_gpus
from tests.show.reading import Page

if TYPE_CHECKING:
    from tests.show.reading import Element


EVERY = {
    "full": of(snapshots.full()),
    "bare": of(snapshots.bare()),
    "two GPUs": two_gpus(),
    **{state: machine(state) for state in worlds.NAMES},
}
DOCUMENTED = (Path(__file__).resolve().parents[2] / "docs/page.md").read_text()


@pytest.fixture(scope="module", params=sorted(EVERY))
def shown(request: pytest.FixtureRequest) -> Page:
    return read(EVERY[request.param])


def test_every_element_is_closed_and_every_section_table_and_link_has_a_name(shown: Page) -> None:
    assert shown.wrong == []
    ids = [element.attributes["id"] for element in shown.all() if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[a-zA-Z][\w-]*", name) for name in ids)
    for element in shown.all():
        if "aria-labelledby" in element.attributes:
            assert shown[element.attributes["aria-labelledby"]].words
        if element.tag == "a":
            assert element.attributes["href"].startswith(("/", "#"))
            if element.attributes["href"].startswith("#"):
                assert element.attributes["href"][1:] in shown
        assert not any(name == "style" or name.startswith("on") for name in element.attributes)
    for table in shown.all("table"):
        assert table.parent is not None
        around = table.parent.attributes
        assert (around["tabindex"], around["role"]) == ("0", "region")
        assert all(cell.attributes["scope"] in {"row", "col"} for cell in table.all("th"))
    levels = [int(each.tag[1]) for each in shown.all() if re.fullmatch("h[1-6]", each.tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert len(shown.all("h1")) == len(shown.all("main")) == 1
    loud = [each.attributes["id"] for each in shown.all() if "aria-live" in each.attributes]
    assert loud == ["state-line"], "nothing else is read out"
    library, script = shown.all("script")
    assert library.attributes["src"].startswith("/static/vendor/uPlot-")
    assert script.attributes == {"src": "/static/main.js", "type": "module"}
    assert library.children == script.children == shown.all("style") == []


def test_page_on_which_nothing_changed_is_the_same_page() -> None:
    made = of(snapshots.full())
    later = made | {"written_s": made["written_s"] + 5}
    drop = re.compile(r"<dl>.*?</dl>")  # shares of the running time
    assert drop.sub("", html(made)) == drop.sub("", html(later))


HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(2)>\"' \x1b[31m\u202e"


def test_nothing_foreign_becomes_markup_or_floods_the_page() -> None:
    long = HOSTILE * 20_000
    made = of(snapshots.full()) | {"version": HOSTILE, "platform": {HOSTILE: long}}
    for component in ("dockerd", "cuda", "probes", f"x{HOSTILE}"):
        part = {"level": 2, "reason": HOSTILE, "detail": long, "fix": HOSTILE, "since_s": 1.0}
        made["health"][component] = part
    made["alerts"][0] |= {"summary": long, "description": long, "fix": long}
    shown = read(made)
    assert shown.wrong == []
    assert len(shown.all("script")) == 2
    assert not shown.all("img")
    assert "alert(1)" in shown.root.words
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown.text)
    assert len(shown.text) < 200_000


@pytest.mark.parametrize("state", worlds.NAMES)
def test_state_is_in_the_title_the_line_and_the_colour(state: str) -> None:
    shown = read(machine(state))
    word = worlds.WORDS[state]
    assert next(iter(shown.all("title"))).words == f"{word}: gpud on laptop"
    assert shown["state-line"].words.startswith(f"gpud: {word} ")
    assert shown["state-line"].words.count(" since 20") == 1
    (root,) = shown.all("html")
    assert WORDS[root.attributes["data-state"]] == (word if word != SLOWER else "Degraded")  # type: ignore[index]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("regressed", "To do: to go back to driver 566.36 in Windows"),
        ("regressed", "what this means"),
        ("no_nvml", "To do: install or update the NVIDIA driver in Windows"),
        ("no_data", "Nothing has been measured yet."),
    ],
)
def test_below_the_state_stands_what_to_do(state: str, words: str) -> None:
    assert words in read(machine(state))["state-rest"].words


def test_alert_has_its_evidence_in_a_table_and_a_way_to_its_runbook() -> None:
    shown = read(machine("regressed"))
    assert shown.rows("alerts")[0][:5] == [
        *("submission latency launch submit", "12 % slower", "12.4 µs", "13.9 µs", "GPU 0")
    ]
    links = [link.attributes["href"] for link in shown["alerts"].all("a")]
    assert links == ["#history-gpu0-launch-submit", "/runbooks/GpudDriverRegression"]
    back = [link.attributes["href"] for link in shown[links[0][1:]].all("a")]
    assert back == ["#alert-9f8fb86291dda0c7"]
    assert back[0][1:] in shown
    assert "Likely cause, the likeliest first: driver 566.36 -> 572.16" in shown["alerts"].words


def test_figures_that_are_too_old_say_so_wherever_they_stand() -> None:
    made = machine()
    made["probes"] = [run | {"old": True} for run in made["probes"]]
    shown = read(made)
    old = shown["state-rest"].words.partition("Too old to stand for now: ")[2]
    assert old.startswith("container_nbody (GPU 0), copy (GPU 0), cpu_call (CPU), crossover (")
    assert {row[1][-4:] for row in shown.rows("figures")} == {" old"}
    rows = [line for line in screen(made) if "launch submit" in line]
    assert " old " in rows[0]


def test_card_without_telemetry_says_why() -> None:
    shown = read(machine("no_nvml", telemetry={"readings": []}))
    card = shown["gpus"].words
    assert "No telemetry: NVML: libnvidia-ml.so.1: cannot open" in card
    assert not list(shown["gpus"].all("meter"))


def test_chart_writes_a_figure_with_the_symbol_of_its_table() -> None:
    script = files("gpud.agent.serve.http").joinpath("static/time.js").read_text("utf-8")
    for unit in ("seconds", "bytes_per_second", "flops_per_second"):
        for size in (1e-6, 1e-3) if unit == "seconds" else (1e6, 1e9, 1e12):
            for mode in (None, "int8") if unit == "flops_per_second" else (None,):
                assert f'"{human(size, unit, mode).split()[1]}"' in script


def test_axis_of_integers_counts_operations_and_not_those_of_floating_point() -> None:
    made = machine()
    sample = {"mode": "int8", "unit": "flops_per_second", "median": 9e13}
    made["probes"] = [{"probe": "precision", "gpu": 0, "samples": [sample]}]
    shown = read(made)
    assert shown["history-gpu0-precision-int8"].attributes["data-unit"] == "operations_per_second"
    assert "90 Top/s" in shown["figures"].words


def test_samples_of_a_run_are_counted() -> None:
    made = machine()
    for count, words in ((1, "last run: 1 sample"), (2000, "last run: 2,000 samples")):
        sample = {"mode": "nbody", "unit": "flops_per_second", "median": 1e13, "n": count}
        made["probes"] = [{"probe": "nbody", "gpu": 0, "samples": [sample]}]
        assert words == read(made)["history-gpu0-nbody-nbody"].words.split("on GPU 0")[1].strip()


def first_cells(heading: str) -> list[str]:
    """The first column of the table below a heading of docs/page.md."""
    below = DOCUMENTED.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| ([^|]+) \|", below, re.MULTILINE)[1:]


def test_every_section_state_and_verdict_is_documented() -> None:
    made = machine("regressed") | {"put_off": [{"probe": "triad", "gpu": 0, "reason": "gpu_hot"}]}
    shown = read(made | {"written_s": NOW_S, "known_faults": [{"id": "wsl-1", "state": "seen"}]})
    titles = [next(s.all("h2")).words for s in shown.all("section") if list(s.all("h2"))]
    titles[-1:] = [next(fold.all("summary")).words for fold in folds(shown["details"])]
    assert first_cells("The sections") == titles
    assert sorted(first_cells("The state")) == sorted({*WORDS.values(), SLOWER})
    verdicts = {number(row[-1]) for row in shown.rows("figures")}
    assert verdicts <= set(map(number, first_cells("Verdicts")))
    assert len(verdicts) > 1


def folds(section: Element) -> list[Element]:
    """The folds of a section, not those within them."""
    return [each for each in section.all("details") if each.parent is section]


def number(words: str) -> str:
    """Write every number as N."""
    return re.sub(r"[\d.]+", "N", words)


ANYTHING = st.text(st.characters(codec=None), max_size=200)


@given(ANYTHING, ANYTHING)
def test_whatever_is_said_only_our_elements_come_of_it(words: str, value: str) -> None:
    outer, inner = Page(el("i", words, el("b", words), title=value)).all()
    assert (outer.tag, outer.attributes) == ("i", {"title": plain(value)})
    assert (inner.tag, inner.attributes) == ("b", {})
    assert outer.text == 2 * plain(words)
    shown = text(words)
    shown.encode()  # no half character is left
    assert not [c for c in shown if ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u202e\u2066"]


def test_a_text_is_cut_and_markup_and_attributes_pass_where_text_beside_them_does_not() -> None:
    assert len(plain("x" * 1_000_000)) == LONGEST
    assert (text("abcdef", 4), text("abcd", 4)) == ("abc\u2026", "abcd")
    assert unescape(text("äµ \u2026&<")) == "äµ \u2026&<"
    assert joined(Html("<i>"), "<i>", None, ["a", Html("</i>")]) == "<i>&lt;i&gt;a</i>"
    made = el("td", class_="n", data_live=True, hidden=False, title=None, tabindex=0)
    assert made == '<td class="n" data-live tabindex="0"></td>'
    assert joined(el("meta", charset="&")) == '<meta charset="&amp;">'
