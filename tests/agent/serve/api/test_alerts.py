"""/api/v1/alerts, asked over a real socket: what fires, what is past, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gpud.agent.alerts import rows
from gpud.agent.serve.api.alerts import route
from tests.agent.serve.api.served import ServedHistory
from tests.snapshots import SLOWER, bare

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpud.core.alerts import Alert

HOSTILE = "x\n\x1b[31m<script>$(reboot)"


class Served(ServedHistory):
    """The route on a snapshot that a test may exchange."""

    def __init__(self, folder: Path) -> None:
        self.snapshot = bare()
        super().__init__(folder, lambda history: route(lambda: self.snapshot, history))

    def put(self, *alerts: Alert) -> None:
        self.write(lambda store: store.write(lambda connection: rows.put(connection, alerts)))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    running = Served(tmp_path)
    yield running
    running.close()


def moments(answer: tuple[int, dict[str, Any]]) -> list[tuple[float, float | None]]:
    return [(one["starts_s"], one["ends_s"]) for one in answer[1]["alerts"]]


def over(begin_s: float, end_s: float) -> Alert:
    return replace(SLOWER, starts_s=begin_s, updated_s=end_s, ends_s=end_s)


def test_without_since_it_is_what_fires_now(served: Served) -> None:
    assert served.ask() == (200, {"schema_version": 1, "alerts": [], "more": False})
    served.put(over(100.0, 200.0))
    served.snapshot = replace(served.snapshot, alerts=(SLOWER, over(300.0, 400.0)))
    _, document = served.ask()
    (one,) = document["alerts"]
    assert (one["fingerprint"], one["runbook"], one["firing"]) == (
        SLOWER.fingerprint,
        "/runbooks/GpudDriverRegression",
        True,
    )
    assert one["evidence"][0]["stream"]["mode"] == "submit"


def test_with_since_what_fired_at_any_time_since_then_is_there_each_once(served: Served) -> None:
    served.put(over(100.0, 200.0), over(300.0, 400.0), SLOWER)
    served.snapshot = replace(served.snapshot, alerts=(SLOWER, over(300.0, 400.0)))
    firing = (SLOWER.starts_s, None)
    assert moments(served.ask(since="0")) == [firing, (300.0, 400.0), (100.0, 200.0)]
    assert moments(served.ask(since="350")) == [firing, (300.0, 400.0)]
    assert moments(served.ask(since="1970-01-01T00:08:00Z")) == [firing]


def test_a_limit_leaves_out_what_began_first_and_says_so(served: Served) -> None:
    served.put(*(over(float(number), 900.0) for number in range(9)))
    status, document = served.ask(since="0", limit="2")
    assert (status, document["more"]) == (200, True)
    assert [one["starts_s"] for one in document["alerts"]] == [8.0, 7.0]
    assert served.ask(since="0", limit="9")[1]["more"] is False


@pytest.mark.parametrize(
    ("query", "parameter"),
    [({"until": "3"}, "until"), ({"since": "soon"}, "since"), ({"limit": "0"}, "limit")],
)
def test_what_cannot_be_meant_is_refused_by_name(
    served: Served, query: dict[str, str | list[str]], parameter: str
) -> None:
    status, document = served.ask(**query)
    assert (status, document["error"]["parameter"]) == (400, parameter)
    assert document["error"]["fix"]


def test_rows_that_a_disk_made_up_are_passed_over(served: Served) -> None:
    served.put(over(100.0, 200.0))

    rows = [
        ("a", 1.0, "[1]"),
        ("b", 2.0, "{"),
        ("c", 3.0, b"\xff"),
        ("e", 5.0, '{"fingerprint": "e", "starts_s": 1e999}'),
        ("g", 7.0, '{"fingerprint": [], "starts_s": 1.0}'),
    ]
    insert = "INSERT INTO alerts VALUES (?, ?, 1.0, NULL, ?)"
    served.write(lambda store: store.write(lambda open_: open_.executemany(insert, rows)))
    assert moments(served.ask(since="0")) == [(100.0, 200.0)]


def test_half_a_character_in_a_row_spoils_no_answer(served: Served) -> None:
    served.put(replace(over(100.0, 200.0), summary="half \ud800"))
    assert served.ask(since="0")[1]["alerts"][0]["summary"] == "half ?"


def test_hostile_words_come_as_they_are_and_as_json(served: Served) -> None:
    served.put(replace(over(100.0, 200.0), summary=HOSTILE, labels={"x": HOSTILE}))
    _, document = served.ask(since="0")
    assert document["alerts"][0]["summary"] == HOSTILE


def test_a_history_that_cannot_be_read_is_no_reason_to_hide_what_fires(tmp_path: Path) -> None:
    running = Served(tmp_path / "nowhere")
    try:
        running.snapshot = replace(running.snapshot, alerts=(SLOWER,))
        assert moments(running.ask()) == [(SLOWER.starts_s, None)]
        status, document = running.ask(since="0")
        assert (status, document["error"]["reason"]) == (503, "no_directory")
    finally:
        running.close()
