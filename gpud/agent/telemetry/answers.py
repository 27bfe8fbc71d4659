"""The last answer of each telemetry source, merged field by field in order of priority.

A source is NVML, one of the nvidia-smi programs, CUDA, the device of WSL. Its answer has readings,
or the reason why there are none; the best source that has a value for a field gives it. No reading
outlives the next answer of its source, good or bad, and one that is too old is stale.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gpud.agent.memo import memo
from gpud.core.sample import Absent, Reading
from gpud.core.telemetry import SEES_A_GPU
from gpud.requests import GpuProcess

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one source in one collection: readings, or the ``reason`` why there are none.

    Units: ``taken_s`` is Unix time, ``taken_mono_s`` CLOCK_MONOTONIC, both of the moment the values
    were read; ``holds_s`` says for how long they may be shown.
    """

    source: str
    level: int
    taken_s: float
    taken_mono_s: float
    readings: tuple[Reading, ...] = ()
    holds_s: float = 60.0
    duration_s: float | None = None
    reason: str | None = None  # a slug of a bounded set: "library_missing", "hung"
    detail: str | None = None
    fix: str | None = None

    def holds(self, now_mono_s: float) -> bool:
        """Return whether this is neither a failure nor too old."""
        return self.reason is None and now_mono_s - self.taken_mono_s <= self.holds_s


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The last answer of each source, by its name; readings carry their GPU's own number.

    Counters count since the agent started; ``failures`` by source and reason.
    """

    answers: Mapping[str, Answer] = field(default_factory=dict)
    last_success_s: Mapping[str, float] = field(default_factory=dict)
    failures: Mapping[tuple[str, str], int] = field(default_factory=dict)
    starts: Mapping[str, int] = field(default_factory=dict)  # of programs, by source


class GpuProcesses(msgspec.Struct, frozen=True):
    """The processes of one GPU, by its source's index; ``unknown_reason``: why not known."""

    gpu: int
    processes: tuple[GpuProcess, ...] = ()
    unknown_reason: str | None = None


class LiveAnswer(NamedTuple):
    """What changes from second to second: an answer with fewer readings, and the processes."""

    answer: Answer
    processes: tuple[GpuProcesses, ...]


def with_answer(telemetry: Telemetry, answer: Answer) -> Telemetry:
    """Put an answer in the place of its source's last one, and count it."""
    answers = {**telemetry.answers, answer.source: answer}
    if answer.reason is None:
        successes = {**telemetry.last_success_s, answer.source: answer.taken_s}
        return replace(telemetry, answers=answers, last_success_s=successes)
    counted = (answer.source, answer.reason)
    failures = {**telemetry.failures, counted: telemetry.failures.get(counted, 0) + 1}
    return replace(telemetry, answers=answers, failures=failures)


def paused(telemetry: Telemetry, pause_s: float) -> Telemetry:
    """Add a pause of the machine, for which the monotonic clock stood still, to the readings' age.

    What CUDA lists is of the hardware and no older for it.
    """
    answers = {
        name: answer
        if answer.level == SEES_A_GPU
        else replace(answer, taken_mono_s=answer.taken_mono_s - pause_s)
        for name, answer in telemetry.answers.items()
    }
    return replace(telemetry, answers=answers)


def ranked(telemetry: Telemetry) -> tuple[Answer, ...]:
    """Return the last answers, the best source first."""
    answers = telemetry.answers.values()
    return tuple(sorted(answers, key=lambda answer: (-answer.level, answer.source)))


def current(telemetry: Telemetry, now_mono_s: float) -> tuple[Reading, ...]:
    """Return one reading for each field of each GPU and of the machine, as it is now.

    The best source with a value gives it. Where none has one, the best source that has the field
    at all says why; a value that is too old is ``Absent.STALE``.
    """
    return _merged(telemetry, *(answer.holds(now_mono_s) for answer in ranked(telemetry)))


@memo
def _merged(telemetry: Telemetry, *holding: bool) -> tuple[Reading, ...]:
    """Merge the answers; ``holding`` has for each of ``ranked`` whether it is not too old."""
    best: dict[tuple[int | None, str], Reading] = {}
    for answer, fresh in zip(ranked(telemetry), holding, strict=True):
        for reading in answer.readings:
            key = (reading.gpu, reading.field)
            if key in best and not isinstance(best[key].value, Absent):
                continue
            now = reading if fresh or isinstance(reading.value, Absent) else _stale(reading)
            if key not in best or not isinstance(now.value, Absent):
                best[key] = now
    return tuple(best[key] for key in sorted(best, key=_order))


def of_machine(telemetry: Telemetry, name: str, now_mono_s: float) -> str | None:
    """Return a text of the whole machine, such as ``driver_version``; None for a reason."""
    for reading in current(telemetry, now_mono_s):
        if (reading.gpu, reading.field) == (None, name) and type(reading.value) is str:
            return reading.value
    return None


def level(telemetry: Telemetry, now_mono_s: float) -> int:
    """Return the level of the best source that gives a value now, 0 for none."""
    return max(
        (
            answer.level
            for answer in telemetry.answers.values()
            if answer.holds(now_mono_s) and _has_gpu(answer)
        ),
        default=0,
    )


def _has_gpu(answer: Answer) -> bool:
    """Return whether an answer has a reading of a GPU, or that the machine has one."""
    return any(
        not isinstance(reading.value, Absent)
        and (reading.gpu is not None or (reading.field, reading.value) == ("exposed", "yes"))
        for reading in answer.readings
    )


def _stale(reading: Reading) -> Reading:
    return replace(reading, value=Absent.STALE, detail=f"the last answer of {reading.source}")


def _order(key: tuple[int | None, str]) -> tuple[int, str]:
    gpu, name = key
    return (-1 if gpu is None else gpu, name)
