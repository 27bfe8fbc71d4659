"""A pipeline with scripts in the child's place and a real history, and what comes out of it."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpud.agent.history.store import History
from gpud.agent.measure.condition_rules import Conditions
from gpud.agent.measure.gatekeeper import Gatekeeper
from gpud.agent.measure.launch import Launcher
from gpud.agent.measure.pipeline import Pipeline
from gpud.agent.state.fold import fold
from gpud.agent.state.snapshot import Snapshot
from gpud.core.clock import Instant
from gpud.core.settings import Settings
from tests.agent.regression.judging import regression

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.agent.state.events import Event
    from gpud.core.sample import Condition, Pace

CHILD = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
state = json.loads((folder / "state").read_text())
verb = sys.argv[2]
job = {} if verb == "--list" else json.load(sys.stdin)
with (folder / "calls").open("a") as calls:
    calls.write(f"{verb} {job.get('probe', '')} {job.get('gpu', '')}\\n")
def device(index):
    return {"index": index, "uuid": f"GPU-{index}", "name": "n", "pci_bus_id": "b",
            "compute_capability": "8.9", "sm_count": 1, "l2_bytes": 1, "memory_total_bytes": 1}
spec = {"unit": "seconds", "modes": ["m"], "budget_s": 10.0, "summary": "s"}
if verb == "--list":
    print(json.dumps({"refused": {}, "probes": [
        {**spec, "name": n, "backend": b, "pace": p, **dict(*more)}
        for n, b, p, *more in state["specs"]]}))
elif verb == "--inventory":
    devices = [device(index) for index in range(state["gpus"])]
    print(json.dumps({"failure": state.get("failure"), "devices": devices}))
else:
    backend = next(b for n, b, *_ in state["specs"] if n == job["probe"])
    broken = {"reason": state["broken"], "detail": "d"} if "broken" in state else None
    print(json.dumps({"probe": job["probe"], "backend": backend, "failure": broken,
        "device": device(int(job["gpu"][4:])) if job["gpu"] else None,
        "vram_peak_bytes": state.get("vram", 0), "conditions": state.get("conditions", {})}))
"""
SPECS = [
    ["cpu_call", "cpu", "small"],
    ["launch", "cuda", "small"],
    ["cpu_matmul", "cpu", "large"],
    ["triad", "cuda", "large"],
]


@dataclass
class Bench:
    """A pipeline with everything it joins, and what came out of it."""

    folder: Path
    settings: Settings = field(default_factory=Settings)
    state_dir: Path | None = None
    events: list[Event] = field(default_factory=list)
    clock: list[Instant] = field(default_factory=list)
    taken: bool = False
    missed: bool = False  # a GPU that was here is gone
    looks: list[Conditions] = field(default_factory=list)  # the last one stays
    asked: list[str | None] = field(default_factory=list)  # of which GPU each look was
    resumed_s: float | None = None
    local_min: int = 12 * 60
    driver: dict[str, Condition] = field(default_factory=dict)  # what is known beside a run

    def __post_init__(self) -> None:
        (self.folder / "child.py").write_text(CHILD)
        self.says(gpus=1)

    def says(self, **state: object) -> None:
        (self.folder / "state").write_text(json.dumps({"specs": SPECS, "gpus": 1, **state}))

    def calls(self) -> list[str]:
        file = self.folder / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [line.rstrip() for line in lines]

    def now(self) -> Instant:
        return self.clock.pop(0) if self.clock else Instant(1.0, 1.0)

    async def look(self, uuid: str | None) -> Conditions:
        self.asked.append(uuid)
        if uuid is None or not self.looks:
            return Conditions()
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def make(self) -> tuple[Pipeline, History]:
        command = (sys.executable, "-I", str(self.folder / "child.py"), str(self.folder))
        history = History(self.state_dir or self.folder, now=lambda: "stamp")
        return Pipeline(
            settings=self.settings,
            launcher=Launcher(self.folder / "gpu.lock", command=command),
            history=history,
            regression=regression(history),
            gate=Gatekeeper(
                self.settings.gate,
                look=self.look,
                remembered=history.undisturbed,
                now=self.now,
                local_min=lambda _: self.local_min,
                resumed_s=lambda: self.resumed_s,
            ),
            publish=self.events.append,
            now=self.now,
            boot_id="boot",
            cache_dir="",
            gpu_taken=lambda: self.taken,
            beside=lambda: self.driver,
            missed=lambda: self.missed,
        ), history

    def rounds(self, *paces: Pace) -> Snapshot:
        async def story() -> None:
            pipeline, history = self.make()
            for pace in paces:
                await pipeline.round(pace)
            await history.close()

        asyncio.run(story())
        snapshot = Snapshot(version="1", started_s=0.0)
        for event in self.events:
            snapshot = fold(event, snapshot)
        return snapshot

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]
