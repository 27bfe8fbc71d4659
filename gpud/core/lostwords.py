"""What is told of a function that is lost: what, since which driver, why, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.core.alerts import FUNCTION_LOST, Alert, Cause, Severity
from gpud.core.alertwords import one_line, plain
from gpud.core.causes import DRIVER
from gpud.core.signs import CONTAINER, CUDA, NVML, PROBE
from gpud.core.slowfix import going_back

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.core.advice import Platform
    from gpud.core.functions import Lost

UNKNOWN: Final = "unknown"


def labels(lost: Lost) -> dict[str, str]:
    """Give what identifies a loss; a driver that is not known is left out."""
    subject = lost.subject
    said = {
        "kind": subject.kind,
        "uuid": subject.gpu,
        "probe": subject.probe,
        "old": lost.old,
        "new": lost.new,
    }
    return {name: plain(text) for name, text in said.items() if text}


def alert(lost: Lost, gpus: Mapping[str, str], platform: Platform) -> Alert:
    """Put a loss into words. Shapes: ``gpus`` says how GPUs are called, by UUID."""
    what, detail = _what(lost, gpus), plain(lost.why.detail or lost.why.reason)
    old, new = plain(lost.old or UNKNOWN), plain(lost.new or UNKNOWN)
    swapped = lost.old is not None and lost.new is not None and lost.old != lost.new
    known = lost.old is not None
    if swapped:
        under = f" since driver {old} -> {new}"
    elif known and lost.new is None:  # it may have been the only one to name the driver
        under = f", last under driver {old}"
    else:
        under = f" under driver {old}" if known else ""
    summary = f"{what} no longer works{under}: {detail}"
    lines = [f"{what} worked{f' under driver {old}' if known else ''} and fails now: {detail}"]
    if swapped:
        lines.append(f"The driver was replaced: {old} -> {new}.")
    steps = [] if lost.why.fix is None else [plain(lost.why.fix)]
    if swapped:
        steps.append(going_back(old, platform))
    return Alert(
        name=FUNCTION_LOST,
        severity=Severity.CRITICAL,
        labels=labels(lost),
        summary=one_line(summary),
        description="\n".join(lines),
        starts_s=lost.at_s,
        updated_s=lost.at_s,
        causes=(Cause(DRIVER, old, new),) if swapped else (),
        fix="; ".join(steps) or None,
    )


def _what(lost: Lost, gpus: Mapping[str, str]) -> str:
    kind, gpu, probe = lost.subject
    where = f" on {plain(gpus.get(gpu, gpu))}" if gpu else ""
    words = {
        CUDA: f"CUDA{where}",
        PROBE: f"the probe {plain(probe)}{where}",
        NVML: "NVML, the GPU's telemetry,",
        CONTAINER: "the GPU in containers",
    }
    return words.get(kind, plain(kind))
