"""Telemetry in the snapshot: the answer of each source, with the health of ``nvml``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpud.agent.state import gpus
from gpud.agent.telemetry import answers
from gpud.core import advice, telemetry
from gpud.core.advice import Situation
from gpud.core.health import Health, Level
from gpud.core.sample import Absent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpud.agent.state.snapshot import Snapshot
    from gpud.agent.telemetry.answers import Answer, Telemetry
    from gpud.core.sample import Reading
    from gpud.document.machine import ListedGpu

NVML = "nvml"
UNREAD: Final = "temperature, power and clocks are missing, speed is measured"
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

WINDOWS_DRIVER: Final = frozenset(
    {"no_device", "driver_not_loaded", "gpu_is_lost", "driver_mismatch", "interrupt_trouble"}
)
"""Reasons of nvidia-smi.exe with which Windows itself does not reach the GPU."""
NOT_BY_A_RESTART: Final = frozenset({"blocked_by_the_operating_system", "driver_mismatch"})
"""Reasons of NVML that a restart of WSL does not mend: Windows keeps the GPU in TCC mode, and its
own nvidia-smi.exe answers all the while, or a stray library shadows WSL's."""
RESTART_WSL: Final = (
    "run `wsl --shutdown` in Windows and open the distribution again; if it stays, `wsl --update`"
)


def with_answer(snapshot: Snapshot, answer: Answer) -> tuple[Mapping[str, ListedGpu], Telemetry]:
    """Take in the answer of one source; its GPUs get the numbers they have here."""
    numbers, readings = gpus.with_readings(snapshot.gpus, answer.readings)
    numbered = replace(answer, readings=_of_instances(numbers, readings))
    return numbers, answers.with_answer(snapshot.telemetry, numbered)


def with_start(before: Telemetry, source: str) -> Telemetry:
    """Count a program that a source started, such as nvidia-smi, which is not free."""
    return replace(before, starts={**before.starts, source: before.starts.get(source, 0) + 1})


def _of_instances(
    numbers: Mapping[str, ListedGpu], readings: Sequence[Reading]
) -> tuple[Reading, ...]:
    """Drop values of a whole card where the number is that of a MIG instance.

    Heat, power and clocks are the card's, and the instance's too; memory is shared out.
    """
    instances = {gpu.number for uuid, gpu in numbers.items() if uuid.startswith(gpus.MIG)}
    own = {r.gpu for r in readings if r.field == "uuid" and str(r.value).startswith(gpus.MIG)}
    return tuple(
        replace(reading, value=Absent.UNSUPPORTED, detail=OF_THE_CARD)
        if reading.gpu in instances - own and reading.field in SHARED_OUT
        else reading
        for reading in readings
    )


def nvml(snapshot: Snapshot, nothing: Health | None) -> Health | None:
    """Return the health of ``nvml`` by its last answer: other sources are worse, or give nothing.

    With no GPU to expect (``nothing``) it has no reason to fail.
    """
    answer = snapshot.telemetry.answers.get(NVML)
    if answer is None:
        return None
    health = _of_answer(snapshot, answer)
    return health if health.level is Level.OK or nothing is None else nothing


def _of_answer(snapshot: Snapshot, nvml: Answer) -> Health:
    if nvml.reason is None:
        if not (words := _failed(nvml.readings)):
            return Health(Level.OK)
        silent = advice.words(Situation.TELEMETRY_SILENT, advice.of(snapshot.machine.platform))
        return Health(Level.DEGRADED, "fields_failed", words, silent)
    latest = snapshot.telemetry.answers.values()
    now_mono_s = max(answer.taken_mono_s + (answer.duration_s or 0.0) for answer in latest)
    detail, fix = _cause(snapshot, nvml)
    best = answers.level(snapshot.telemetry, now_mono_s)
    if telemetry.LEVELS[best] == "cuda":
        detail = f"{UNREAD}: {detail or nvml.reason}"
    level = Level.DEGRADED if best >= telemetry.SEES_A_GPU else Level.FAILED
    return Health(level, nvml.reason, detail, fix)


def _cause(snapshot: Snapshot, nvml: Answer) -> tuple[str | None, str | None]:
    """Return detail and fix of a silent NVML, and tell a dead driver from a dead way to it.

    Windows' nvidia-smi.exe does not go through WSL: where NVML and CUDA are both silent, what it
    said since NVML's last answer tells which it is.
    """
    windows = snapshot.telemetry.answers.get("nvidia_smi_exe")
    cuda = None if snapshot.measure.inventory is None else snapshot.measure.inventory.failure
    answered_s = snapshot.telemetry.last_success_s.get(NVML, 0.0)
    if cuda is None or windows is None or windows.taken_s < answered_s:
        return nvml.detail, nvml.fix
    silent = (
        f"{nvml.detail}; neither NVML ({nvml.reason}) nor CUDA ({cuda.reason.value}) answers in WSL"
    )
    if windows.reason is None:
        detail = (
            f"{silent}, and Windows' own nvidia-smi.exe does: the driver is well, WSL's way to it "
            "is not"
        )
        return detail, nvml.fix if nvml.reason in NOT_BY_A_RESTART else RESTART_WSL
    if windows.reason in WINDOWS_DRIVER:
        detail = f"{silent}, nor does Windows' own nvidia-smi.exe ({windows.reason}): it is not WSL"
        return detail, windows.fix or nvml.fix
    return nvml.detail, nvml.fix


def _failed(readings: Iterable[Reading]) -> str:
    """Name the fields that failed, by GPU and reason; many of one reason are counted."""
    failed: dict[tuple[int | None, str | None], list[str]] = {}
    for reading in readings:
        if reading.value is Absent.FAILED:
            failed.setdefault((reading.gpu, reading.detail), []).append(reading.field)
    parts = []
    for (gpu, reason), fields in failed.items():
        place = "NVML" if gpu is None else f"GPU {gpu}"
        names = ", ".join(sorted(fields)) if len(fields) <= NAMED else f"{len(fields)} fields"
        parts.append(f"{place}: {reason or 'failed'} ({names})")
    return "; ".join(parts)
