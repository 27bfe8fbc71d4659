"""What the telemetry sources said, and what of it holds now: merged field by field, by rank.

A source is NVML, one of the nvidia-smi programs, CUDA, the device of WSL. Each says something or
why not; the best one that has a value for a field gives it. Nothing outlives the answer it came
with: the next answer of its source takes its place, good or bad, and one that got too old is stale.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from gpud.core.fields import FIELDS, LONGEST_TEXT, plausible
from gpud.core.gpus import MOST_KNOWN
from gpud.core.sample import Absent, Reading
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LEVELS: Final = ("nothing", "dxg", "cuda", "nvidia_smi", "nvidia_smi_exe", "nvml")
"""The number behind ``gpud_telemetry_level`` is the place here of the best source that answers."""

NAMES: Final = {
    "nvml": "NVML",
    "nvidia_smi_exe": "nvidia-smi.exe",
    "nvidia_smi": "nvidia-smi",
    "cuda": "CUDA",
    "dxg": "/dev/dxg",
}
"""How people call the sources."""

SEES_A_GPU: Final = 2
"""From this level on, a source knows the GPU itself and not only that there may be one."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one source said in one collection: readings, or the ``reason`` why there are none.

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
        """Say whether this is neither a failure nor too old."""
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


def impossible(readings: Iterable[Reading], source: str) -> str | None:
    """Name the first reading that ``source`` cannot have made, None where there is none.

    What comes from another process may be anything: a field nobody knows or of another owner, a
    GPU that cannot be, a value its field cannot have, another source's name, one field twice.
    """
    seen = set[tuple[int | None, str]]()
    for reading in readings:
        key, known = (reading.gpu, reading.field), FIELDS.get(reading.field)
        gpu = "the machine" if reading.gpu is None else f"GPU {reading.gpu}"
        words = f"{escaped(reading.field[:LONGEST_TEXT])} of {gpu}"
        if known is None:
            return f"{words}: there is no such field"
        if known.machine is not (reading.gpu is None) or not 0 <= (reading.gpu or 0) < MOST_KNOWN:
            return f"{words}: it has no such field"
        if reading.source != source:
            return f"{words}: told by {escaped(reading.source[:LONGEST_TEXT])}, not by {source}"
        if key in seen:
            return f"{words}: told twice"
        if not _possible(reading):
            return f"{words}: {escaped(str(reading.value)[:LONGEST_TEXT])} cannot be its value"
        seen.add(key)
    return None


def _possible(reading: Reading) -> bool:
    value = reading.value
    if isinstance(value, Absent):
        return True
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return False
    return not isinstance(plausible(reading.field, value), Absent)


def with_answer(telemetry: Telemetry, answer: Answer) -> Telemetry:
    """Put an answer in the place of its source's last one, and count it."""
    answers = {**telemetry.answers, answer.source: answer}
    if answer.reason is None:
        said = {**telemetry.last_success_s, answer.source: answer.taken_s}
        return replace(telemetry, answers=answers, last_success_s=said)
    counted = (answer.source, answer.reason)
    failures = {**telemetry.failures, counted: telemetry.failures.get(counted, 0) + 1}
    return replace(telemetry, answers=answers, failures=failures)


def paused(telemetry: Telemetry, pause_s: float) -> Telemetry:
    """Add a pause of the machine, for which the monotonic clock stood still, to the readings' age.

    What CUDA tells is of the hardware and no older for it.
    """
    answers = {
        name: answer
        if answer.level == SEES_A_GPU
        else replace(answer, taken_mono_s=answer.taken_mono_s - pause_s)
        for name, answer in telemetry.answers.items()
    }
    return replace(telemetry, answers=answers)


def ranked(telemetry: Telemetry) -> tuple[Answer, ...]:
    """Give the last answers, the best source first."""
    return tuple(
        sorted(telemetry.answers.values(), key=lambda answer: (-answer.level, answer.source))
    )


def current(telemetry: Telemetry, now_mono_s: float) -> tuple[Reading, ...]:
    """Give one reading for each field of each GPU and of the machine, as it is known now.

    The best source with a value gives it. Where none has one, the best source that knows the field
    at all says why; what was there and is too old is ``Absent.STALE``.
    """
    best: dict[tuple[int | None, str], Reading] = {}
    for answer in ranked(telemetry):
        fresh = answer.holds(now_mono_s)
        for reading in answer.readings:
            key = (reading.gpu, reading.field)
            before = best.get(key)
            if before is not None and not isinstance(before.value, Absent):
                continue
            said = reading if fresh or isinstance(reading.value, Absent) else _stale(reading)
            if before is None or not isinstance(said.value, Absent):
                best[key] = said
    return tuple(best[key] for key in sorted(best, key=_order))


def level(telemetry: Telemetry, now_mono_s: float) -> int:
    """Give the level of the best source that gives a value now, 0 for none."""
    return max(
        (
            answer.level
            for answer in telemetry.answers.values()
            if answer.holds(now_mono_s) and _tells(answer)
        ),
        default=0,
    )


def _tells(answer: Answer) -> bool:
    """Say whether there is a GPU in an answer; one that is not exposed is none."""
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
