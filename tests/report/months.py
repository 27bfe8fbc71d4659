"""A month as a real history keeps it: two GPUs, a driver update, games, a week off, hostile words.

Every run goes through ``History``; verdicts and alarms are those of real detectors on those runs.
"""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from gpud.agent.eventrows import Entry
from gpud.agent.store import History
from gpud.core.alerts import DRIVER_REGRESSION, Alert, Cause, Evidence, Severity
from gpud.core.changes import CUDA_VERSION, DRIVER_VERSION, KERNEL
from gpud.core.detector import Detector, Observation, State
from gpud.core.presence import GPU_SEEN
from gpud.core.sample import Device, Failure, Flag, Reason, Unit
from gpud.core.streams import JUDGED, StreamKey
from tests.histories import DAY_S, figure, made, spread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpud.agent.store import Run, Store
    from gpud.core.detector import Alarm, Verdict
    from gpud.core.sample import Condition

FIRST_S = 1_760_054_400.0  # 2025-10-10 00:00 UTC
DAYS = 30
UNTIL_S = FIRST_S + DAYS * DAY_S
OFF = (10.0, 17.0)  # the week off, in days
UPDATE = 17.0  # Windows replaced the driver meanwhile
GAMES = (3, 5, 20, 24)  # evenings, 19:00 to 22:00, on the first GPU
OLD, NEW = "572.16", "576.02"
SLOWER = 1.12
HOSTILE = '<img src=x onerror=alert(1)>"\x1b[31m\u202e&amp;=1+1{{7*7}}</script>'
FIRST, SECOND = (
    Device(0, "GPU-11111111-aaaa", "NVIDIA GeForce RTX 4070", "0000:01:00.0", "8.9", 46, 1, 1),
    Device(1, "GPU-22222222-bbbb", HOSTILE, "0000:02:00.0", "8.9", 46, 1, 1),
)
MODES = {
    "launch": {"submit": (12.4e-6, Unit.SECONDS), "roundtrip": (24e-6, Unit.SECONDS)},
    "triad": {"triad": (420e9, Unit.BYTES_PER_SECOND)},
    "nbody": {"nbody": (11e12, Unit.FLOPS_PER_SECOND)},
}
CPU_CALL = {"call": (60e-9, Unit.SECONDS)}


@dataclass
class Month:
    """What is written, and where the detectors that watch it stand."""

    spacing_s: float = 1800.0
    drivers: tuple[str, str] = (OLD, NEW)
    rng: random.Random = field(default_factory=lambda: random.Random(7))
    detectors: dict[StreamKey, Detector] = field(default_factory=dict)
    alarms: list[tuple[StreamKey, Unit, Alarm]] = field(default_factory=list)
    verdicts: dict[StreamKey, Verdict] = field(default_factory=dict)

    def moments(self) -> Iterator[float]:
        at_s = FIRST_S + self.spacing_s
        while at_s < UNTIL_S:
            if not OFF[0] <= (at_s - FIRST_S) / DAY_S < OFF[1]:
                yield at_s
            at_s += self.spacing_s

    def runs(self) -> Iterator[Run]:
        for at_s in self.moments():
            yield self.run(at_s, "cpu_call", None)
            for device in (FIRST, SECOND):
                for probe in MODES:
                    yield self.run(at_s, probe, device)

    def run(self, at_s: float, probe: str, device: Device | None) -> Run:
        days = (at_s - FIRST_S) / DAY_S
        new = days >= UPDATE
        driver = self.drivers[new]
        hour = days % 1 * 24
        busy = device is FIRST and int(days) in GAMES and 19 <= hour < 22
        low = device is SECOND and new and self.rng.random() < 0.1
        flags = (*((Flag.BUSY,) if busy else ()), *((Flag.LOW,) if low else ()))
        boot = "boot-2" if new else "boot-1"
        conditions: dict[str, Condition] = {
            DRIVER_VERSION: driver,
            KERNEL: "6.6.87" if new else "6.6.75",
            "after.ac": True,
        }
        if probe == "nbody" and device is SECOND and new:
            lost = Failure(Reason.PTX_REJECTED, f"the driver said {HOSTILE}", "cuModuleLoadData")
            return made(at_s, probe, device, failure=lost, boot=boot, conditions=conditions)
        samples = []
        for mode, (level, unit) in (CPU_CALL if device is None else MODES[probe]).items():
            slower = SLOWER if new and mode == "submit" else 1.0
            slower *= 1.9 if busy else 1.3 if low else 1.0
            value = figure(self.rng, level, unit, slower)
            samples.append(spread(mode, unit, value))
            self.judge(device, probe, mode, unit, Observation(at_s, value, driver, flags))
        return made(
            at_s,
            probe,
            device,
            tuple(samples),
            flags=flags,
            boot=boot,
            duration_s=0.8,
            conditions=conditions,
        )

    def judge(  # one stream, one sample
        self, device: Device | None, probe: str, mode: str, unit: Unit, seen: Observation
    ) -> None:
        key = StreamKey(device.uuid if device else None, probe, mode)
        if device is None:
            seen = Observation(seen.at_s, seen.value, "the CPU's")
        detector = self.detectors.setdefault(key, Detector(JUDGED[unit]))
        if alarm := detector.push(seen):
            self.alarms.append((key, unit, alarm))
        verdict = detector.verdict
        if verdict is not None and verdict.state not in {State.LEARNING, State.UNDECIDED}:
            self.verdicts[key] = verdict

    def alert(self) -> Alert:
        """Tell of what the update did, as one alert."""
        found = [item for item in self.alarms if item[2].worse and item[0].mode == "submit"]
        evidence = tuple(
            Evidence(
                key,
                unit,
                alarm.kind,
                alarm.before,
                alarm.after,
                alarm.effect.ratio,
                alarm.effect.low,
                alarm.effect.high,
                alarm.samples,
                alarm.reference,
                alarm.since_s,
                alarm.seq,
            )
            for key, unit, alarm in found
        )
        at_s = max(alarm.at_s for _, _, alarm in found)
        old, new = self.drivers
        return Alert(
            DRIVER_REGRESSION,
            Severity.WARNING,
            {"kind": "driver", "old": old, "new": new},
            f"submission latency +12 % (12.4 -> 13.9 µs) since driver {old} -> {new}",
            "",
            at_s,
            at_s,
            evidence=evidence,
            causes=(Cause("driver", old, new),),
            fix="Device Manager > Roll Back Driver; or `gpud baseline accept`",
        )


