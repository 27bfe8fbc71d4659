"""Probes that a person runs now: one after the other, the CPU's first, and their results.

The agent runs a session for a client of its socket, ``gpud probe`` itself where no agent runs.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

import gpud
from gpud.agent import platform
from gpud.agent.history import queries, reader
from gpud.agent.measure import conditions
from gpud.agent.measure.breaker import State
from gpud.agent.measure.clocks import now
from gpud.agent.measure.launch import LaunchRefused
from gpud.agent.measure.served import absence, job_of, peer_of
from gpud.agent.state.board import Board
from gpud.agent.state.known_faults import left_out
from gpud.agent.state.presence import nothing_expected
from gpud.agent.state.snapshot import ChangesState, MachineState, MeasureState, Snapshot
from gpud.agent.telemetry.answers import Telemetry
from gpud.agent.telemetry.collection import SourceContext
from gpud.agent.telemetry.sources import dxg
from gpud.core.errors import ConfigError, StoreError
from gpud.core.gpu_names import Label, uuid_of
from gpud.core.sample import Backend, Inventory, RunReport, Skip
from gpud.core.stats import median
from gpud.core.streams import StreamKey
from gpud.gpu_lock import holder_of
from gpud.requests import (
    BeginLine,
    InventoryLine,
    NoHistoryLine,
    NotRunLine,
    RanLine,
    RefusedLine,
    Usual,
    WaitLine,
)
from gpud.words import because

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from gpud.agent.measure.launch import Launcher
    from gpud.agent.measure.pipeline import Pipeline
    from gpud.core.sample import Device, Job, ProbeSpec
    from gpud.core.settings import Settings
    from gpud.requests import ProbeLine, ProbeRequest

PATIENCE_S: Final = 120.0
"""Another process may be measuring; nothing is measured beside it."""
REPEAT_S: Final = 20.0
"""How often a person reads again for whom a run waits."""
RESTING: Final = frozenset({Skip.BOOT_GRACE, Skip.RESUMED, Skip.CLOCK_JUMPED})
"""Reasons for which GPU work waits for a moment that is known."""
REMEMBERED_S: Final = 30 * 86400.0


class Session:
    """One request. A round of ``pipeline`` that is due goes before the next run of its own."""

    def __init__(
        self,
        settings: Settings,
        request: ProbeRequest,
        launcher: Launcher,
        pipeline: Pipeline | None = None,
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._settings = settings
        self._request = request
        self._launcher = launcher
        self._pipeline = pipeline
        self._patience_s = patience_s
        self._gave_up = False
        self._listed: Sequence[Device] = ()
        self._past: Mapping[StreamKey, tuple[float, ...]] = {}

    async def lines(self) -> AsyncGenerator[ProbeLine, None]:
        """Run everything, and yield the lines of the answer as they come.

        Errors: ``ConfigError`` for a probe or a GPU that there is not, ``WireError`` when the
        child cannot say which probes there are.
        """
        all_specs, refused = await self._launcher.specs()
        specs = named(all_specs, refused, self._request.names)
        if refused and not self._request.names:
            yield RefusedLine(refused=refused)
        try:
            names, since_s = [spec.name for spec in specs], time.time() - REMEMBERED_S
            self._past = await asyncio.to_thread(
                reader.read, Path(self._settings.state_dir), queries.usual, names, since_s
            )
        except StoreError as error:
            yield NoHistoryLine(reason=str(error))
        on_gpu: Sequence[ProbeSpec] = [spec for spec in specs if spec.backend is Backend.CUDA]
        devices: Sequence[Device] = ()
        if on_gpu:  # asked before the CPU is measured: a GPU that there is not is an error at once
            async for line in self._inventory(on_gpu):
                yield line
                if isinstance(line, InventoryLine) and line.inventory.failure is None:
                    self._listed = line.inventory.devices
                    devices = chosen(self._listed, self._request.gpus)
            on_gpu = self._with_peers(on_gpu)
        on_cpu = [spec for spec in specs if spec.backend is Backend.CPU]
        places = [(on_cpu, None), *((on_gpu, device) for device in devices)]
        async for line in self._runs(places):
            yield line

    def _with_peers(self, specs: Sequence[ProbeSpec]) -> Sequence[ProbeSpec]:
        """Leave out what copies between GPUs where nothing does; a probe that is named is an error.

        Errors: ``ConfigError``.
        """
        why = absence(self._listed, platform.facts(self._settings.sysroot))
        for spec in specs if why and self._listed and self._request.names else ():
            if spec.peer:
                raise ConfigError(f"{spec.name} copies between two GPUs: {why}")
        return [spec for spec in specs if not (why and spec.peer)]

    async def _runs(
        self, places: Sequence[tuple[Sequence[ProbeSpec], Device | None]]
    ) -> AsyncGenerator[ProbeLine, None]:
        """Run probes in each place, all repeats of a place in a row.

        What is held is one child, and with it one GPU context.
        """
        async with self._launcher.held():
            for probes, device in places:
                for repeat in range(1, self._request.repeat + 1):
                    for spec in probes:
                        async for line in self._run(repeat, spec, device):
                            yield line

    async def _inventory(self, specs: Sequence[ProbeSpec]) -> AsyncGenerator[ProbeLine, None]:
        if words := self._launcher.contexts.warning:
            yield WaitLine(message=words)
        standing = self._launcher.standing
        if standing.state == State.OPEN:
            yield WaitLine(message=f"the agent starts no GPU work (open): {standing.detail}")
            yield WaitLine(message=f"  fix: {standing.fix}")
        try:
            async for result in self._patiently(None, self._job(None, None)):
                if isinstance(result, Inventory):
                    no_gpu = None
                    if result.failure is not None and not (
                        self._request.names or self._request.gpus
                    ):
                        no_gpu = await _no_gpu(self._settings, result)
                    yield InventoryLine(inventory=result, no_gpu=no_gpu)
                elif isinstance(result, WaitLine):
                    yield result
        except LaunchRefused as refused:
            for spec in specs:
                yield self._not_run(1, spec, None, refused.skip)

    async def _run(
        self, repeat: int, spec: ProbeSpec, device: Device | None
    ) -> AsyncGenerator[ProbeLine, None]:
        gpu = device.index if device is not None else None
        label = spec.name if device is None else f"{spec.name} on GPU {gpu}, {device.name}"
        if self._request.repeat > 1:
            label = f"{label} ({repeat} of {self._request.repeat})"
        yield BeginLine(label=label)
        try:
            async for result in self._patiently(spec, self._job(spec, device)):
                if isinstance(result, RunReport):
                    if self._pipeline is not None and result.failure is None:
                        self._pipeline.confirm(spec, device.uuid if device is not None else None)
                    power = conditions.named("after", conditions.power(self._settings.sysroot))
                    report = dataclasses.replace(result, conditions=result.conditions | power)
                    usual = self._usual(report)
                    yield RanLine(repeat=repeat, gpu=gpu, report=report, usual=usual)
                elif isinstance(result, WaitLine):
                    yield result
        except LaunchRefused as refused:
            yield self._not_run(repeat, spec, gpu, refused.skip)

    async def _patiently(
        self, spec: ProbeSpec | None, job: Job
    ) -> AsyncGenerator[WaitLine | RunReport | Inventory, None]:
        """Run a probe, or take the list of GPUs, once no other process measures and no rest holds.

        The result is the last item, after the lines of waiting. Errors: ``LaunchRefused``.
        """
        begun_s, reported_s = time.monotonic(), 0.0
        while True:
            try:
                turn = self._pipeline.turn if self._pipeline else nullcontext()
                async with turn:
                    if spec is None:
                        result: RunReport | Inventory
                        result = await self._launcher.inventory(job, person=True)
                    else:
                        result = await self._launcher.run(spec, job, person=True)
                yield result
            except LaunchRefused as refused:
                now_s = time.monotonic()
                if refused.skip in RESTING:
                    moment = time.localtime(time.time() + self._launcher.gpu_from_s - now_s)
                    words = f"GPU work begins at {time.strftime('%X', moment)}"
                    yield WaitLine(message=f"{words}: {because(refused.skip)}")
                    await self._launcher.grace()
                    continue
                if refused.skip is not Skip.CHILD_RUNNING:
                    raise
                if self._gave_up or now_s - begun_s >= self._patience_s:
                    self._gave_up = True  # once is enough: the rest is not waited for again
                    raise
                if now_s - reported_s >= REPEAT_S:
                    reported_s = now_s
                    holder = holder_of(self._launcher.lock_path)
                    yield WaitLine(message=f"waiting for {holder}; {self._patience_s:g} s at most")
            else:
                return

    def _not_run(self, repeat: int, spec: ProbeSpec, gpu: int | None, skip: Skip) -> NotRunLine:
        standing = self._launcher.standing
        detail, fix = standing.detail or "the GPU does not answer", standing.fix
        if skip is Skip.CHILD_RUNNING:
            holder = holder_of(self._launcher.lock_path)
            detail = f"waited {self._patience_s:g} s for {holder}"
            fix = "try again later; gpud status says whether it is stuck"
        return NotRunLine(
            repeat=repeat, gpu=gpu, probe=spec.name, skip=skip, detail=detail, fix=fix
        )

    def _usual(self, report: RunReport) -> dict[str, Usual]:
        """Return what is usual in the same stream, by mode."""
        uuid = report.device.uuid if report.device is not None else None
        peer = report.conditions.get("peer")
        peer = peer if isinstance(peer, str) else None
        on_battery = report.conditions.get("after.ac") is False
        past = {
            sample.mode: self._past.get(
                StreamKey(uuid, report.probe, sample.mode, report.version, on_battery, peer)
            )
            for sample in report.samples
        }
        return {mode: Usual(median(values), len(values)) for mode, values in past.items() if values}

    def _job(self, spec: ProbeSpec | None, device: Device | None) -> Job:
        peer = None
        if spec is not None and spec.peer and device is not None:
            peer = peer_of(device, self._listed)
        if self._pipeline is not None and spec is not None:
            return self._pipeline.job(spec, device, peer)
        job = job_of(self._settings, spec, device, peer)
        if device is None:
            return job
        modes = left_out(platform.facts(self._settings.sysroot), None, device)
        return dataclasses.replace(job, left_out=modes)


def named(
    specs: Sequence[ProbeSpec], refused: Mapping[str, str], names: Sequence[str]
) -> Sequence[ProbeSpec]:
    """Return the probes of these names, each once; all of them where there is no name.

    Errors: ``ConfigError`` for a name that is no probe, or of one that does not load.
    """
    by_name = {spec.name: spec for spec in specs}
    for name in names:
        if name in refused:
            raise ConfigError(f"the probe {name} does not load: {refused[name]}")
        if name not in by_name:
            raise ConfigError(f"there is no probe {name}; there are: {', '.join(by_name)}")
    return [by_name[name] for name in dict.fromkeys(names)] if names else specs


def chosen(devices: Sequence[Device], names: Sequence[str]) -> Sequence[Device]:
    """Return the GPUs of these names, each once; all of them for no names.

    Errors: ``ConfigError`` that lists the GPUs there are.
    """
    if not names:
        return devices
    by_uuid = {device.uuid: device for device in devices}
    labels = {device.uuid: Label(device.index, device.name) for device in devices}
    uuids = dict.fromkeys(uuid_of(name, labels) for name in names)
    return tuple(map(by_uuid.__getitem__, uuids))


async def _no_gpu(settings: Settings, inventory: Inventory) -> str | None:
    """Return why there is no GPU to expect; None where one is expected, or nobody can tell."""
    expected, folder = {}, Path(settings.state_dir)
    try:
        expected = await asyncio.to_thread(reader.read, folder, queries.expected_gpus)
    except StoreError as error:
        if error.reason != "no_history":
            return None
    machine = MachineState(
        gpud.__version__,
        now().wall_s,
        platform=platform.facts(settings.sysroot),
        library_configured=bool(settings.cuda.library or settings.nvml.library),
    )
    changes, measure = ChangesState(expected), MeasureState(inventory=inventory)
    board = Board(Snapshot(machine, measure=measure, changes=changes))
    source = dxg.create(SourceContext(settings, board, now, Path(settings.run_dir, "agent")))
    answer = await source.collect()
    telemetry = Telemetry({dxg.NAME: answer})
    nothing = nothing_expected(replace(board.read(), telemetry=telemetry))
    return None if nothing is None else nothing.detail
