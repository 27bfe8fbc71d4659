"""Two cards of different speed, real children, and what happens when one of them is gone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from gpud.agent.history.store import History
from gpud.agent.measure.conditions import Conditions, Observer
from gpud.agent.measure.launch import CHILD, Launcher
from gpud.agent.serve.metrics.collector import SnapshotCollector
from gpud.agent.state.board import Board
from gpud.core.clock import Instant
from gpud.core.health import Level
from gpud.core.sample import Pace
from gpud.core.sections import CudaSettings, ProbeSettings
from gpud.core.settings import Settings
from tests import snapshots
from tests.agent.measure.rounds import Of, pipeline_of
from tests.child.running import GPU, INTERPRETED, OTHER_GPU
from tests.e2e.program import only
from tests.standins.build import build_libcuda, build_virtual_clock, rewrite_script

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.agent.state.snapshot import Snapshot

QUICK, SLOW = GPU, OTHER_GPU
BOTH = """
devices 2
device.0.bytes_per_second 8e11
device.1.bytes_per_second 2e11
device.0.launch_ns 4000
device.1.launch_ns 40000
"""
ONLY_THE_SLOW_ONE = f"""
device.0.uuid {SLOW.removeprefix("GPU-")}
device.0.pci_bus_id 0000:02:00.0
device.0.bytes_per_second 2e11
device.0.launch_ns 40000
"""
PROBES = only("launch", "memory_latency", "small_peer_copy", "sync", "triad")
NOW = Instant(1.0, 1.0)


class _NothingKnown(Observer):
    async def look(self, uuid: str | None) -> Conditions:  # noqa: ARG002
        return Conditions()


class Agent:
    """A pipeline over two cards; what it says is folded, as the board does."""

    def __init__(self, folder: Path) -> None:
        self.library = build_libcuda(folder, BOTH)
        self.board = Board(snapshots.bare())
        self.settings = Settings(
            cuda=CudaSettings(library=str(self.library)),
            probes=ProbeSettings(disabled=tuple(PROBES["disabled"])),
            home=str(folder),
        )
        self.history = History(folder)
        clock = build_virtual_clock(folder)
        virtual = (f"LD_PRELOAD={clock}", f"VIRTUAL_CLOCK={INTERPRETED}")
        self.pipeline = pipeline_of(
            self.settings,
            Launcher(folder / "gpu.lock", command=["env", *virtual, *CHILD]),
            self.history,
            self.board,
            _NothingKnown(cast("Any", None), ""),
        )

    @property
    def snapshot(self) -> Snapshot:
        return self.board.read()

    async def round(self) -> None:
        for pace in (Pace.SMALL, Pace.LARGE):
            await self.pipeline.round(Of(pace))

    def figures(self, mode: str) -> dict[int | None, float]:
        return {
            key.gpu: sample.median
            for key, state in self.snapshot.measure.probes.items()
            for sample in state.report.samples
            if sample.mode == mode
        }

    def exported(self) -> set[str]:
        """The numbers of the GPUs that a scrape shows anything of."""
        collector = SnapshotCollector(lambda: self.snapshot, self.settings, lambda: NOW)
        return {
            sample.labels["gpu"]
            for family in collector.collect()
            for sample in family.samples
            if sample.labels.get("gpu")
        }


def test_two_cards_are_never_mixed_up_though_one_disappears_and_comes_back(tmp_path: Path) -> None:
    agent = Agent(tmp_path)

    def shows(*, both: bool) -> None:
        rates, launches = agent.figures("triad"), agent.figures("submit")
        assert rates[1] == pytest.approx(2e11, rel=0.01)
        assert launches[1] == pytest.approx(40e-6, rel=0.01)
        assert agent.exported() == ({"0", "1"} if both else {"1"})
        health = agent.snapshot.health["devices"]
        if both:
            assert rates[0] == pytest.approx(8e11, rel=0.01)
            assert launches[0] == pytest.approx(4e-6, rel=0.01)
            assert health.level is Level.OK
        else:
            assert set(rates) == set(launches) == {1}
            assert (health.level, health.reason) == (Level.FAILED, "gpu_vanished")
            assert QUICK in (health.detail or "")

    async def story() -> None:
        await agent.round()
        shows(both=True)
        await agent.pipeline.round(Of(Pace.SMALL))
        assert set(agent.figures("to_peer_4b")) == {0, 1}
        rewrite_script(agent.library, ONLY_THE_SLOW_ONE)
        await agent.round()
        shows(both=False)
        assert not agent.figures("to_peer_4b")
        rewrite_script(agent.library, BOTH)
        await agent.pipeline.round(Of(Pace.LARGE))  # newcomers are looked for with the large probes
        await agent.round()
        shows(both=True)
        await agent.history.close()

    asyncio.run(story())
