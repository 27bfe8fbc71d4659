"""``gpud probe``: the launcher, lock and children of the schedule, for one person, once."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpud.agent.launch import Launcher, Refused
from gpud.core.errors import ConfigError, GpudError
from gpud.core.sample import SCHEMA_VERSION, Backend, Job, RunReport, Skip
from gpud.core.severity import SEVERITY, Severity
from gpud.core.stats import human
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from gpud.core.sample import Device, ProbeSpec
    from gpud.core.settings import Settings

    Say = Callable[[str], None]

PIPED_WIDTH = 120
PATIENCE_S = 120.0
"""A scheduled probe may be running; nothing is measured beside it."""


def listing(*, as_json: bool, say: Say) -> int:
    """Print the probes there are; 1 when a probe module does not load."""
    # Nothing is measured, so nobody's lock is wanted.
    specs, refused = asyncio.run(Launcher(Path(os.devnull)).specs())
    if as_json:
        probes = [asdict(spec) for spec in specs]
        document = {"schema_version": SCHEMA_VERSION, "probes": probes, "refused": refused}
        print(json.dumps(document))
        return 1 if refused else 0
    for spec in specs:
        say(f"{spec.name:<12} {spec.backend:<5} {spec.pace:<6} {', '.join(spec.modes)}")
        say(f"{'':<12} {spec.summary}")
    for name, reason in refused.items():
        say(f"{name:<12} does not load: {reason}")
    return 1 if refused else 0


def run(settings: Settings, names: Sequence[str], *, as_json: bool, progress: Say) -> int:
    """Run probes now and print what they bring; 1 when any brought nothing.

    Errors: ``ConfigError`` for a name that is no probe.
    """
    reports = asyncio.run(_all(settings, names, say=progress))
    if as_json:
        runs = [{"gpu": gpu, **asdict(report)} for gpu, report in reports]
        print(json.dumps({"schema_version": SCHEMA_VERSION, "runs": runs}))
    else:
        _draw(reports)
    return 1 if any(report.failure is not None for _, report in reports) else 0


async def _all(
    settings: Settings, names: Sequence[str], *, say: Say
) -> list[tuple[int | None, RunReport]]:
    launcher = _launcher(settings)
    specs, _ = await launcher.specs()
    known = {spec.name: spec for spec in specs}
    for name in names:
        if name not in known:
            raise ConfigError(f"there is no probe {name}; there are: {', '.join(known)}")
    chosen = [known[name] for name in names] if names else list(specs)
    reports: list[tuple[int | None, RunReport]] = []
    try:
        for spec in chosen:
            if spec.backend is Backend.CPU:
                say(f"{spec.name} ...")
                reports.append((None, await launcher.run(spec, _job(settings, spec, None))))
        on_gpu = [spec for spec in chosen if spec.backend is Backend.CUDA]
        if on_gpu:
            reports += await _on_gpus(launcher, settings, on_gpu, say)
    except Refused as refused:
        if refused.skip is Skip.STUCK:
            stuck = launcher.standing
            raise GpudError(stuck.detail or "the GPU does not answer", fix=stuck.fix) from refused
        raise GpudError(
            f"another probe has been running for {PATIENCE_S:g} s ({refused.skip})",
            fix="try again later; gpud status tells whether it is stuck",
        ) from refused
    return reports


async def _on_gpus(
    launcher: Launcher, settings: Settings, specs: Sequence[ProbeSpec], say: Say
) -> list[tuple[int | None, RunReport]]:
    inventory = await launcher.inventory(_job(settings, specs[0], None))
    if inventory.failure is not None:
        return [
            (None, RunReport(spec.name, spec.backend, failure=inventory.failure)) for spec in specs
        ]
    reports: list[tuple[int | None, RunReport]] = []
    for spec in specs:
        for device in inventory.devices:
            say(f"{spec.name} on GPU {device.index}, {device.name} ...")
            reports.append((device.index, await launcher.run(spec, _job(settings, spec, device))))
    return reports


def _draw(reports: Sequence[tuple[int | None, RunReport]]) -> None:
    """Print the figures as a table, and below it what went wrong, with the fix."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("probe", "on", "mode"):
        table.add_column(name, no_wrap=True)
    for name in ("median", "p10", "p90", "p99", "n"):
        table.add_column(name, justify="right", no_wrap=True)
    console = Console()
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    for gpu, report in reports:
        place = "CPU" if report.backend is Backend.CPU else "" if gpu is None else f"GPU {gpu}"
        for sample in report.samples:
            figures = (sample.median, sample.p10, sample.p90, sample.p99)
            shown = [human(value, sample.unit) for value in figures]
            table.add_row(report.probe, place, sample.mode, *shown, str(sample.n))
    if table.row_count:
        console.print(table)
    _explain(console, [report for _, report in reports])


def _explain(console: Console, reports: Sequence[RunReport]) -> None:
    """Say below the table what brought no figure and why, and each fix once."""
    from rich.text import Text

    said = set()
    for report in reports:
        if report.failure is not None:
            words = escaped(report.failure.detail)
            critical = SEVERITY[report.failure.reason] is Severity.CRITICAL
            style = "red" if critical else "yellow"
            console.print(Text(f"{report.probe}: {words}"), style=style)
            if report.failure.advice and report.failure.advice not in said:
                said.add(report.failure.advice)
                console.print(Text(f"  fix: {escaped(report.failure.advice)}"))
        for missing in report.missing:
            detail = escaped(missing.detail)
            console.print(Text(f"{report.probe} {missing.mode}: {missing.reason}: {detail}"))


def _launcher(settings: Settings) -> Launcher:
    """Use the lock of the agent that runs here, or one of our own where none ever did."""
    own = Path(settings.run_dir, "agent")
    if own.is_dir():
        path = own / "gpu.lock"
    elif os.geteuid() == 0:  # never a name in /tmp, where anybody could have put a link
        path = Path("/run/gpud-probe.lock")
    else:
        path = Path(tempfile.gettempdir(), f"gpud-probe-{os.geteuid()}.lock")
    try:
        path.touch()
    except PermissionError as error:
        raise PermissionError(f"{path} belongs to the agent's user") from error
    return Launcher(path, patience_s=PATIENCE_S)


def _job(settings: Settings, spec: ProbeSpec, device: Device | None) -> Job:
    fields: dict[str, Any] = {"gpu": device.uuid} if device is not None else {}
    return Job(
        probe=spec.name,
        cuda_library=settings.cuda.library,
        sysroot=settings.sysroot,
        budget_s=spec.budget_s,
        seed=secrets.randbelow(2**31 - 1) + 1,
        **fields,
    )
