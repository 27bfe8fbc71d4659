"""Screen of `gpud status`: its first lines, its size, and that nothing foreign steers it."""

from __future__ import annotations

import re
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from gpud.show.view import PIPED, View
from tests import snapshots
from tests.show import documents
from tests.show.documents import NOW_S, UUID, full, launch, machine, screen, two_gpus

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_first_lines_say_the_state_since_when_and_what_to_do() -> None:
    lines = screen(full())
    assert re.match(r"gpud 0\.1\.0: failed, 1 alert since \d{4}-\d\d-\d\d \d\d:\d\d \(", lines[0])
    assert lines[1] == "  do first: wsl --shutdown; wsl --update"
    assert lines[2].startswith("  note: 1 probe is skipped on GPU 0: somebody else uses the GPU")
    slower = screen(machine("regressed"))
    assert slower[0].startswith("gpud 0.1.0: slower, 1 alert since ")
    assert slower[0].endswith(" (9 d 6 h)")
    assert slower[1].startswith(
        "  do first: to go back to driver 566.36 in Windows: Device Manager"
    )
    assert screen(machine())[1] == "", "nothing to do"
    assert "data" not in screen(full(), now_s=NOW_S + 5)[0]
    assert screen(full(), now_s=NOW_S + 90)[0].endswith(", data 1 min old")
    made = machine()  # the worst has no fix
    made["health"] |= {
        name: {"level": 2, "reason": "x", "detail": name, "fix": fix, "since_s": NOW_S}
        for name, fix in (("alerts", "mend alerts"), ("root", None), ("cuda", "mend cuda"))
    }
    assert screen(made)[1] == "  do first: gpud doctor"
    made["health"]["root"]["fix"] = "mend root"
    assert screen(made)[1] == "  do first: mend root"


@pytest.mark.parametrize("width", [20, 40, 60, 79, 80, 100, 107, 200])
@pytest.mark.parametrize("height", [5, 24, 200])
def test_nothing_is_wider_than_the_terminal(width: int, height: int) -> None:
    for made in (full(), documents.of(snapshots.bare()), two_gpus()):
        for line in screen(made, View(width, height)):
            assert len(line) <= width


def test_one_slow_run_is_no_contradiction_to_many_as_usual() -> None:
    made = machine()
    (run,) = [run for run in made["probes"] if run["probe"] == "launch"]
    launch(made, samples=[run["samples"][0] | {"median": 24e-6}])
    (stream,) = [each for each in made["streams"] if each["mode"] == "submit"]
    stream |= {"usual": 12e-6, "level": 12e-6, "slowdown": 1.0, "open": []}
    lines = [" ".join(line.split()) for line in screen(made, View(80, 24))]
    row = lines.index("Speed last run usual slower by verdict") + 1
    assert lines[row] == "launch submit 24 µs 12 µs +100 % as usual ▅"


LONG = "submission latency (launch submit) 5 µs 4 µs +25 % 25 % slower than usual"


@pytest.mark.parametrize(
    ("width", "row"),
    [
        (None, f"{LONG} ▁▂▃▄▅▆▇█"),
        (103, f"{LONG} ▁▂▃▄▅▆▇█"),
        (92, LONG),
        (70, "launch submit 5 µs 4 µs +25 % 25 % slower ▁▂▃▄▅▆▇█"),
        (60, "launch submit 5 µs 4 µs +25 % 25 % slower"),
        (51, "launch submit 5 µs +25 % 25 % slower"),
        (36, "launch submit 5 µs +25 %"),
    ],
)
def test_narrow_screen_drops_bars_words_and_the_usual(width: int | None, row: str) -> None:
    made = machine()
    (run,) = [run for run in made["probes"] if run["probe"] == "launch"]
    launch(made, samples=[run["samples"][0] | {"median": 5e-6}])
    (stream,) = [each for each in made["streams"] if each["mode"] == "submit"]
    stream |= {"usual": 4e-6, "level": 5e-6, "slowdown": 1.25, "open": []}
    made["probes"] = [run]
    past = {"after_s": [60 * n for n in range(8)], "medians": [float(n + 1) for n in range(8)]}
    of = {"uuid": UUID, "probe": "launch", "mode": "submit", "unit": "seconds", "from_s": 0.0}
    made["recent"] = [of | past]
    view = View() if width is None else View(width, 200)  # without one: in a pipe
    assert row in [" ".join(line.split()) for line in screen(made, view)]
    assert all(line.isascii() for line in screen(made, view._replace(ascii_only=True)))


@pytest.mark.parametrize("state", ["fine", "regressed", "full"])
def test_pipe_gets_sentences_as_wide_as_a_page_and_rows_whole(state: str) -> None:
    made = full() if state == "full" else machine(state)
    made["url"] = "http://127.0.0.1:9945"
    made["health"] = {**made["health"], "http": {"level": 0}}
    made["counters"] = {**made["counters"], "gpu_seconds": 123456.7, "children": 123456}
    shown = screen(made, View())
    assert all(len(line) <= PIPED or "  " in line.strip() for line in shown)
    words = " ".join(" ".join(screen(made, View(sys.maxsize))).split())
    assert " ".join(" ".join(shown).split()) == words  # nothing is left out
    address = "page http://127.0.0.1:9945/"
    assert any(address in line for line in shown), "for a script that looks for it"


def test_screen_that_is_not_high_enough_has_the_metrics_that_matter_and_the_slower_ones() -> None:
    made = machine("regressed")
    (slower,) = [each for each in made["streams"] if each["open"]]
    slower |= {"probe": "container_nbody", "mode": "nbody"}
    lines = screen(made, View(80, 30))
    (at,) = [n for n, line in enumerate(lines) if line.startswith("  Speed")]
    names = [line.split("  ")[1] for line in lines[at + 1 : at + 11]]
    assert names[:3] == ["launch submit", "launch roundtrip", "launch pipelined"]
    assert names[-2:] == ["nbody", "container_nbody nbody"]
    assert len(screen(made, View(80, 200))) > len(lines)
    made["alerts"] *= 5
    assert "  and 2 more: gpud alerts" in screen(made, View(80, 24))


@pytest.fixture
def kolkata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("kolkata")
def test_every_moment_is_in_the_time_zone_of_the_reader() -> None:
    made = machine("regressed")
    gone = "CUDA no longer offers GPU 0 since 2023-11-14 22:14 UTC"
    made["health"]["devices"] = {"level": 2, "detail": gone, "since_s": 1_700_000_040.0}
    made["alerts"][0]["summary"] = "slower since 2023-11-14 22:14 UTC, at once"
    for view in (View(), View(80, 24)):
        lines = " ".join(line.strip() for line in screen(made, view))
        assert "UTC" not in lines
        assert "GPU 0 since 2023-11-15 03:44" in lines
        assert "slower since 2023-11-15 03:44, at once" in lines


def test_no_word_of_a_driver_or_a_file_begins_a_line_or_steers_the_terminal() -> None:
    evil = "a\x1b[2J\rb\n\u202ec"

    def saying(words: str) -> dict[str, Any]:
        made = full() | {"platform": {"wsl": words}}
        for component in ("dockerd", "probes", f"x{words}"):
            part = {"level": 2, "reason": words, "detail": words, "fix": words, "since_s": 1.0}
            made["health"][component] = part
        made["changes"].append({"kind": words, "old": words, "new": words, "at_s": 2e9})
        made["root"]["dockerd"]["detail"] = words
        return made

    for line in screen(saying(evil)):
        assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202e]", line)
    assert len(screen(saying(evil))) == len(screen(saying("plain")))
