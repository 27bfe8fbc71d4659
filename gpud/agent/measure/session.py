"""Probes that a person wants run now: one after the other, the CPU's first, and what they bring.

The agent runs a session for who asks over its socket, ``gpud probe`` itself where no agent runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from gpud.agent import platform
from gpud.agent.history import queries, reader
from gpud.agent.history.queries import Series
from gpud.agent.measure import gpulock, no_gpu
from gpud.agent.measure.breaker import State
from gpud.agent.measure.clocks import now
from gpud.agent.measure.launch import Refused
from gpud.core.errors import ConfigError, StoreError
from gpud.core.requests import (
    BeginLine,
    InventoryLine,
    NoHistoryLine,
    NotRunLine,
    RanLine,
    RefusedLine,
    Usual,
    WaitLine,
)
from gpud.core.sample import Backend, Job, Skip
from gpud.core.stats import median
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from gpud.agent.measure.launch import Launcher
    from gpud.core.requests import ProbeLine, ProbeRequest
    from gpud.core.sample import Device, Inventory, ProbeSpec, RunReport
    from gpud.core.settings import Settings

T = TypeVar("T")

PATIENCE_S: Final = 120.0
"""Another process may be measuring; nothing is measured beside it."""
SAY_AGAIN_S: Final = 20.0
REMEMBERED_S: Final = 30 * 86400.0
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class Session:
    """One request. ``turn`` is entered around each run, so that runs of the schedule go first."""

    def __init__(
        self,
        settings: Settings,
        request: ProbeRequest,
        launcher: Launcher,
        *,
        turn: Callable[[], AbstractAsyncContextManager[object]] = contextlib.nullcontext,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._settings = settings
        self._request = request
        self._launcher = launcher
        self._turn = turn
        self._patience_s = patience_s
        self._gave_up = False
        self._past = queries.Usual()

    async def lines(self) -> AsyncGenerator[ProbeLine, None]:
        """Run everything, and give what there is to say as it comes.

        Errors: ``ConfigError`` for a probe or a GPU that there is not, ``WireError`` when the
        child cannot say which probes there are.
        """
        known, refused = await self._launcher.specs()
        specs = named(known, refused, self._request.names)
        if refused and not self._request.names:
            yield RefusedLine(refused=refused)
        try:
            self._past = await self._history([spec.name for spec in specs])
        except StoreError as error:
            yield NoHistoryLine(reason=str(error))
        on_gpu = [spec for spec in specs if spec.backend is Backend.CUDA]
        devices: Sequence[Device] = ()
        if on_gpu:  # asked before the CPU is measured: a GPU that there is not is said at once
            async for line in self._inventory(on_gpu):
                yield line
                if isinstance(line, InventoryLine) and line.inventory.failure is None:
                    devices = chosen(line.inventory.devices, self._request.gpus)
        plan: list[tuple[ProbeSpec, Device | None]]
        plan = [(spec, None) for spec in specs if spec.backend is Backend.CPU]
        plan += [(spec, device) for spec in on_gpu for device in devices]
        for repeat in range(1, self._request.repeat + 1):
            for spec, device in plan:
                async for line in self._run(repeat, spec, device):
                    yield line

    async def _history(self, probes: Sequence[str]) -> queries.Usual:
        since_s = time.time() - REMEMBERED_S
        directory = Path(self._settings.state_dir)
        return await asyncio.to_thread(reader.read, directory, queries.usual, probes, since_s)

    async def _inventory(self, specs: Sequence[ProbeSpec]) -> AsyncGenerator[ProbeLine, None]:
        facts = platform.facts(self._settings.sysroot)
        boot = platform.gpu_from(self._settings, facts, now())
        if boot is not None:
            yield WaitLine(message=platform.begins(boot))
            await self._launcher.grace()
        standing = self._launcher.standing
        if standing.state is State.OPEN:
            yield WaitLine(message=f"the agent starts no GPU work (open): {standing.detail}")
            yield WaitLine(message=f"  fix: {standing.fix}")
        job = self._job(specs[0], None)
        result: list[Inventory] = []
        try:
            async for line in self._patiently(
                lambda: self._launcher.inventory(job, person=True), result
            ):
                yield line
        except Refused as refused:
            for spec in specs:
                yield self._not_run(1, spec, None, refused.skip)
            return
        nothing = None
        if result[0].failure is not None and not (self._request.names or self._request.gpus):
            nothing = await no_gpu.reason(self._settings, facts, result[0])
        yield InventoryLine(inventory=result[0], no_gpu=None if nothing is None else nothing.detail)

    async def _run(
        self, repeat: int, spec: ProbeSpec, device: Device | None
    ) -> AsyncGenerator[ProbeLine, None]:
        gpu = device.index if device is not None else None
        label = spec.name if device is None else f"{spec.name} on GPU {gpu}, {device.name}"
        if self._request.repeat > 1:
            label = f"{label} ({repeat} of {self._request.repeat})"
        yield BeginLine(label=label)
        job = self._job(spec, device)
        result: list[RunReport] = []
        try:
            async for line in self._patiently(
                lambda: self._launcher.run(spec, job, person=True), result
            ):
                yield line
        except Refused as refused:
            yield self._not_run(repeat, spec, gpu, refused.skip)
        else:
            yield RanLine(repeat=repeat, gpu=gpu, report=result[0], usual=self._usual(result[0]))

    async def _patiently(
        self, work: Callable[[], Awaitable[T]], result: list[T]
    ) -> AsyncGenerator[WaitLine, None]:
        """Do it once nobody else measures; what it gives is put into ``result``.

        Errors: ``Refused``.
        """
        begun_s, said_s = time.monotonic(), 0.0
        while True:
            try:
                async with self._turn():
                    result.append(await work())
            except Refused as refused:
                now_s = time.monotonic()
                if refused.skip is not Skip.CHILD_RUNNING:
                    raise
                if self._gave_up or now_s - begun_s >= self._patience_s:
                    self._gave_up = True  # once is enough: the rest is not waited for again
                    raise
                if now_s - said_s >= SAY_AGAIN_S:
                    said_s = now_s
                    holder = holder_of(self._launcher.lock_path)
                    yield WaitLine(message=f"waiting for {holder}; {self._patience_s:g} s at most")
            else:
                return

    def _not_run(self, repeat: int, spec: ProbeSpec, gpu: int | None, skip: Skip) -> NotRunLine:
        if skip is Skip.CHILD_RUNNING:
            holder = holder_of(self._launcher.lock_path)
            detail = f"waited {self._patience_s:g} s for {holder}"
            fix: str | None = "try again later; gpud status says whether it is stuck"
        else:
            standing = self._launcher.standing
            detail, fix = standing.detail or "the GPU does not answer", standing.fix
        return NotRunLine(
            repeat=repeat, gpu=gpu, probe=spec.name, skip=skip, detail=detail, fix=fix
        )

    def _usual(self, report: RunReport) -> dict[str, Usual]:
        """Give what is usual on the same GPU with the same version of the probe, by mode."""
        version = report.conditions.get("probe_version")
        uuid = report.device.uuid if report.device is not None else None
        if not isinstance(version, int):
            return {}
        kept = {
            sample.mode: self._past.medians.get(Series(uuid, report.probe, sample.mode, version))
            for sample in report.samples
        }
        return {mode: Usual(median(values), len(values)) for mode, values in kept.items() if values}

    def _job(self, spec: ProbeSpec, device: Device | None) -> Job:
        return Job(
            probe=spec.name,
            gpu=device.uuid if device is not None else None,
            cuda_library=self._settings.cuda.library,
            sysroot=self._settings.sysroot,
            cache_dir=self._cache_dir(),
            budget_s=spec.budget_s,
            start_limit_s=self._settings.cuda.start_limit_s,
            seed=secrets.randbelow(2**31 - 1) + 1,
        )

    def _cache_dir(self) -> str | None:
        """Give the agent's cache of compiled kernels, for first_launch is another figure without.

        Only to its owner: root leaves no file of its own there.
        """
        cache = Path(self._settings.state_dir, "cuda-cache")
        try:
            own = cache.stat().st_uid == os.geteuid()
        except OSError:
            return None
        return str(cache) if own else None


def named(
    specs: Sequence[ProbeSpec], refused: Mapping[str, str], names: Sequence[str]
) -> Sequence[ProbeSpec]:
    """Give the probes of these names, each once; all of them where there is no name.

    Errors: ``ConfigError`` for a name that is no probe, or of one that does not load.
    """
    known = {spec.name: spec for spec in specs}
    for name in names:
        if name in refused:
            raise ConfigError(f"the probe {name} does not load: {refused[name]}")
        if name not in known:
            raise ConfigError(f"there is no probe {name}; there are: {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)] if names else specs


def chosen(devices: Sequence[Device], names: Sequence[str]) -> Sequence[Device]:
    """Give the GPUs of these names, each once; all of them for no names.

    A name is an index, a UUID or the beginning of one that fits one GPU alone, as CUDA takes them.
    Errors: ``ConfigError`` that lists the GPUs there are.
    """
    if not names:
        return devices
    found: dict[str, Device] = {}
    for name in names:
        if name.isascii() and name.isdigit():
            fitting = [device for device in devices if device.index == int(name)]
        else:
            fitting = [d for d in devices if name and d.uuid.lower().startswith(name.lower())]
        if len(fitting) != 1:
            fault = "there is no GPU" if not fitting else "more than one GPU is meant by"
            listed = "; ".join(f"{d.index} {d.name} {d.uuid}" for d in devices)
            raise ConfigError(escaped(f"{fault} {name}; there are: {listed or 'none'}"))
        found[fitting[0].uuid] = fitting[0]
    return tuple(found.values())


def holder_of(lock: Path | None) -> str:
    """Name the process that has the lock, what it does and for how long it has run.

    Errors: none; a holder that cannot be found out is "another process".
    """
    holder = None
    if lock is not None:
        with contextlib.suppress(OSError):
            holder = gpulock.holder_in(lock)
    if holder is None:
        return "another process"
    # /proc/PID/stat counts from the boot, sleep included.
    begun_s = holder.process.start_ticks / TICKS_PER_S
    age_s = max(time.clock_gettime(time.CLOCK_BOOTTIME) - begun_s, 0.0)
    return f"process {holder.process.pid} ({escaped(holder.what)}), which has run for {age_s:.0f} s"
