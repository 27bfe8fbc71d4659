"""/api/v1/events, asked over a real socket: what it finds, what it refuses, and when it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpud.agent.history import writes
from gpud.agent.history.queries import MOST_EVENTS
from gpud.agent.history.records import Entry
from gpud.agent.serve.api.events import route
from tests.agent.serve.api.served import ServedHistory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIRST_S = 1_700_000_000.0


def entry(number: int, kind: str = "driver_version") -> Entry:
    return Entry(FIRST_S + number, kind, {"old": str(number), "new": str(number + 1)})


class Served(ServedHistory):
    """The route, and what it answers."""

    def happened(self, *entries: Entry) -> None:
        self.write(lambda store: store.write(writes.events, entries))

    def found(self, **query: str | list[str]) -> list[str]:
        code, document = self.ask(**query)
        assert (code, document["schema_version"]) == (200, 1)
        return [event["old"] for event in document["events"]]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path / "state", route)
    (tmp_path / "state").mkdir()
    try:
        yield made
    finally:
        made.close()


def test_events_are_given_newest_first_and_whole(served: Served) -> None:
    served.happened(entry(0), entry(1, "kernel"))
    code, document = served.ask()
    assert code == 200
    assert document == {
        "schema_version": 1,
        "events": [
            {"old": "1", "new": "2", "kind": "kernel", "at_s": FIRST_S + 1},
            {"old": "0", "new": "1", "kind": "driver_version", "at_s": FIRST_S},
        ],
        "more": False,
    }


def test_parameters_choose_by_time_kind_and_number(served: Served) -> None:
    served.happened(*(entry(i, "kernel" if i % 2 else "gpus") for i in range(6)))
    assert served.found(since=str(FIRST_S + 4)) == ["5", "4"]
    assert served.found(until=str(FIRST_S + 2)) == ["1", "0"]
    assert served.found(since="2023-11-14T22:13:24Z") == ["5", "4"]
    assert served.found(since="2023-11-15T00:13:24+02:00") == ["5", "4"]
    assert served.found(kind="kernel") == ["5", "3", "1"]
    assert served.found(kind="kernel,gpus") == served.found(kind=["gpus", "kernel"])
    assert served.found(limit="2") == ["5", "4"]
    assert served.found(kind="boot_id") == []
    assert served.found(kind="baseline_accepted,baseline_reset,alert_acknowledged") == []


def test_more_says_whether_a_limit_cut_something_off(served: Served) -> None:
    served.happened(*(entry(i) for i in range(MOST_EVENTS)))
    assert served.ask(limit=str(MOST_EVENTS))[1]["more"] is False
    assert served.ask()[1]["more"] is True
    served.happened(entry(MOST_EVENTS))
    assert served.ask(limit=str(MOST_EVENTS))[1]["more"] is True


@pytest.mark.parametrize(
    ("query", "parameter", "fix"),
    [
        ({"since": "yesterday"}, "since", "1700000000"),
        ({"since": "2023-11-14T22:13:20"}, "since", "2023-11-14T22:13:20Z"),
        ({"until": "nan"}, "until", "1700000000"),
        ({"until": "1e999"}, "until", "1700000000"),
        ({"until": ""}, "until", "1700000000"),
        ({"since": "2", "until": "1"}, "since", "exchange"),
        ({"kind": "drivers"}, "kind", "driver_version"),
        ({"kind": ""}, "kind", "driver_version"),
        ({"limit": "0"}, "limit", "1 to 1000"),
        ({"limit": "1001"}, "limit", "1 to 1000"),
        ({"limit": "-1"}, "limit", "1 to 1000"),
        ({"limit": "²"}, "limit", "1 to 1000"),
        ({"limit": "9" * 5000}, "limit", "1 to 1000"),
        ({"limit": ["1", "2"]}, "limit", "once"),
        ({"form": "\x1b[31m"}, "form", "since"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_name_and_the_fix(
    served: Served, query: dict[str, str | list[str]], parameter: str, fix: str
) -> None:
    code, document = served.ask(**query)
    assert code == 400
    assert document["schema_version"] == 1
    assert document["error"]["parameter"] == parameter
    assert fix in document["error"]["fix"]
    assert len(document["error"]["detail"]) < 200
    assert "\x1b" not in document["error"]["detail"]


def test_a_history_that_cannot_be_read_is_said_with_its_reason(
    served: Served, tmp_path: Path
) -> None:
    (tmp_path / "state").rmdir()
    code, document = served.ask()
    assert code == 503
    assert document["error"]["reason"] == "no_directory"
    assert document["error"]["fix"].startswith("mkdir")
    (tmp_path / "state").mkdir()
    assert served.ask()[0] == 200
