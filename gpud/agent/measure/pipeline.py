"""One measurement, one direction: child -> history -> regression -> snapshot."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from gpud.agent.history.store import History, Run
from gpud.agent.measure.gate import Wait
from gpud.agent.measure.gatekeeper import Due
from gpud.agent.measure.launch import Launcher, Refused
from gpud.agent.state.container_fold import container_key
from gpud.agent.state.events import (
    Event,
    HealthSet,
    InventoryTaken,
    ProbesListed,
    RunFinished,
    RunSkipped,
)
from gpud.core import clock, containers
from gpud.core.errors import StoreError, WireError
from gpud.core.health import Level
from gpud.core.sample import Backend, Device, Inventory, Job, Pace, ProbeSpec, Reason, Skip

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from gpud.agent.measure.gatekeeper import Gatekeeper, Seen
    from gpud.agent.regression.service import Regression
    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.clock import Instant
    from gpud.core.sample import Condition, RunReport
    from gpud.core.settings import Settings

LOOK_AGAIN = frozenset(
    {
        Reason.NO_DEVICE,
        Reason.DEVICE_LOST,
        Reason.DEVICE_BUSY,
        Reason.ECC_ERROR,
        Reason.NOT_READY,
        Reason.NOT_PERMITTED,
        Reason.MPS_FAILED,
        Reason.DRIVER_MISMATCH,
        Reason.INIT_FAILED,
        Reason.LIBRARY_MISSING,
        Reason.HUNG,
        Reason.SLOW_START,
        Reason.KILLED,
        Reason.CRASHED,
    }
)
"""Failures after which the list of GPUs is taken anew: what was there may be gone."""


_Waiting: TypeAlias = list[tuple[Due, float]]
"""Runs that wait, and when each is to be tried again, by the monotonic clock."""


def _after_idle(spec: ProbeSpec) -> bool:
    """Put first what has a mode that is cold only as long as nothing else has used the GPU."""
    return not any(mode.endswith("_cold") for mode in spec.modes)


class Pipeline:
    """Runs rounds of probes. ``publish`` takes each event once it is safe in the history."""

    def __init__(  # noqa: PLR0913  # the parts it joins, each passed by name
        self,
        *,
        settings: Settings,
        launcher: Launcher,
        history: History,
        regression: Regression,
        gate: Gatekeeper,
        publish: Callable[[Event], None],
        now: Callable[[], Instant],
        boot_id: str,
        cache_dir: str,
        gpu_taken: Callable[[], bool] = lambda: False,
        beside: Callable[[], Mapping[str, Condition]] = dict,
        missed: Callable[[], bool] = lambda: False,
    ) -> None:
        self._settings = settings
        self._launcher = launcher
        self._history = history
        self._regression = regression
        self._gate = gate
        self._publish = publish
        self._now = now
        self._boot_id = boot_id
        self._cache_dir = cache_dir
        self._gpu_taken = gpu_taken
        self._beside = beside
        self._missed = missed
        self._root_run_s: float | None = None
        self._specs: tuple[ProbeSpec, ...] = ()
        self._inventory: Inventory | None = None
        self._last: Inventory | None = None
        self._unsure = False  # the last one was another than the one before
        self._turn = asyncio.Lock()
        self._rounds_due = 0  # that run or wait for their turn
        self._quiet = asyncio.Event()  # none is due
        self._quiet.set()
        self._rounds = dict.fromkeys(Pace, 0)

    async def discover(self) -> None:
        """Ask the child which probes there are; a child that cannot say is asked again later."""
        try:
            specs, refused = await self._launcher.specs()
        except WireError as error:
            self._publish(
                HealthSet(
                    "discovery",
                    Level.FAILED,
                    self._now().wall_s,
                    reason="no_probes",
                    detail=str(error),
                    fix="deploy/run sets the environment up again",
                )
            )
            return
        disabled = set(self._settings.probes.disabled)
        self._specs = tuple(spec for spec in specs if spec.name not in disabled)
        self._publish(ProbesListed(self._specs, refused, self._now().wall_s))
        unknown = disabled - {spec.name for spec in specs}
        if unknown and not refused:
            self._publish(
                HealthSet(
                    "discovery",
                    Level.DEGRADED,
                    self._now().wall_s,
                    reason="unknown_probe",
                    detail=f"[probes] disabled: there is no probe {', '.join(sorted(unknown))}",
                    fix="`gpud probe --list` says what there is; correct gpud.toml, `gpud restart`",
                )
            )

    async def round(self, pace: Pace) -> None:
        """Run every probe of ``pace``, one after the other: the CPU's once, the GPU's per GPU.

        Those that wait for a better moment do so while rounds of the other pace go on.
        """
        async with self._round_turn():
            due = await self._on_cpu(pace)
        await self._launcher.grace()
        async with self._round_turn():
            waiting = await self._on_gpu(pace, due)
        while waiting:
            soonest_s = min(until_s for _, until_s in waiting)
            await asyncio.sleep(max(0.0, soonest_s - self._now().mono_s))
            async with self._round_turn():
                waiting = await self._again([due for due, _ in waiting])

    @contextlib.asynccontextmanager
    async def after_rounds(self) -> AsyncIterator[None]:
        """Hold the turn for one run that a person wants, once no round is due."""
        await self._quiet.wait()
        async with self._turn:
            yield

    @contextlib.asynccontextmanager
    async def _round_turn(self) -> AsyncIterator[None]:
        self._rounds_due += 1
        self._quiet.clear()
        try:
            async with self._turn:
                yield
        finally:
            self._rounds_due -= 1
            if not self._rounds_due:
                self._quiet.set()

    def _due(self, pace: Pace) -> list[ProbeSpec]:
        number = self._rounds[pace]
        self._rounds[pace] += 1
        return [spec for spec in self._specs if spec.pace is pace and number % spec.every == 0]

    async def _on_cpu(self, pace: Pace) -> list[ProbeSpec]:
        """Run what measures the CPU, and give all that is due in this round."""
        if not self._specs:
            await self.discover()
        due = sorted(self._due(pace), key=_after_idle)
        # The CPU first: a driver that hangs must not keep the reference from its place.
        for spec in due:
            if spec.backend is Backend.CPU:
                await self._one(Due(spec, None))
        return due

    async def _on_gpu(self, pace: Pace, due: list[ProbeSpec]) -> _Waiting:
        wrong = self._inventory is not None and self._inventory.failure
        if pace is Pace.LARGE or wrong or self._unsure or self._missed():
            self._inventory = None  # taken anew once a round while something is wrong, or new
        waiting: _Waiting = []
        for spec in due:
            if spec.backend is Backend.CUDA and self._gpu_taken():
                self._publish(RunSkipped(spec.name, Skip.CONTAINER_RUNNING, self._now().wall_s))
            elif spec.backend is Backend.CUDA:
                for device in await self._devices(spec):
                    waiting += await self._one(Due(spec, device))
        on_gpu = [spec for spec in self._specs if spec.backend is Backend.CUDA]
        asked = not on_gpu or any(spec in due for spec in on_gpu)  # who measures none has some too
        if asked and self._inventory is None and not self._gpu_taken():
            with contextlib.suppress(Refused):
                await self._look()  # what a run has lost is named in the same round
        return waiting

    async def _again(self, waiting: list[Due]) -> _Waiting:
        """Try those that waited; a GPU that is gone by now is waited for no more."""
        still: _Waiting = []
        for due in waiting:
            if self._gpu_taken():
                self._skip(due, Skip.CONTAINER_RUNNING, self._now())
            elif due.uuid in {device.uuid for device in await self._devices(due.spec)}:
                still += await self._one(due)
        return still

    async def _devices(self, spec: ProbeSpec) -> Iterable[Device]:
        """Give the GPUs to measure, none (with a counted skip) while there are none."""
        if self._inventory is None:
            try:
                await self._look()
            except Refused as refused:
                self._publish(RunSkipped(spec.name, refused.skip, self._now().wall_s))
        devices = () if self._inventory is None else self._inventory.devices
        if self._inventory is not None and not devices:
            self._publish(RunSkipped(spec.name, Skip.NO_GPU, self._now().wall_s))
        return devices

    async def _look(self) -> None:
        """Take the list of GPUs. ``Errors: Refused``."""
        inventory = await self._launcher.inventory(self._job())
        self._unsure = self._last not in (None, inventory)
        self._inventory = self._last = inventory
        after = self._now()
        self._publish(InventoryTaken(inventory, after.wall_s, after.mono_s))

    async def _one(self, due: Due) -> _Waiting:
        """Run one probe on one GPU, or leave it out; gives it back if it has to wait."""
        hung = None if due.device is None else self._launcher.closed_to_gpu_work()
        if hung is not None:
            self._skip(due, hung, self._now())  # a GPU that hangs may look busy as well
            return []
        seen = await self._gate.ask(due)
        while isinstance(seen.answer, Wait) and seen.answer.ours:
            await asyncio.sleep(max(0.0, seen.answer.until_s - self._now().mono_s))
            seen = await self._gate.ask(due)
        if isinstance(seen.answer, Wait):
            since_s = seen.at.mono_s if due.since_s is None else due.since_s
            return [(replace(due, since_s=since_s), seen.answer.until_s)]
        if isinstance(seen.answer, Skip):
            self._skip(due, seen.answer, seen.at, seen.conditions.utilization_gpu_ratio)
            return []
        try:
            report = await self._launcher.run(due.spec, self._job_of(due))
        except Refused as refused:
            self._skip(due, refused.skip, seen.at)
            return []
        await self._finished(due, report, seen)
        return []

    async def _finished(self, due: Due, report: RunReport, seen: Seen) -> None:
        after = self._now()
        jumped = clock.jumped(seen.at, after, threshold_s=clock.WITHIN_RUN_S) is not None
        report, flags = await self._gate.ended(due, report, seen, after, jumped=jumped)
        report = self._with_driver(report)
        await self._keep(Run(report, after.wall_s, self._boot_id, flags))
        if jumped and report.failure is None:  # a failure stays one, whatever the time is
            self._skip(due, Skip.CLOCK_JUMPED, after)
            return
        self._publish(RunFinished(report, due.uuid, after.wall_s, after.mono_s, flags))
        failure = None if due.device is None else report.failure  # the CPU's says nothing of GPUs
        if failure is not None and failure.reason in LOOK_AGAIN:
            self._inventory = None

    def _skip(self, due: Due, reason: Skip, at: Instant, used_ratio: float | None = None) -> None:
        starving = self._gate.put_off(due, reason, at.mono_s)
        used_ratio = used_ratio if reason is Skip.GPU_BUSY else None
        self._publish(RunSkipped(due.spec.name, reason, at.wall_s, due.uuid, starving, used_ratio))

    async def heard(self, snapshot: Snapshot) -> None:
        """Keep the container run root tells of, once: a new agent is told of the old one too."""
        said = None if snapshot.root is None else snapshot.root.containers
        if said is None or said.run is None or said.run.finished_s == self._root_run_s:
            return
        run, known = said.run, snapshot.probes.get(container_key(snapshot, said))
        try:
            if await self._history.last_finished_s(containers.PROBE) != run.finished_s:
                told = known.report if known is not None else None
                report = self._with_driver(told or containers.run_report(run, None))
                await self._keep(Run(report, run.finished_s, self._boot_id))
        except StoreError:
            return  # told by the runs of the schedule; asked again in a second
        self._root_run_s = run.finished_s

    def _with_driver(self, report: RunReport) -> RunReport:
        """Keep with a run which driver it was; what the child itself has seen is closer."""
        return replace(report, conditions={**self._beside(), **report.conditions})

    async def _keep(self, run: Run) -> None:
        """Write first, publish after: a crash between the two loses a figure, not evidence."""
        moment = self._now().wall_s
        try:
            async with self._regression.turn:
                try:
                    await self._history.append(run)
                finally:  # also while nothing can be written: the run waits in memory
                    self._regression.evaluate(run)
        except StoreError as error:
            waiting = f"; {self._history.waiting} runs wait in memory"
            lost = f", {self._history.dropped} were dropped" if self._history.dropped else ""
            self._publish(
                HealthSet(
                    "store",
                    Level.FAILED,
                    moment,
                    reason=error.reason,
                    detail=f"{error}{waiting}{lost}",
                    fix=error.fix,
                )
            )
            return
        if self._history.set_aside is not None:
            self._publish(
                HealthSet(
                    "store",
                    Level.DEGRADED,
                    moment,
                    reason="corrupt_set_aside",
                    detail=f"the history was corrupt; it is kept as {self._history.set_aside} and "
                    "a new one was begun",
                    fix="look at the old file, or delete it; restart gpud to clear this",
                )
            )
            return
        self._publish(HealthSet("store", Level.OK, moment))

    def _job(self) -> Job:
        """Give a job for the list of GPUs."""
        cuda = self._settings.cuda
        return Job(
            cuda_library=cuda.library,
            sysroot=self._settings.sysroot,
            start_limit_s=cuda.start_limit_s,
        )

    def _job_of(self, due: Due) -> Job:
        return replace(
            self._job(),
            probe=due.spec.name,
            gpu=due.uuid,
            cache_dir=self._cache_dir,
            budget_s=due.spec.budget_s,
            seed=secrets.randbelow(2**31 - 1) + 1,
        )
