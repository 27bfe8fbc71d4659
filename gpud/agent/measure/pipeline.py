"""Rounds of probes, each run on one path: gate, child, history, regression, published state."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from gpud.agent.history import queries
from gpud.agent.history.records import Run
from gpud.agent.measure import conditions
from gpud.agent.measure.gate import Due, Wait
from gpud.agent.measure.launch import Launcher, LaunchRefused
from gpud.agent.measure.served import absence, job_of, peer_of
from gpud.agent.state import containers, recent
from gpud.agent.state.facts import run_conditions
from gpud.agent.state.gpus import with_devices
from gpud.agent.state.known_faults import driver_version, left_out
from gpud.agent.state.presence import misses_a_gpu
from gpud.agent.state.runs import (
    gpu_costs,
    with_inventory,
    with_run,
    with_skip,
    with_specs,
)
from gpud.agent.state.snapshot import probe_key
from gpud.core import clock
from gpud.core.errors import StoreError, WireError
from gpud.core.health import Health, Level
from gpud.core.sample import Backend, Device, Inventory, Pace, ProbeSpec, Reason, Skip

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpud.agent.history.store import History
    from gpud.agent.measure.clocks import ClockWatch
    from gpud.agent.measure.gate import Admission, Gate
    from gpud.agent.measure.pace import Rounds, Turn
    from gpud.agent.regression.service import Regression
    from gpud.agent.state.board import Board
    from gpud.agent.state.changes import ChangeDetection
    from gpud.core.clock import Instant
    from gpud.core.sample import Job, RunReport
    from gpud.core.settings import Settings

SHORT = {Reason.VRAM_SHORT: Skip.VRAM_SHORT, Reason.PEER_BUSY: Skip.PEER_BUSY}
"""Too little memory is free, of the second GPU for the last: what the gate could not read."""


class Pipeline:
    """Runs rounds of probes, and stores, evaluates and publishes each run."""

    def __init__(  # noqa: PLR0913  # the parts it joins, each passed by name
        self,
        settings: Settings,
        *,
        launcher: Launcher,
        gate: Gate,
        clock_watch: ClockWatch,
        history: History,
        regression: Regression,
        changes: ChangeDetection,
        board: Board,
        now: Callable[[], Instant],
        boot_id: str,
    ) -> None:
        self._settings = settings
        self._launcher = launcher
        self._gate = gate
        self._clock_watch = clock_watch
        self._history = history
        self._regression = regression
        self._changes = changes
        self._board = board
        self._now = now
        self._boot_id = boot_id
        self._root_run_s: float | None = None
        self._specs: tuple[ProbeSpec, ...] = ()
        self._inventory: Inventory | None = None
        self._last_inventory: Inventory | None = None
        self._listed: Sequence[Device] = ()  # the GPUs when CUDA last listed them without a failure
        self._list_changed = False  # the last list was another than the one before
        self._late: set[tuple[str, str | None]] = set()  # probes by GPU, for the next round
        self._repeated: set[tuple[str, str | None]] = set()  # likewise, at its end
        self.turn = asyncio.Lock()  # whoever waits gets it in the order of asking

    async def discover(self) -> None:
        """Ask the child which probes there are; a child that cannot say is asked again later."""
        try:
            specs, refused = await self._launcher.specs()
        except WireError as error:
            fix = "deploy/run sets the environment up again"
            health = Health(Level.FAILED, "no_probes", str(error), fix)
            self._board.set_health("discovery", health)
            return
        disabled = set(self._settings.probes.disabled)
        self._specs = tuple(spec for spec in specs if spec.name not in disabled)
        measure = self._board.read().measure
        self._board.publish(measure=with_specs(measure, self._runnable, refused))
        unknown, health = disabled - {spec.name for spec in specs}, Health()
        if refused:
            detail = "; ".join(f"{name}: {why}" for name, why in sorted(refused.items()))
            health = Health(Level.DEGRADED, "refused", detail)
        elif unknown:
            detail = f"[probes] disabled: there is no probe {', '.join(sorted(unknown))}"
            fix = "`gpud probe --list` says what there is; correct gpud.toml, `gpud restart`"
            health = Health(Level.DEGRADED, "unknown_probe", detail, fix)
        self._board.set_health("discovery", health)

    async def round(self, rounds: Rounds) -> None:
        """Run every probe that is due by ``rounds``, one after the other, in one child if possible.

        The CPU's come first and once, then those of each GPU. In the grace of a boot the GPU's wait
        for its end, and all rests where the machine slept since the last tick.
        """
        self._clock_watch.look(self._now())
        async with self._launcher.held():
            async with self.turn:
                turn = await self._on_cpu(rounds)
                if time.monotonic() >= self._launcher.gpu_from_s:
                    await self._on_gpu(turn, rounds)
                    return
            await self._launcher.grace()  # others may have the CPU measured meanwhile
            async with self.turn:
                await self._on_gpu(turn, rounds)

    def confirm(self, spec: ProbeSpec, uuid: str | None) -> None:
        """Run a probe in the next round if its last run failed: it has succeeded by hand since."""
        if self._failed(spec, uuid):
            self._repeated.add((spec.name, uuid))

    def _failed(self, spec: ProbeSpec, uuid: str | None) -> bool:
        snapshot = self._board.read()
        if uuid is not None and uuid not in snapshot.gpus:
            return False  # no round has listed it yet
        state = snapshot.measure.probes.get(probe_key(snapshot.gpus, spec.name, uuid))
        return state is not None and state.report.failure is not None

    async def _on_cpu(self, rounds: Rounds) -> Turn:
        """Run what measures the CPU, and give all that is due in this round."""
        if not self._specs:
            await self.discover()
        on_battery = conditions.on_battery(self._settings.sysroot)
        costs_s = gpu_costs(self._board.read().measure)
        turn = rounds.begin(self._runnable, time.time(), costs_s, on_battery=on_battery)
        # First what has a mode that is cold only as long as nothing else has used the GPU.
        small, cold = Pace.SMALL, "_cold"
        turn.probes.sort(
            key=lambda s: (s.pace is not small, not any(m.endswith(cold) for m in s.modes))
        )
        # The CPU first: a driver that hangs must not keep the reference from its place.
        due = [spec for spec in turn.probes if spec.backend is Backend.CPU]
        for spec in self._in_turn(due, None):
            if await self._run(Due(spec, None)):
                rounds.ran(spec)
        return turn

    async def _on_gpu(self, turn: Turn, rounds: Rounds) -> None:
        if turn.resting:
            await self._rest(turn)
            return
        wrong = self._inventory is not None and self._inventory.failure
        new = turn.look or self._list_changed
        if new or wrong or misses_a_gpu(self._board.read()):
            self._inventory = None  # taken anew once a round while something is wrong, or new
        on_gpu = [spec for spec in self._runnable if spec.backend is Backend.CUDA]
        due = [spec for spec in turn.probes if spec.backend is Backend.CUDA]
        for uuid in [device.uuid for device in await self._devices(due)]:
            for spec in self._in_turn(due, uuid):
                listed = await self._devices([spec])
                device = next((each for each in listed if each.uuid == uuid), None)
                if device is None or spec not in self._runnable:
                    continue
                peer = peer_of(device, listed) if spec.peer else None
                if await self._run(Due(spec, device, peer)):
                    rounds.ran(spec)
        # Without GPU probes, too: there may be GPUs. What a run has lost is named in its round.
        look = (due or not on_gpu) and not self._container_measures
        if look and self._inventory is None:
            with contextlib.suppress(LaunchRefused):
                await self._look()

    def _in_turn(self, due: Sequence[ProbeSpec], uuid: str | None) -> Sequence[ProbeSpec]:
        """Return what runs on a GPU, or on the CPU for None.

        First what lost contexts kept from its turn before, last what runs once more.
        """
        late = [spec for spec in self._specs if (spec.name, uuid) in self._late]
        repeated = [spec for spec in self._specs if (spec.name, uuid) in self._repeated]
        self._late -= {(spec.name, uuid) for spec in late}
        self._repeated -= {(spec.name, uuid) for spec in repeated}
        return list(dict.fromkeys([*late, *due, *repeated]))

    async def _rest(self, turn: Turn) -> None:
        """Skip what rests on battery; nothing asks the GPU, once the list of GPUs is there."""
        at, listed = self._now(), self._inventory or self._last_inventory
        devices = listed.devices if listed else await self._devices(turn.resting)
        for spec in turn.resting:
            for device in devices:
                self._skip(Due(spec, device), Skip.ON_BATTERY, at, next_s=turn.rest_until_s)

    @property
    def _runnable(self) -> tuple[ProbeSpec, ...]:
        """The probes of this machine: those of two GPUs only where CUDA has listed two."""
        alone = absence(self._listed, self._board.read().machine.platform) is not None
        return tuple(spec for spec in self._specs if not (spec.peer and alone))

    async def _devices(self, due: Sequence[ProbeSpec]) -> Sequence[Device]:
        """Give the GPUs to measure; none, and a counted skip of each probe, without one."""
        skip = Skip.NO_GPU
        devices: tuple[Device, ...] = ()
        if self._container_measures:
            skip = Skip.CONTAINER_RUNNING
        elif due:
            try:
                if self._inventory is None:
                    await self._look()
            except LaunchRefused as refused:
                skip = refused.skip
            devices = () if self._inventory is None else self._inventory.devices
        if not devices:
            for spec in due:
                self._skip(Due(spec, None), skip, self._now())
        return devices

    async def _look(self) -> None:
        """Take the list of GPUs. ``Errors: LaunchRefused``."""
        self._clock_watch.look(self._now())
        inventory = await self._launcher.inventory(job_of(self._settings))
        self._list_changed = self._last_inventory not in (None, inventory)
        self._inventory = self._last_inventory = inventory
        if inventory.failure is None:
            self._listed = inventory.devices
        snapshot, mono_s = self._board.read(), self._now().mono_s
        gpus = with_devices(snapshot.gpus, inventory.devices)
        measure = with_inventory(snapshot.measure, inventory, gpus, mono_s)
        measure = with_specs(measure, self._runnable, measure.refused)
        self._board.publish(gpus=gpus, measure=measure)
        self._changes.compare()

    async def _run(self, due: Due) -> bool:
        """Run one probe on one GPU, or skip it; return whether it ran."""
        gpus = [each.uuid for each in (due.device, due.peer) if each is not None]
        closed = next(filter(None, map(self._launcher.closed_to_gpu_work, gpus)), None)
        if closed is not None:
            self._skip(due, closed, self._now())  # a GPU that hangs may look busy as well
            return False
        before = await self._gate.admit(due)
        while isinstance(before.answer, Wait):
            await asyncio.sleep(max(0.0, before.answer.until_s - self._now().mono_s))
            before = await self._gate.admit(due)
        if before.answer is not None:
            self._skip(due, before.answer, before.at, before.conditions.utilization_gpu_ratio)
            return False
        try:
            job = self.job(due.spec, due.device, due.peer)
            self._clock_watch.look(self._now())  # a machine that has slept since the tick rests
            report = await self._launcher.run(due.spec, job)
        except LaunchRefused as refused:
            self._skip(due, refused.skip, before.at)
            return False
        short = None if report.failure is None else SHORT.get(report.failure.reason)
        if short is not None:
            self._gate.worked(due, self._now())
            self._skip(due, short, before.at)
            return False
        await self._finish(due, report, before)
        return True

    def job(self, spec: ProbeSpec, device: Device | None, peer: Device | None = None) -> Job:
        """Return the job of a run, without what may set off a known fault of this machine."""
        job = job_of(self._settings, spec, device, peer)
        if device is None:
            return job
        snapshot = self._board.read()
        modes = left_out(snapshot.machine.platform, driver_version(snapshot), device)
        return replace(job, left_out=modes)

    async def _finish(self, due: Due, report: RunReport, before: Admission) -> None:
        """Store, evaluate and publish a run."""
        after = self._now()
        jumped = clock.jumped(before.at, after, threshold_s=clock.WITHIN_RUN_S) is not None
        report, flags = await self._gate.flagged(due, report, before, after, jumped=jumped)
        report = self._with_machine_versions(report)
        await self._store_and_evaluate(Run(report, after.wall_s, self._boot_id, flags))
        if jumped and report.failure is None:  # a failure stays one, whatever the time is
            self._skip(due, Skip.CLOCK_JUMPED, after)
            return
        first = report.failure is not None and not self._failed(due.spec, due.uuid)
        if first and due.spec.pace is Pace.LARGE:
            self._repeated.add(due.key)  # its turn may be two hours away
        past = await recent.past(self._history, due.spec, due.uuid, after.wall_s)
        snapshot = self._board.read()
        measure = with_run(snapshot.measure, snapshot.gpus, report, due.uuid, after, flags, past)
        self._board.publish(measure=measure)
        failure = None if due.device is None else report.failure  # the CPU's says nothing of GPUs
        ended = failure is not None and failure.reason is not Reason.SPAWN_FAILED
        if ended and not self._launcher.has_context(due.uuid):
            self._inventory = None  # it cost the child: what was there may be gone

    def _skip(
        self,
        due: Due,
        reason: Skip,
        at: Instant,
        used_ratio: float | None = None,
        next_s: float | None = None,
    ) -> None:
        """Count a run that was not started; without a GPU where none was chosen."""
        if reason is Skip.CONTEXT_LOST:
            self._late.add(due.key)
        starving = self._gate.put_off(due, reason, at.mono_s)
        more = {"used_ratio": used_ratio if reason is Skip.GPU_BUSY else None, "next_s": next_s}
        snapshot = self._board.read()
        key = probe_key(snapshot.gpus, due.spec.name, due.uuid)
        measure = with_skip(snapshot.measure, key, reason, starving=starving, **more)
        self._board.publish(measure=measure)

    async def store_container_run(self) -> None:
        """Store the container run in root's status, once: a new agent may read an old one."""
        snapshot = self._board.read()
        status = None if snapshot.root.report is None else snapshot.root.report.containers
        run, inventory = None if status is None else status.run, snapshot.measure.inventory
        if run is None or run.finished_s == self._root_run_s or inventory is None:
            return
        device = containers.measured_device(run, inventory)
        try:
            last_s = await self._history.read(queries.last_finished_s, containers.PROBE)
            if last_s != run.finished_s:
                report = self._with_machine_versions(containers.run_report(run, device))
                await self._store_and_evaluate(Run(report, run.finished_s, self._boot_id))
                self._launcher.contexts.made()  # its container's
        except StoreError:
            return  # reported by the runs of the schedule; tried again soon
        self._root_run_s = run.finished_s

    @property
    def _container_measures(self) -> bool:
        """Whether a container measures the GPU."""
        return containers.measuring(self._board.read().root.report)

    def _with_machine_versions(self, report: RunReport) -> RunReport:
        """Add the driver and machine to a run; what the child itself has seen is closer."""
        circumstances = run_conditions(self._board.read(), self._now().mono_s)
        return replace(report, conditions={**circumstances, **report.conditions})

    async def _store_and_evaluate(self, run: Run) -> None:
        """Write a run, then evaluate it; detector states are never written in between."""
        async with self._regression.turn:
            try:
                await self._history.append(run)
            except StoreError as error:
                waiting = f"; {self._history.waiting} runs wait in memory"
                lost = f", {self._history.dropped} were dropped" if self._history.dropped else ""
                detail = f"{error}{waiting}{lost}"
                health = Health(Level.FAILED, error.reason, detail, error.fix)
                self._board.set_health("store", health)
            else:
                self._history_written()
            finally:  # also while nothing can be written: the run waits in memory
                self._regression.evaluate(run)

    def _history_written(self) -> None:
        health, aside = Health(), self._history.set_aside
        if aside is not None:
            detail = f"the history was corrupt; it is kept as {aside} and a new one was begun"
            fix = "look at the old file, or delete it; restart gpud to clear this"
            health = Health(Level.DEGRADED, "corrupt_set_aside", detail, fix)
        self._board.set_health("store", health)
