"""Screen of `gpud top` as lines: its graphs, its width, and that nothing foreign steers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gpud.document.status import Status, read
from gpud.requests import GpuProcess
from gpud.show import top
from gpud.show.top import Choices, Moment, Process, SecondsPast
from gpud.show.view import View, text
from tests import snapshots
from tests.show import documents
from tests.show.documents import NOW_S, UUID, full, two_gpus

if TYPE_CHECKING:
    from collections.abc import Iterable

WIDE = View(160, 60)
HOSTILE = "\x1b[2J\u202e\n"


def used(at_s: float, ratio: float | None) -> Status:
    """A document whose GPU was used so much at a moment."""
    made: dict[str, Any] = full()
    made["telemetry"]["taken_s"] = at_s
    for each in made["telemetry"]["readings"]:
        if (each["gpu"], each["field"]) == (0, "utilization_gpu_ratio"):
            each["value"] = ratio
    return read(made)


def graph(readings: Iterable[tuple[float, float | None]], zoom: int = 1, width: int = 60) -> str:
    """What stands behind the use of the GPU."""
    past, document = SecondsPast(), used(0, 0)
    for at_s, ratio in readings:
        document = used(at_s, ratio)
        past.take(document)
    lines = top.screen(Moment(document), past, Choices(zoom=zoom), NOW_S, View(width + 40, 60))
    (row,) = [text(each) for each in lines if text(each).startswith("  use ")]
    return row[40:]


def test_graph_has_a_column_for_each_reading_and_the_highest_bar_is_the_whole() -> None:
    assert graph([(n, (n - 1) / 8) for n in range(1, 9)] + [(9, 1.0)]) == "▁▂▃▄▅▆▇██"
    assert graph([(1, 0.5), (1, 0.9), (0, 0.9)]) == "▅", "a document that is no newer"
    assert graph([(n, 0.1) for n in range(100)] + [(100, 1.0)], width=20) == "▁" * 19 + "█"


def test_time_without_a_reading_is_a_blank() -> None:
    assert graph([(1, 0.1), (2, 0.1), (3, 0.1), (60, 1.0), (61, 1.0)]) == "▁▁▁ ██"
    steady = [(n, 0.1) for n in range(1, 11)]
    assert graph([*steady, *((n, None) for n in range(11, 20)), (20, 1.0)]) == "▁▁▁▁▁▁▁▁▁▁ █"


def test_zoom_draws_means() -> None:
    readings = [(n, 0.0 if n % 5 < 3 else 1.0) for n in range(1, 50)]
    assert graph(readings, zoom=5) == "▅" + 9 * "▄"


@pytest.mark.parametrize("sort", top.SORTS)
@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
def test_nothing_is_wider_than_the_terminal_and_nothing_foreign_steers_it(
    width: int, sort: str
) -> None:
    processes = [
        Process(GpuProcess(pid, "C+G", None if pid % 3 else pid << 20), HOSTILE, HOSTILE * 30)
        for pid in range(1, 30)
    ]
    for made in (full(), documents.of(snapshots.bare()), two_gpus()):
        moment = Moment(read(made), HOSTILE, {0: processes}, {1: HOSTILE})
        for gpu in (0, 1):
            lines = top.screen(moment, SecondsPast(), Choices(gpu, sort), NOW_S, View(width, 24))
            for row in lines:
                assert len(text(row)) <= width
                assert text(row).isprintable()


@pytest.mark.parametrize(("state", "count"), [("fine", 0), ("docker_loop", 1), ("regressed", 1)])
def test_why_the_machine_is_not_well_stands_there_once(state: str, count: int) -> None:
    why = {"docker_loop": 'invalid key in /etc/docker/daemon.json: "dns-serch"'}
    moment = Moment(read(documents.machine(state)))
    shown = [text(each) for each in top.screen(moment, SecondsPast(), Choices(), NOW_S, WIDE)]
    words = why.get(state, "ubmission latency +12 % (12.4 -> 13.9 µs) since driver")
    assert sum(words in row for row in shown[:8]) == count


def test_processes_are_sorted_and_what_does_not_fit_is_counted() -> None:
    processes = [Process(GpuProcess(pid, "C", (20 - pid) << 20)) for pid in range(1, 11)]

    def rows(sort: str) -> list[str]:
        moment = Moment(read(full()), None, {0: processes[::-1]})
        lines = top.screen(moment, SecondsPast(), Choices(0, sort), NOW_S, View(100, 60))
        texts = [text(each) for each in lines]
        return texts[texts.index(f"Processes 10, by {sort}") + 2 :]

    assert [row.split()[0] for row in rows("memory")[:8]] == list("12345678")
    assert rows("pid")[0].split()[:4] == ["1", "C", "19.0", "MiB"]
    assert rows("pid")[8] == "  and 2 more"


def test_processes_that_are_not_known_have_a_reason() -> None:
    def reason(moment: Moment) -> str:
        lines = top.screen(moment, SecondsPast(), Choices(0), NOW_S, View(100, 60))
        (row,) = [text(each) for each in lines if text(each).startswith("Processes")]
        return row.removeprefix("Processes: not known: ")

    document = read(full())
    assert reason(Moment(document, "every 10 s in WSL2")) == "telemetry every 10 s in WSL2"
    assert reason(Moment(document, None, {}, {0: "not permitted"})) == "not permitted"
    assert reason(Moment(document, None, {1: []})) == "NVML lists no such GPU"


def test_gpu_that_cuda_lists_and_nobody_has_numbered_is_shown_by_its_telemetry() -> None:
    made = two_gpus()
    del made["gpus"][UUID]
    moment = Moment(read(made))
    lines = top.screen(moment, SecondsPast(), Choices(0), NOW_S, View(80))
    assert any(text(row).startswith("GPU 0: NVIDIA") for row in lines)