def written(
    folder: Path, *, spacing_s: float = 1800.0, drivers: tuple[str, str] = (OLD, NEW)
) -> Month:
    """Fill the history in ``folder`` with the month."""
    month = Month(spacing_s, drivers)
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(_through_the_history(month, folder))
    return month


async def _through_the_history(month: Month, folder: Path) -> None:
    history = History(folder, now=lambda: "stamp")
    batch: list[Run] = []
    for run in month.runs():
        batch.append(run)
        if len(batch) == 900:
            await history.append(*batch)
            batch.clear()
    await history.append(*batch)
    await history.ask(lambda store: _write_findings(store, month))
    await history.close()


def _write_findings(store: Store, month: Month) -> None:
    update_s = FIRST_S + UPDATE * DAY_S + 60
    old, new = month.drivers
    store.append_events(
        [
            *(Entry(FIRST_S, GPU_SEEN, {"uuid": d.uuid, "name": d.name}) for d in (FIRST, SECOND)),
            Entry(FIRST_S, DRIVER_VERSION, {"old": None, "new": old}),
            Entry(update_s, DRIVER_VERSION, {"old": old, "new": new}),
            Entry(update_s, CUDA_VERSION, {"old": "12.8", "new": "12.9"}),
            Entry(update_s, KERNEL, {"old": "6.6.75", "new": "6.6.87"}),
        ]
    )
    alert = month.alert()
    told = (alert.fingerprint, alert.starts_s, alert.updated_s, None, json.dumps(asdict(alert)))

    def rows(transaction: object) -> None:
        execute = transaction.execute  # type: ignore[attr-defined]
        for key, verdict in month.verdicts.items():
            row = (_named(key), verdict.since_s, verdict.since_s, json.dumps(asdict(verdict)))
            execute("INSERT INTO verdicts (stream, since_s, at_s, body) VALUES (?, ?, ?, ?)", row)
        for key, _, alarm in month.alarms:
            alarmed = (_named(key), alarm.seq, alarm.at_s, json.dumps(asdict(alarm)))
            execute("INSERT INTO alarms (stream, seq, at_s, body) VALUES (?, ?, ?, ?)", alarmed)
        execute("INSERT INTO alerts VALUES (?, ?, ?, ?, ?)", told)

    store.write(rows)


def _named(key: StreamKey) -> str:
    return json.dumps([key.gpu, key.probe, key.mode, key.version, key.on_battery])
