"""Facts of driver and machine: what a run is stored with, and when one has changed.

A change is a fact that held. A source is believed when it gives the same in two looks in a row,
because a driver that is being replaced shows nonsense once. Silence is no change: NVML that is
gone and back with the same version has changed nothing. Pure: snapshots, facts and moments come in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from gpud.agent.telemetry import answers
from gpud.document.machine import ChangeReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.sample import Condition

DRIVER_VERSION, NVML_VERSION, CUDA_VERSION = "driver_version", "nvml_version", "cuda_version"
DRIVER_FOLDER, KERNEL, BOOT_ID, GPUS = "driver_folder", "kernel", "boot_id", "gpus"
WSL_VERSION, WINDOWS_BUILD = "wsl_version", "windows_build"

KINDS: Final = (
    DRIVER_VERSION,
    DRIVER_FOLDER,
    CUDA_VERSION,
    NVML_VERSION,
    WSL_VERSION,
    KERNEL,
    WINDOWS_BUILD,
    BOOT_ID,
    GPUS,
)
"""Every kind of change, as metrics, events and the store name it."""

FIELDS: Final = (DRIVER_VERSION, NVML_VERSION, CUDA_VERSION, DRIVER_FOLDER)
"""Kinds that are telemetry fields of the machine, in the order in which a run is stored."""

READ: Final = (KERNEL, WSL_VERSION, WINDOWS_BUILD)
"""Kinds that cannot change while the virtual machine runs."""


@dataclass(frozen=True, slots=True)
class Fact:
    """What is said right now of one kind.

    ``level`` is that of the source that says it, ``look`` the moment it looked, by the monotonic
    clock: the same look told twice is still one. None: it cannot be otherwise while gpud runs.
    """

    text: str
    level: int = 0
    look: float | None = None
    since_s: float = 0.0  # Unix time of the first of the looks running that gave it


def run_conditions(snapshot: Snapshot, now_mono_s: float) -> dict[str, Condition]:
    """Return what is stored with a run that ends now: the versions, by kind.

    A new driver shows in the detector and in alerts by these alone, not by a change.
    """
    current = versions(snapshot, now_mono_s)
    return {kind: current[kind].text for kind in (*FIELDS, *READ) if kind in current}


def versions(snapshot: Snapshot, now_mono_s: float) -> dict[str, Fact]:
    """Return the versions of driver and machine, by kind, as far as they are known."""
    current = {}
    for reading in answers.current(snapshot.telemetry, now_mono_s):
        text = reading.value
        if reading.gpu is None and reading.field in FIELDS and type(text) is str:  # no ``Absent``
            answer = snapshot.telemetry.answers[reading.source]
            current[reading.field] = Fact(text, answer.level, answer.taken_mono_s)
    texts = {kind: snapshot.machine.platform.get(kind) for kind in READ}
    return current | {kind: Fact(text) for kind, text in texts.items() if text}


@dataclass(frozen=True, slots=True)
class FactsSoFar:
    """The facts that held, and of the latest of each kind the first look that gave it."""

    held: Mapping[str, Fact] = field(default_factory=dict)
    latest: Mapping[str, Fact] = field(default_factory=dict)


def changed(
    before: FactsSoFar, facts: Mapping[str, Fact], at_s: float, boot_id: str
) -> tuple[FactsSoFar, tuple[ChangeReport, ...]]:
    """Compare the facts that held with those of now; return what holds after, and the changes.

    Facts are by kind. Those that are not in ``facts`` stay as they are: unknown is no change.
    """
    held, latest = dict(before.held), dict(before.latest)
    changes: list[ChangeReport] = []
    for kind in sorted(facts, key=KINDS.index):
        now, old, first = facts[kind], held.get(kind), latest.get(kind)
        if first is None or (first.text, first.level) != (now.text, now.level):
            first = latest[kind] = replace(now, since_s=at_s)
        if old is not None and _same(kind, old, now):
            if now.text == old.text and now.level > old.level:
                held[kind] = replace(old, level=now.level)
        elif _holds(kind, old, first, now) and _may_change(kind, old, now):
            held[kind] = first
            before_text = None if old is None else old.text
            changes.append(
                ChangeReport(kind, before_text, now.text, first.since_s, boot_id, now.level)
            )
    return FactsSoFar(held, latest), tuple(changes)


def recalled(last: Mapping[str, ChangeReport]) -> FactsSoFar:
    """Return the facts that held by the last change of each in the history."""
    return FactsSoFar({kind: Fact(change.new or "", change.level) for kind, change in last.items()})


def real(changes: Iterable[ChangeReport]) -> tuple[ChangeReport, ...]:
    """Skip the first sights."""
    return tuple(change for change in changes if change.old is not None)


def uuids(gpus: str) -> tuple[str, ...]:
    """Split the text of a fact ``gpus``."""
    return tuple(uuid for uuid in gpus.split(",") if uuid)


def _holds(kind: str, before: Fact | None, first: Fact, now: Fact) -> bool:
    """Say whether a fact was seen in two looks running, or needs no second one."""
    if first.look is None or now.look is None or first.look < now.look:
        return True
    # A GPU that is listed is there; one that is missed may be back in a moment.
    listed, known = set(uuids(now.text)), set(uuids(before.text if before else ""))
    return kind == GPUS and bool(listed) and listed >= known


def same_version(kind: str, text: str, other: str) -> bool:
    """Return whether two texts are one version: two sources may write 572.16 and 572.160."""
    dotted = kind == DRIVER_VERSION and "." in text and "." in other
    return text == other or (dotted and text.rstrip("0") == other.rstrip("0"))


def _same(kind: str, before: Fact, now: Fact) -> bool:
    """Say whether two facts are one; a source always writes a version in the same way."""
    if before.level == now.level:
        return before.text == now.text
    return same_version(kind, before.text, now.text)


def _may_change(kind: str, before: Fact | None, now: Fact) -> bool:
    """Say whether the source that speaks now may overrule the one that spoke before.

    A source of a lower level may not: what it calls by the same name can be another number. Of the
    driver it may when it counts alike, two digits after three: then it is Windows' driver both
    times, and the replaced driver that broke NVML is what one wants to hear of.
    """
    if before is None or now.level >= before.level:
        return True
    return kind == DRIVER_VERSION and _shape(before.text) == _shape(now.text)


def _shape(version: str) -> str:
    return re.sub(r"\d", "9", version)
