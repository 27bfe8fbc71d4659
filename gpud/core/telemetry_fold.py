"""How an answer of a telemetry source enters a snapshot, and what it means for ``nvml``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpud.core import advice, gpus, smi_exit, telemetry
from gpud.core.advice import Situation
from gpud.core.health import Level
from gpud.core.presence import may_be_nothing, with_presence
from gpud.core.sample import Absent
from gpud.core.snapshot import Snapshot, with_health, with_since_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpud.core.gpus import KnownGpu
    from gpud.core.sample import Reading
    from gpud.core.telemetry import Answer

NVML = "nvml"
OF_THE_CARD: Final = "told of the whole card, and this GPU is an instance of it"
SHARED_OUT: Final = frozenset(
    {
        "name",
        "memory_total_bytes",
        "memory_used_bytes",
        "memory_free_bytes",
        "memory_reserved_bytes",
    }
)
"""What a MIG instance has of its own."""
NAMED: Final = 8
"""Fields of one GPU that failed for one reason and are named one by one."""


def with_answer(snapshot: Snapshot, answer: Answer, now_s: float) -> Snapshot:
    """Take in what one source said; its GPUs get the numbers they have here."""
    known, readings = gpus.with_readings(snapshot.gpus, answer.readings)
    numbered = replace(answer, readings=_of_instances(known, readings))
    after = replace(
        snapshot, gpus=known, telemetry=telemetry.with_answer(snapshot.telemetry, numbered)
    )
    judged = _with_health(after, now_s, answer.taken_mono_s + (answer.duration_s or 0.0))
    return with_since_of(with_presence(judged, now_s), NVML, snapshot.health.get(NVML))


def _of_instances(
    known: Mapping[str, KnownGpu], readings: Sequence[Reading]
) -> tuple[Reading, ...]:
    """Leave out what is told of a whole card where the number is that of a MIG instance.

    Heat, power and clocks are the card's, and the instance's too; memory is shared out.
    """
    instances = {gpu.number for uuid, gpu in known.items() if uuid.startswith(gpus.MIG)}
    told = {r.gpu for r in readings if r.field == "uuid" and str(r.value).startswith(gpus.MIG)}
    return tuple(
        replace(reading, value=Absent.UNSUPPORTED, detail=OF_THE_CARD)
        if reading.gpu in instances - told and reading.field in SHARED_OUT
        else reading
        for reading in readings
    )


def _with_health(snapshot: Snapshot, now_s: float, now_mono_s: float) -> Snapshot:
    """Judge NVML by its last answer: without it the numbers come from worse places, or nowhere."""
    said = snapshot.telemetry.answers.get(NVML)
    if said is None:
        return snapshot
    if said.reason is None:
        words = _failed(said.readings)
        if words is None:
            return with_health(snapshot, NVML, Level.OK, now_s)
        return with_health(
            snapshot,
            NVML,
            Level.DEGRADED,
            now_s,
            reason="fields_failed",
            detail=words,
            fix=advice.words(Situation.TELEMETRY_SILENT, advice.of(snapshot.platform)),
        )
    if NVML not in snapshot.health and may_be_nothing(snapshot):
        return snapshot  # in a moment it is known whether there is a GPU to speak of
    tie = smi_exit.blamed(snapshot.telemetry, snapshot.inventory, now_mono_s)
    helped = telemetry.level(snapshot.telemetry, now_mono_s) >= telemetry.SEES_A_GPU
    return with_health(
        snapshot,
        NVML,
        Level.DEGRADED if helped else Level.FAILED,
        now_s,
        reason=said.reason,
        detail=said.detail if tie is None else f"{said.detail}; {tie.detail}",
        fix=said.fix if tie is None else tie.fix or said.fix,
    )


def _failed(readings: Iterable[Reading]) -> str | None:
    """Name the fields that failed; many that failed for one reason are that reason, told once."""
    why: dict[tuple[int | None, str | None], list[str]] = {}
    for reading in readings:
        if reading.value is Absent.FAILED:
            why.setdefault((reading.gpu, reading.detail), []).append(reading.field)
    few = {name for names in why.values() if len(names) <= NAMED for name in names}
    parts = [f"NVML failed to give {', '.join(sorted(few))}"] if few else []
    parts += [
        f"{'NVML' if gpu is None else f'GPU {gpu}'}: {detail or 'failed'} ({len(names)} fields)"
        for (gpu, detail), names in why.items()
        if len(names) > NAMED
    ]
    return "; ".join(parts) or None
