"""A month that version one recorded, under today's program: it is read whole.

``history_v1/expected.json`` is what ``collected`` gave under version one itself. Detector state may
be built anew from the runs: figures of streams may differ by 2 %, and samples are not counted.
"""

from __future__ import annotations

import csv
import hashlib
import json
import lzma
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.program import only, program
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.program import Program

FILES = Path(__file__).parents[1] / "history_v1"
EXPECTED: dict[str, Any] = json.loads((FILES / "expected.json").read_text())
BEFORE, AFTER = "2025-09-01T00:00:00Z", "2025-12-01T00:00:00Z"
STREAMS = 7
REGRESSIONS = {"GpudSlowdown", "GpudDriverRegression"}
LASTING = ("name", "severity", "fingerprint", "labels", "starts_s", "ends_s", "acknowledged_s")


@pytest.fixture(scope="module")
def today() -> Iterator[dict[str, Any]]:
    with program(probes=only()) as gpud:
        folder = gpud.home / "var/lib/gpud"
        folder.mkdir(parents=True)
        history = folder / "gpud.db"
        history.write_bytes(lzma.decompress((FILES / "history.db.xz").read_bytes()))
        if os.geteuid() == 0:
            shutil.chown(history, "nobody")  # the agent's user, who brings it to today's schema
        gpud.start()
        yield collected(gpud)


def collected(gpud: Program) -> dict[str, Any]:
    """Ask the running program for everything that the history holds."""
    until(lambda: len(baselines(gpud)) == STREAMS, "the baselines of the month")
    with suppress(AssertionError):  # an alert that is another is named by the comparison
        until(lambda: alerts(gpud) == EXPECTED["firing"], "the alerts of the month")
    past = json.loads(gpud.get(f"/api/v1/alerts?since={BEFORE}&limit=1000"))["alerts"]
    events = json.loads(gpud.get(f"/api/v1/events?until={AFTER}&limit=1000"))["events"]
    streams = baselines(gpud)
    return {
        "runs": exported(gpud, EXPECTED["runs"]["columns"]),
        "hours": exported(gpud, EXPECTED["hours"]["columns"], "--hourly"),
        "events": events,
        "firing": alerts(gpud),
        "alerts": sorted((alert(item) for item in past if item["name"] in REGRESSIONS), key=str),
        "verdicts": {name: verdict(item) for name, item in streams.items()},
        "figures": {
            f"{name} {key}": item[key]
            for name, item in streams.items()
            for key in ("level", "usual", "slowdown")
        },
    }


def exported(gpud: Program, columns: list[str], *words: str) -> dict[str, Any]:
    """Count what an export has, and digest every cell of the columns of version one."""
    rows = list(csv.DictReader(gpud.cli("history", "export", *words).stdout.splitlines()))
    columns = columns or list(rows[0])
    cells = [[row[column] for column in columns] for row in rows]
    return {
        "rows": len(rows),
        "runs": len({(row["unix_s"], row["gpu_uuid"], row["probe"]) for row in rows}),
        "failures": sum(bool(row["failure"]) for row in rows),
        "columns": columns,
        "first": cells[0],
        "last": cells[-1],
        "digest": hashlib.sha256(json.dumps(cells).encode()).hexdigest(),
    }


def alerts(gpud: Program) -> list[dict[str, Any]]:
    document = json.loads(gpud.cli("alerts", "--json").stdout or "{}")
    firing = (item for item in document.get("alerts", ()) if item["name"] in REGRESSIONS)
    return sorted(map(alert, firing), key=str)


def alert(document: dict[str, Any]) -> dict[str, Any]:
    evidence = (item["stream"] for item in document["evidence"])
    return {
        **{key: document[key] for key in LASTING},
        "streams": sorted(f"{item['gpu']} {item['probe']} {item['mode']}" for item in evidence),
        "causes": [[item["kind"], item["old"], item["new"]] for item in document["causes"]],
    }


def baselines(gpud: Program) -> dict[str, dict[str, Any]]:
    document = json.loads(gpud.cli("baseline", "show", "--json").stdout or "{}")
    streams = document.get("streams", ())
    return {f"{item['uuid']} {item['probe']} {item['mode']}": item for item in streams}


def verdict(stream: dict[str, Any]) -> dict[str, Any]:
    latest = stream["verdict"] or {}
    changes = ("kind", "worse", "since_s", "old_driver", "new_driver")
    return {
        "unit": stream["unit"],
        "last_judged_s": stream["last_judged_s"],
        "verdict": [latest.get(key) for key in ("state", "old_driver", "new_driver", "since_s")],
        "open": [[item[key] for key in changes] for item in stream["open"]],
    }


@pytest.mark.parametrize("part", ["runs", "hours", "events", "firing", "alerts", "verdicts"])
def test_a_month_of_version_one_is_read_whole(today: dict[str, Any], part: str) -> None:
    assert today[part] == EXPECTED[part]


def test_levels_of_a_month_of_version_one_are_those_it_had(today: dict[str, Any]) -> None:
    assert today["figures"] == pytest.approx(EXPECTED["figures"], rel=0.02)
