"""What worked and works no more: CUDA, one probe, NVML, GPU containers. One step a second.

A loss is told only of what was seen to work, with the driver that it worked under. What fails under
another one is lost after two failures in a row, under the same after three; NVML once it has been
silent for two minutes, a GPU that hangs under a new driver likewise. Pure: snapshots and moments
in, what is lost and what is back out.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpud.core.breaker import State
from gpud.core.errors import WireError
from gpud.core.health import Level
from gpud.core.sample import Backend, Reason
from gpud.core.signs import (
    CONTAINER,
    CUDA,
    NVML,
    OF_ONE_PROBE,
    PROBE,
    Sign,
    Subject,
    Why,
    driver,
    signs,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpud.core.clock import Instant
    from gpud.core.snapshot import Snapshot

UNDER_ANOTHER, UNDER_THE_SAME = 2, 3
"""Failures in a row: one may be chance, and without a new driver so may two."""
KNOWN_S: Final = 60.0
"""By then it is known whether the driver is another one: that takes two looks, and NVML its time.
"""
GONE_S: Final = 120.0
"""A driver that is replaced takes NVML away for a minute."""
AFTER_RESUME_S: Final = 120.0
"""What fails so soon after a pause does so because of it."""
OTHERS_S: Final = 1200.0
"""For so long the word of other probes is waited for; the large ones run every 15 minutes."""
UNSEEN_S: Final = 3600.0
"""What nobody has tried for so long is not lost: the probe was switched off, the GPU is gone."""
MOST: Final = 1000
"""Subjects that are remembered."""
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Lost:
    """A function that works no more since ``at_s``. Of the drivers None is: not known."""

    subject: Subject
    old: str | None  # under which it last worked
    new: str | None  # under which it fails
    why: Why
    at_s: float


@dataclass(frozen=True, slots=True)
class Strikes:
    """Failures in a row, the first of them noticed at a moment of the monotonic clock."""

    count: int
    first_s: float


@dataclass(frozen=True, slots=True)
class Functions:
    """What worked under which driver, what fails, and what is lost.

    ``marks`` are those of the last signs, and ``unseen`` since when there are none of what is lost,
    both by the monotonic clock: of a restart survive ``worked`` and ``lost``.
    """

    worked: Mapping[Subject, str | None] = field(default_factory=dict)
    strikes: Mapping[Subject, Strikes] = field(default_factory=dict)
    lost: Mapping[Subject, Lost] = field(default_factory=dict)
    marks: Mapping[Subject, float] = field(default_factory=dict)
    unseen: Mapping[Subject, float] = field(default_factory=dict)


class Step(NamedTuple):
    """The next state, and what is lost and back since the one before."""

    state: Functions
    lost: tuple[Lost, ...]
    back: tuple[Lost, ...]


class _Look(NamedTuple):
    """What is known at one moment."""

    snapshot: Snapshot
    signs: tuple[Sign, ...]
    fresh: frozenset[Subject]  # whose sign was not there at the last look
    driver: str | None
    now: Instant


def step(state: Functions, snapshot: Snapshot, now: Instant) -> Step:
    """Look at a snapshot."""
    seen = signs(snapshot)
    fresh = frozenset(one.subject for one in seen if state.marks.get(one.subject) != one.mark)
    look = _Look(snapshot, seen, fresh, driver(snapshot, now), now)
    counted = _counted(state, look)
    back = frozenset(_back(counted, look))
    after = replace(counted, lost={k: v for k, v in counted.lost.items() if k not in back})
    resumed_s = snapshot.resumed_mono_s
    if resumed_s is not None and now.mono_s - resumed_s < AFTER_RESUME_S:
        # Begun anew: neither what failed before the pause nor what it broke counts.
        return Step(replace(after, strikes={}), (), tuple(state.lost[one] for one in back))
    found = {one.subject: one for one in _lost(after, look)}
    together = {**after.lost, **found}
    parts = {one for one in together if any(_part(one, whole) for whole in together)}
    held = {subject: one for subject, one in together.items() if subject not in parts}
    return Step(
        replace(after, lost=held),
        tuple(one for subject, one in found.items() if subject in held),
        tuple(one for subject, one in state.lost.items() if subject not in held),
    )


def pending(state: Functions) -> frozenset[str]:
    """Give the kinds of which it is not decided yet whether they are lost."""
    return frozenset(one.kind for one in state.strikes if one in state.worked)


def joined(past: Functions, own: Functions) -> Functions:
    """Take in what an earlier life knew, once it can be read."""
    return replace(own, worked={**past.worked, **own.worked}, lost={**past.lost, **own.lost})


def saved(state: Functions) -> dict[str, Any]:
    """Give as plain JSON data what a restart keeps; failures are counted anew."""
    return {
        "version": VERSION,
        "worked": [[*subject, under] for subject, under in state.worked.items()],
        "lost": [asdict(one) | {"subject": list(one.subject)} for one in state.lost.values()],
    }


def restored(state: Mapping[str, Any]) -> Functions:
    """Read back what ``saved`` gave. Errors: ``WireError`` for anything else."""
    if state.get("version") != VERSION:
        raise WireError(f"functions of version {state.get('version')!r}, this gpud reads {VERSION}")
    try:
        lost = [
            Lost(**{**one, "subject": Subject(*one["subject"]), "why": Why(**one["why"])})
            for one in state["lost"]
        ]
        return Functions(
            worked={Subject(*rest): under for *rest, under in state["worked"]},
            lost={one.subject: one for one in lost},
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise WireError(f"functions are damaged: {type(error).__name__}: {error}") from error


def _counted(state: Functions, look: _Look) -> Functions:
    """Count each sign once: a success of before is none under the driver of now."""
    worked, strikes = dict(state.worked), dict(state.strikes)
    now_s = look.now.mono_s
    for one in look.signs:
        before = strikes.get(one.subject)
        if one.why is None:
            strikes.pop(one.subject, None)
        elif before is None:
            strikes[one.subject] = Strikes(1, now_s)
        if one.subject not in look.fresh:
            continue
        if one.why is None:
            worked[one.subject] = look.driver or worked.get(one.subject)
        elif before is not None:
            strikes[one.subject] = replace(before, count=before.count + 1)
    known = {one.subject for one in look.signs}
    unseen = {one: state.unseen.get(one, now_s) for one in state.lost if one not in known}
    for subject in list(worked)[: max(len(worked) - MOST, 0)]:
        del worked[subject]
    return Functions(
        worked,
        {subject: count for subject, count in strikes.items() if subject in known},
        state.lost,
        {one.subject: one.mark for one in look.signs},
        unseen,
    )


def _back(state: Functions, look: _Look) -> Iterator[Subject]:
    """Yield what works again, is wanted by nobody any more, or is not tried any more."""
    works = {one.subject for one in look.signs if one.why is None}
    gpus = {one.gpu for one in works & look.fresh if one.kind == PROBE}
    for subject in state.lost:
        unseen_s = state.unseen.get(subject)
        health = None if subject.gpu else look.snapshot.health.get(subject.kind)
        if (
            subject in works
            or (subject.kind == CUDA and subject.gpu in gpus)
            or (health is not None and health.level is Level.OK)
            or (unseen_s is not None and look.now.mono_s - unseen_s >= UNSEEN_S)
        ):
            yield subject


def _lost(state: Functions, look: _Look) -> Iterator[Lost]:
    """Yield what has failed often enough to be told."""
    gpus: dict[str, list[Sign]] = {}
    for one in look.signs:
        subject = one.subject
        told = any(subject == lost or _part(subject, lost) for lost in state.lost)
        if one.why is None or told or not _enough(state, one, look):
            continue
        if subject.kind == PROBE:
            gpus.setdefault(subject.gpu, []).append(one)
        else:
            yield _of(state, subject, one, look)
    for failing in gpus.values():
        yield from _of_a_gpu(state, failing, look)


def _enough(state: Functions, one: Sign, look: _Look) -> bool:
    if one.why is None or one.subject not in state.worked:
        return False
    strikes, old = state.strikes[one.subject], state.worked[one.subject]
    lasting = look.now.mono_s - strikes.first_s >= GONE_S
    another = None not in {look.driver, old} and look.driver != old
    if one.subject.kind == NVML:
        return lasting and Subject(CUDA) not in state.strikes  # else it is decided there
    if one.subject.kind == CONTAINER:
        return True  # hours lie between two runs, and its verdict rests on two probes
    if one.why.reason in {Reason.HUNG, Reason.SLOW_START}:
        # Under the same driver that is the health of ``gpu``, which tells more of it.
        breaker = look.snapshot.breaker
        return another and lasting and breaker is not None and breaker.state is not State.CLOSED
    if another:
        return strikes.count >= UNDER_ANOTHER
    known = look.now.mono_s - strikes.first_s >= KNOWN_S
    return known and strikes.count >= UNDER_THE_SAME


def _of_a_gpu(state: Functions, failing: Sequence[Sign], look: _Look) -> Iterator[Lost]:
    """Tell a GPU on which nothing works any more from one that refuses some probes."""
    gpu, own = failing[0].subject.gpu, {one.subject for one in failing}
    since_s = min(state.strikes[subject].first_s for subject in own)
    beside = [
        one
        for one in look.signs
        if (one.subject.kind, one.subject.gpu) == (PROBE, gpu)
        and one.subject in state.worked.keys() - own
        and (one.why is not None or one.mark >= since_s)
    ]
    alone = len(failing) + len(beside) == 1
    if not any(one.why is None for one in beside):
        if not alone or any(one.why and one.why.reason not in OF_ONE_PROBE for one in failing):
            yield _of(state, Subject(CUDA, gpu), failing[0], look)
            return
        if _others(failing[0], look.snapshot) and look.now.mono_s - since_s < OTHERS_S:
            return  # refused, and no other has been tried since
    for one in failing:
        yield _of(state, one.subject, one, look)


def _of(state: Functions, subject: Subject, one: Sign, look: _Look) -> Lost:
    why = one.why or Why("unknown")
    return Lost(subject, state.worked[one.subject], look.driver, why, look.now.wall_s)


def _others(one: Sign, snapshot: Snapshot) -> bool:
    """Say whether there are other probes of a GPU that may tell more."""
    return any(
        spec.backend is Backend.CUDA and spec.name != one.subject.probe for spec in snapshot.specs
    )


def _part(one: Subject, whole: Subject) -> bool:
    """Say whether the loss of ``whole`` is that of ``one`` too."""
    if one == whole or whole.kind != CUDA or one.kind == CONTAINER:
        return False
    return not whole.gpu or (one.gpu == whole.gpu and one.kind == PROBE)
