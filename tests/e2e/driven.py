"""A machine whose driver is replaced: the real program, the stand-in driver, and what it did.

An accelerated schedule: a run every fifth of a second, and a detector that counts samples only.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpud.agent.regression.detector import Detector, Direction, Observation, Spans
from gpud.core.sample import Flag
from tests.child.running import INTERPRETED
from tests.e2e.program import Program, cuda, nvml, only, program
from tests.standins.build import build_virtual_clock
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.agent.alerts.telling import Receiver

OLD, NEW = "572.16", "576.02"
CUDA = {OLD: 12080, NEW: 12090}
"""What each brings with it, as cuDriverGetVersion counts."""
BY_CUDA = {f"{number // 1000}.{number % 1000 // 10}": driver for driver, number in CUDA.items()}
LAUNCH_NS, GRAPH_NS, FIRST_NS = 12_400, 380_000, 10_000_000
"""What the old driver takes: 12.4 us a launch, 1.9 us each node of a graph of 200."""
SCATTER = 0.02
"""From one run to the next: a standard deviation of two percent."""
SCHEDULE = {
    "telemetry_interval_s": 0.5,
    "small_interval_s": 0.2,
    "large_interval_s": 3600.0,
    "jitter_ratio": 0.0,
}
DATA_CENTRE = """
device.0.temperature_memory_c 52
device.0.ecc_mode 1
device.0.ecc_corrected_aggregate 2
device.0.ecc_uncorrected_aggregate 0
device.0.remapped_rows_correctable 1
device.0.remapped_rows_uncorrectable 0
device.0.mig_mode 0
device.0.event_types 8
device.0.xid 31
"""
"""What a GeForce card under WSL does not tell."""
AT_ONCE = {"update_span_s": 0.0, "window_span_s": 0.0}
LOOK_EVERY_S = 0.1
KNOWN = 25
"""Runs of the old driver: enough to compare with."""
SETTLING, FIRST_LOOK = 3, 8
"""Runs of a new driver that are left out, and those that may decide."""


class Decision(NamedTuple):
    """An alarm of one stream: after how many samples, what, and how much."""

    seq: int  # of the sample that decided, from 0
    kind: str
    worse: bool
    ratio: float
    samples: int  # of the new level


@dataclass
class Machine:
    """One program and the driver below it."""

    gpud: Program
    seed: int = 1
    detector: dict[str, float] = field(default_factory=lambda: dict(AT_ONCE))
    driver: str = OLD
    virtual: bool = True  # time, in its children; probes of the CPU need the real one

    def __post_init__(self) -> None:
        """Write the drivers down, and let any user count the runs of the stand-in."""
        home = self.gpud.home
        self.places.touch()
        self.places.chmod(0o666)
        if self.virtual:
            self.gpud.python = virtual_python(home / "python")
        self.gpud.settings |= {
            "cuda": cuda(home, self.script()),
            "nvml": nvml(home, self.nvml_script()),
            "probes": only("launch"),
            "schedule": SCHEDULE,
            "detector": self.detector,
            "alerts": {"group_wait_s": 0.2, "warm_up_s": 0.0},
        }

    @property
    def places(self) -> Path:
        return self.gpud.home / "places"

    @property
    def history(self) -> Path:
        return self.gpud.home / "var/lib/gpud/gpud.db"

    def start(self) -> None:
        """Start the program."""
        self.gpud.start()

    def script(self, slower: float = 1.0) -> str:
        """What CUDA does under a driver to which submissions take so many times as long."""
        return (
            f"driver_version {CUDA[self.driver]}\n"
            f"launch_ns {LAUNCH_NS * slower:.0f}\ngraph_launch_ns {GRAPH_NS * slower:.0f}\n"
            f"first_launch_ns {FIRST_NS * slower:.0f}\n"
            f"noise {self.seed} {SCATTER} {self.places}\n"
        )

    def nvml_script(self) -> str:
        """What NVML tells."""
        return (
            f"driver_version {self.driver}\nnvml_version 12.{self.driver}\n"
            f"cuda_version {CUDA[self.driver]}\n"
        )

    def replace(self, driver: str, slower: float = 1.0, more: str = "") -> None:
        """Put another driver in place for what starts from now on; ``more`` is CUDA's script."""
        self.driver = driver
        self.gpud.rewrite("nvml", self.nvml_script())
        self.gpud.rewrite("cuda", self.script(slower) + more)

    def overnight(self, driver: str, slower: float = 1.0, more: str = "") -> None:
        """Replace the driver while gpud does not run."""
        self.gpud.stop()
        self.replace(driver, slower, more)
        self.start()

    def swap(self, driver: str, slower: float = 1.0) -> None:
        """Replace the driver under the running program: NVML dies with the old one.

        CUDA follows once NVML has told of the new driver, so that no figure of it counts for the
        old one; the first of a new driver are left to settle anyway.
        """
        self.driver = driver
        self.gpud.rewrite("nvml", self.nvml_script())
        self.gpud.kill_nvml_helper()
        self.gpud.status_when(
            lambda d: any(
                reading["field"] == "driver_version" and reading["value"] == driver
                for reading in d["telemetry"]["readings"]
            ),
            f"NVML to tell of {driver}",
        )
        self.gpud.rewrite("cuda", self.script(slower))

    def runs(self) -> list[dict[str, Any]]:
        """Every run of the history, with the medians by mode."""
        with contextlib.suppress(sqlite3.OperationalError), self.reading() as history:
            rows = history.execute(
                "SELECT runs.id, finished_s, json_extract(conditions, '$.driver_version'), flags,"
                " failure, json_extract(conditions, '$.cuda_version'),"
                " json_group_object(mode, median) FILTER (WHERE mode IS NOT NULL)"
                " FROM runs LEFT JOIN samples ON run_id = runs.id"
                " WHERE probe = 'launch' GROUP BY runs.id ORDER BY runs.id"
            ).fetchall()
            names = ("id", "finished_s", "driver", "flags", "failure", "cuda", "medians")
            return [
                dict(zip(names, row, strict=True)) | {"medians": json.loads(row[6] or "{}")}
                for row in rows
            ]
        return []

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The history as it is now, for a look."""
        with contextlib.closing(
            sqlite3.connect(f"file:{self.history}?mode=ro", uri=True)
        ) as history:
            yield history

    def good(self) -> int:
        """How many runs have figures."""
        with contextlib.suppress(sqlite3.OperationalError), self.reading() as history:
            request = "SELECT count(*) FROM runs WHERE probe = 'launch' AND failure IS NULL"
            count: int = history.execute(request).fetchone()[0]
            return count
        return 0

    def more_runs(self, count: int) -> None:
        """Wait until so many more have figures."""
        target = self.good() + count
        until(lambda: self.good() >= target, f"{count} more runs", every_s=LOOK_EVERY_S)

    def state(self, name: str) -> str:
        """What the program has written of its own knowledge under a name, empty for nothing."""
        with contextlib.suppress(sqlite3.OperationalError), self.reading() as history:
            row = history.execute("SELECT body FROM states WHERE name = ?", (name,)).fetchone()
            return str(row[0]) if row else ""
        return ""

    def decided(self) -> dict[str, list[Decision]]:
        """The alarms that the program has written, by mode."""
        result: dict[str, list[Decision]] = {}
        with contextlib.suppress(sqlite3.OperationalError), self.reading() as history:
            rows = history.execute("SELECT stream, seq, body FROM alarms ORDER BY stream, seq")
            for stream, seq, body in rows:
                report = json.loads(body)
                what = (
                    seq,
                    report["kind"],
                    report["worse"],
                    report["effect"]["ratio"],
                    report["samples"],
                )
                result.setdefault(json.loads(stream)[2], []).append(Decision(*what))
        return result

    def judged(self) -> dict[str, list[Decision]]:
        """Wait until what is decided is what the history gives, while runs come in; give it."""
        until(lambda: self.decided() == self.expected(), "decisions as in a replay", every_s=1)
        return self.decided()

    def expected(self) -> dict[str, list[Decision]]:
        """The same as the history gives it when it is judged in one go, without any program."""
        result: dict[str, list[Decision]] = {}
        limits = Spans(self.detector["update_span_s"], self.detector["window_span_s"])
        judges: dict[str, Detector] = {}
        driver = ""
        for run in self.runs():
            # A run before NVML has named the driver is one of its, by the version of CUDA.
            driver = run["driver"] or BY_CUDA.get(run["cuda"], driver)
            flags = [Flag(flag) for flag in json.loads(run["flags"])]
            for mode, median in run["medians"].items():
                judge = judges.setdefault(mode, Detector(Direction.LOWER).covering(limits))
                alarm = judge.push(Observation(run["finished_s"], median, driver, flags))
                if alarm is not None:
                    ratio, kind = alarm.effect.ratio, alarm.kind.value
                    report = Decision(alarm.seq, kind, alarm.worse, ratio, alarm.samples)
                    result.setdefault(mode, []).append(report)
        return result


PYTHON = """#!/bin/bash
case "$*" in *gpud.child*) export LD_PRELOAD='{clock}' VIRTUAL_CLOCK='{costs}' ;; esac
exec -a "$0" '{python}' "$@"
"""


def virtual_python(folder: Path) -> Path:
    """Make a virtual environment like this one, whose probe children live in virtual time.

    Their figures are the script's on any machine, however busy it is.
    """
    (folder / "bin").mkdir(parents=True)
    shutil.copy(Path(sys.prefix, "pyvenv.cfg"), folder)
    (folder / "lib").symlink_to(Path(sys.prefix, "lib"))
    python = folder / "bin/python"
    clock = build_virtual_clock(folder)
    python.write_text(PYTHON.format(clock=clock, costs=INTERPRETED, python=sys.executable))
    python.chmod(0o755)
    return python


@contextlib.contextmanager
def machine(**chosen: Any) -> Iterator[Machine]:
    """A home, a driver, a program to start."""
    with program() as gpud:
        yield Machine(gpud, **chosen)


def received(hook: Receiver, status: str, name: str | None = None) -> list[dict[str, Any]]:
    """Every alert that a webhook got so far that is ``firing`` or ``resolved``."""
    return [
        alert
        for message in hook.documents
        for alert in message["alerts"]
        if alert["status"] == status and name in {None, alert["labels"]["alertname"]}
    ]


def alerts(gpud: Program) -> list[dict[str, Any]]:
    """What fires, as /api/v1/alerts says."""
    document = json.loads(gpud.get("/api/v1/alerts"))
    return [alert for alert in document["alerts"] if alert["ends_s"] is None]


def notice(gpud: Program) -> str:
    """What the next shell shows."""
    return (gpud.run_dir / "notice").read_text()
