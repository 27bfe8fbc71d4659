"""The runs themselves: one after the other, each when nobody else measures."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gpud.agent import history_read, platform
from gpud.agent.byhand import no_gpu, others
from gpud.agent.byhand.outcome import NotRun, Outcome, Ran
from gpud.agent.byhand.progress import TICK_S
from gpud.agent.clocks import now
from gpud.agent.launch import Launcher, Refused
from gpud.core import advice
from gpud.core.errors import ConfigError, StoreError
from gpud.core.sample import Backend, Job, Skip
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from gpud.agent.byhand.progress import Progress
    from gpud.core.sample import Device, Inventory, ProbeSpec
    from gpud.core.settings import Settings

T = TypeVar("T")

PATIENCE_S = 120.0
"""A scheduled probe may be running; nothing is measured beside it."""
LOOK_S = 0.25
REMEMBERED_S = 30 * 86400.0


@dataclass(frozen=True, slots=True)
class Request:
    """What a person asked for. ``names`` and ``gpus`` empty: all of them."""

    names: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()  # an index, or a UUID or the beginning of one
    repeat: int = 1


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


class Session:
    """Runs what was asked for; ``outcome`` has what came in, also when it is interrupted."""

    def __init__(
        self,
        settings: Settings,
        request: Request,
        progress: Progress,
        lock: Path,
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.outcome = Outcome(repeats=request.repeat)
        self._settings = settings
        self._request = request
        self._progress = progress
        self._lock = lock
        self._patience_s = patience_s
        self._gave_up = False
        self._label: str | None = None
        self._platform = platform.facts(settings.sysroot)
        self._gpu_from = platform.gpu_from(settings, self._platform, now())
        self._launcher = Launcher(
            lock,
            patience_s=LOOK_S,
            platform=advice.of(self._platform),
            gpu_from_s=0.0 if self._gpu_from is None else self._gpu_from.mono_s,
            on_spawn=self._spawned,
        )

    async def run(self) -> None:
        """Measure everything, the CPU first.

        Errors: ``ConfigError`` for a probe or a GPU that there is not, ``WireError`` when the
        child cannot say which probes there are.
        """
        ticking = asyncio.create_task(self._ticking())
        try:
            await self._all()
        finally:
            ticking.cancel()
            self._launcher.close()

    async def _all(self) -> None:
        specs = await self._specs()
        on_gpu = [spec for spec in specs if spec.backend is Backend.CUDA]
        self._tell_of_the_agent(anything=bool(on_gpu))
        await self._read_past([spec.name for spec in specs])
        # Asked before the CPU is measured: a GPU that there is not is said at once.
        devices = await self._devices(on_gpu)
        plan: list[tuple[ProbeSpec, Device | None]]
        plan = [(spec, None) for spec in specs if spec.backend is Backend.CPU]
        plan += [(spec, device) for spec in on_gpu for device in devices]
        once_s = sum(self._expected_s(spec, device) for spec, device in plan)
        self._progress.plan(self._request.repeat * once_s)
        for repeat in range(1, self._request.repeat + 1):
            for spec, device in plan:
                await self._one(repeat, spec, device)

    async def _specs(self) -> Sequence[ProbeSpec]:
        specs, refused = await self._launcher.specs()
        if not self._request.names:
            self.outcome.refused = refused
        return named(specs, refused, self._request.names)

    def _tell_of_the_agent(self, *, anything: bool) -> None:
        said = others.breaker(Path(self._settings.run_dir), now_s=time.time()) if anything else None
        if said is not None:
            words, fix = said
            self._progress.say(words)
            if fix is not None:
                self._progress.say(f"  fix: {fix}")

    async def _read_past(self, names: Sequence[str]) -> None:
        directory, since_s = Path(self._settings.state_dir), time.time() - REMEMBERED_S
        try:
            self.outcome.past = await asyncio.to_thread(
                history_read.past, directory, names, since_s=since_s
            )
        except StoreError as error:
            self.outcome.no_past = str(error)

    async def _devices(self, specs: Sequence[ProbeSpec]) -> Sequence[Device]:
        if not specs:
            return ()
        if self._gpu_from is not None:
            self._progress.say(platform.begins(self._gpu_from))
            await self._launcher.grace()
        job = self._job(specs[0], None)

        async def ask() -> Inventory:
            return await self._launcher.inventory(job)

        try:
            self._label = "the list of GPUs"
            inventory = self.outcome.inventory = await self._patiently(ask)
        except Refused as refused:
            for spec in specs:
                self._not_run(1, spec, None, refused.skip)
            return ()
        finally:
            self._ended()
        if inventory.failure is not None:
            if not (self._request.names or self._request.gpus):
                self.outcome.no_gpu = await no_gpu.reason(self._settings, self._platform, inventory)
            return ()
        return wanted(inventory.devices, self._request.gpus)

    async def _one(self, repeat: int, spec: ProbeSpec, device: Device | None) -> None:
        gpu = device.index if device is not None else None
        label = spec.name if device is None else f"{spec.name} on GPU {gpu}, {device.name}"
        if self._request.repeat > 1:
            label = f"{label} ({repeat} of {self._request.repeat})"
        self._progress.begin(label, self._expected_s(spec, device))
        job = self._job(spec, device)
        try:
            self._label = label
            report = await self._patiently(lambda: self._launcher.run(spec, job))
            self.outcome.runs.append(Ran(repeat, gpu, report))
        except Refused as refused:
            self._not_run(repeat, spec, gpu, refused.skip)
        finally:
            self._ended()

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do it when nobody else measures any more. ``Errors: Refused``."""
        begun_s = time.monotonic()
        while True:
            try:
                return await work()
            except Refused as refused:
                waited_s = time.monotonic() - begun_s
                if refused.skip is not Skip.CHILD_RUNNING:
                    raise
                if self._gave_up or waited_s >= self._patience_s:
                    self._gave_up = True  # once is enough: the rest is not waited for again
                    raise
                words = f"{others.holder(self._lock)}; {self._patience_s:g} s at most"
                self._progress.waiting(words, waited_s)

    def _not_run(self, repeat: int, spec: ProbeSpec, gpu: int | None, skip: Skip) -> None:
        if skip in {Skip.STUCK, Skip.BREAKER_OPEN}:
            standing = self._launcher.standing
            detail, fix = standing.detail or "the GPU does not answer", standing.fix
        else:
            detail = f"waited {self._patience_s:g} s for {others.holder(self._lock)}"
            fix = "try again later; gpud status tells whether it is stuck"
        self.outcome.not_run.append(NotRun(repeat, gpu, spec.name, skip, detail, fix))

    def _spawned(self) -> None:
        """Take note of what is left running if somebody interrupts: not what only waits."""
        self.outcome.running = self._label

    def _ended(self) -> None:
        """Forget what ran, unless it was left running: that is told."""
        self._label = None
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            self.outcome.running = None

    def _expected_s(self, spec: ProbeSpec, device: Device | None) -> float:
        """Give how long a run took lately; at most its budget."""
        uuid = device.uuid if device is not None else None
        known_s = self.outcome.past.durations.get((uuid, spec.name))
        return spec.budget_s if known_s is None else min(known_s, spec.budget_s)

    async def _ticking(self) -> None:
        while True:
            self._progress.tick()
            await asyncio.sleep(TICK_S)

    def _job(self, spec: ProbeSpec, device: Device | None) -> Job:
        # The agent's own cache of compiled kernels, or else first_launch would be another figure.
        cache = Path(self._settings.state_dir, "cuda-cache")
        usable = os.access(cache, os.W_OK | os.X_OK, effective_ids=True)
        return Job(
            probe=spec.name,
            gpu=device.uuid if device is not None else None,
            cuda_library=self._settings.cuda.library,
            sysroot=self._settings.sysroot,
            cache_dir=str(cache) if usable else None,
            budget_s=spec.budget_s,
            start_limit_s=self._settings.cuda.start_limit_s,
            seed=secrets.randbelow(2**31 - 1) + 1,
        )


def wanted(devices: Sequence[Device], names: Sequence[str]) -> Sequence[Device]:
    """Give the GPUs that ``names`` name, each once; all of them for no names.

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
