"""Driver and platform changes: what was known, what is known now, and when it became another.

A change is a fact that held. What a source says is believed when it says it in two looks running,
because a driver that is being replaced shows nonsense once. What nobody says is no change: NVML
that is gone and back with the same version has changed nothing. Pure: facts and moments come in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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

LONGEST: Final = 4096
"""Characters of a fact that are kept: the UUIDs of 64 GPUs take 2,623."""


@dataclass(frozen=True, slots=True)
class Change:
    """One fact that became another. ``old`` is None at the first sight ever: that is no change.

    Units: ``at_s`` is Unix time. ``level`` is that of the source that said it.
    """

    kind: str
    old: str | None
    new: str
    at_s: float
    boot_id: str
    level: int = 0


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


@dataclass(frozen=True, slots=True)
class Known:
    """What held, and what the last look at each kind gave."""

    held: Mapping[str, Fact] = field(default_factory=dict)
    seen: Mapping[str, Fact] = field(default_factory=dict)


def changed(
    known: Known, facts: Mapping[str, Fact], at_s: float, boot_id: str
) -> tuple[Known, tuple[Change, ...]]:
    """Compare what is known with what is said now; give what is known after, and the changes.

    Kinds that are not in ``facts`` stay as they are: unknown is no change.
    """
    held, seen = dict(known.held), dict(known.seen)
    found: list[Change] = []
    for kind in KINDS:
        if (now := facts.get(kind)) is None:
            continue
        now = replace(now, text=now.text[:LONGEST])
        before, last = held.get(kind), seen.get(kind)
        again = last is not None and (last.text, last.level) == (now.text, now.level)
        now = replace(now, since_s=last.since_s if last is not None and again else at_s)
        seen[kind] = now
        if before is not None and _same(kind, before, now):
            if now.text == before.text:
                held[kind] = replace(before, level=max(before.level, now.level))
            continue
        if not _holds(kind, before, last, now) or not _may_change(kind, before, now):
            continue
        held[kind] = now
        old = None if before is None else before.text
        found.append(Change(kind, old, now.text, now.since_s, boot_id, now.level))
    return Known(held, seen), tuple(found)


def recalled(last: Mapping[str, Change]) -> Known:
    """Give what is known from the last change of each kind that the history keeps."""
    return Known({kind: Fact(change.new, change.level) for kind, change in last.items()})


def joined(waiting: Sequence[Change], last: Mapping[str, Change]) -> tuple[Change, ...]:
    """Continue the past with what was seen while it could not be read.

    Without a past every kind began with a first sight. Where the history knows better, that one
    becomes a change from what it knows, or nothing where it is the same.
    """
    open_ends = dict(last)
    found = []
    for change in waiting:
        before = open_ends.pop(change.kind, None)
        if before is None:
            found.append(change)
        elif not _same(change.kind, _fact(before), _fact(change)):
            found.append(replace(change, old=before.new))
        elif change.new != before.new:  # one fact in two spellings: the past's one is kept
            open_ends[change.kind] = before
    return tuple(found)


def real(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Leave the first sights out."""
    return tuple(change for change in changes if change.old is not None)


def uuids(gpus: str) -> tuple[str, ...]:
    """Take the text of a fact ``gpus`` apart."""
    return tuple(uuid for uuid in gpus.split(",") if uuid)


def _holds(kind: str, before: Fact | None, last: Fact | None, now: Fact) -> bool:
    """Say whether a fact was seen in two looks running, or needs no second one."""
    if now.look is None:
        return True
    if (
        kind == GPUS
        and now.text
        and set(uuids(now.text)) >= set(uuids(before.text if before else ""))
    ):
        return True  # a GPU that is listed is there; one that is missed may be back in a moment
    return (
        last is not None
        and last.look is not None
        and (last.text, last.level) == (now.text, now.level)
        and last.look < now.look
    )


def _same(kind: str, before: Fact, now: Fact) -> bool:
    """Say whether two facts are one: two sources may write 572.16 and 572.160."""
    if before.text == now.text:
        return True
    if kind != DRIVER_VERSION or before.level == now.level:
        return False
    either = (before.text, now.text)
    return all("." in text for text in either) and len({text.rstrip("0") for text in either}) == 1


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


def _fact(change: Change) -> Fact:
    return Fact(change.new, change.level)
