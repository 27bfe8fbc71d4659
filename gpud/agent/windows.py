"""What only Windows knows of the machine, asked of its programs once and at leisure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from gpud.agent import interop, programs
from gpud.agent.children import ENVIRONMENT
from gpud.core import windows
from gpud.core.errors import TelemetryError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpud.agent.telemetry.source import Context

DEADLINE_S = 10.0
SYSTEM = "Windows/System32"

log = structlog.get_logger()


async def facts(context: Context, *, deadline_s: float = DEADLINE_S) -> dict[str, str]:
    """Give ``wsl_version``, "2.4.13", and ``windows_build``, "10.0.26100.3476".

    What cannot be found out is left out and its reason logged. Nothing outside WSL. Starts up to
    three programs, one after the other: call it once, when nothing waits for it.
    """
    if not context.read().platform.get("wsl"):
        return {}
    root = context.settings.sysroot
    found: dict[str, str] = {}
    wslinfo = [str(Path(root, "usr/bin/wslinfo"))]
    version = await _told(
        context, wslinfo, ["--wsl-version"], windows.wsl_version, ENVIRONMENT, deadline_s
    )
    try:
        started = interop.environment(root)
    except TelemetryError as error:
        log.info("windows_silent", reason=error.reason, detail=str(error))
    else:
        folders = [f"{drive}/{SYSTEM}" for drive in interop.drives(root)]
        if version is None:
            paths = [f"{folder}/wsl.exe" for folder in folders]
            version = await _told(
                context, paths, ["--version"], windows.wsl_version, started, deadline_s
            )
        paths = [f"{folder}/cmd.exe" for folder in folders]
        arguments = ["/d", "/c", "ver"]
        build = await _told(context, paths, arguments, windows.build, started, deadline_s)
        if build is not None:
            found["windows_build"] = build
    if version is not None:
        found["wsl_version"] = version
    return found


async def _told(  # noqa: PLR0913, PLR0917  # what is asked, how it is read, and for how long
    context: Context,
    paths: Sequence[str],
    arguments: Sequence[str],
    read: Callable[[str], str | None],
    environment: Mapping[str, str],
    deadline_s: float,
) -> str | None:
    """Start the first of ``paths`` that is there and read its answer; None is told to the log."""
    context.spawned()
    try:
        path, ended = await programs.find(paths, deadline_s=deadline_s)
        if path is not None:
            context.spawned()
            ended = await programs.run(
                [path, *arguments], deadline_s=deadline_s, environment=environment
            )
    except OSError as error:
        log.info("windows_silent", program=paths[0], reason="spawn_failed", detail=str(error))
        return None
    said = read(windows.text(ended.stdout)) if path is not None and ended.code == 0 else None
    if said is None:
        reason = "hung" if ended.killed else "absent" if path is None else "bad_output"
        log.info("windows_silent", program=path or paths[0], reason=reason, code=ended.code)
    return said
