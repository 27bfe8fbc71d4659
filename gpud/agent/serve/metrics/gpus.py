"""GPUs as telemetry sees them: identity, readings, and the state of the sources themselves.

Numbers come by one table, in which a field is one line. A word is one series of 1 or 0 for each of
its values; an unknown word is skipped, and what is not known is absent.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from gpud.agent.serve.metrics.families import clean, filled
from gpud.agent.telemetry.answers import level
from gpud.agent.telemetry.fields import FIELDS, THROTTLE_REASONS, UNKNOWN_REASON
from gpud.core import telemetry
from gpud.core.sample import Absent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from gpud.agent.serve.metrics.families import Families
    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.clock import Instant
    from gpud.core.sample import Reading
    from gpud.core.settings import Settings

Numbers: TypeAlias = "Mapping[str, Mapping[int, float]]"
"""Present values by field, then by GPU."""
Words: TypeAlias = "Mapping[str, Mapping[int | None, str]]"
"""Present texts by field, then by GPU; None: of the machine."""

OF_THE_MACHINE: Final = ("driver_version", "cuda_version", "nvml_version")
"""What each GPU's identity repeats, so that one join is enough."""
OF_THE_DRIVER: Final = (*OF_THE_MACHINE, "driver_folder")
OF_A_GPU: Final = ("uuid", "name", "compute_capability", "pci_bus_id", "vbios_version")
DOMAIN_DIGITS: Final = 8
LARGEST: Final = float(2**53)
"""No reading comes near it, every sentinel lies beyond, and a double is no longer exact there."""
SWITCHES: Final = {"ecc_mode": "gpud_gpu_ecc_enabled", "mig_mode": "gpud_gpu_mig_enabled"}
POSITIONS: Final = {"enabled": 1.0, "disabled": 0.0}
EXPOSED: Final = ("yes", "no", "disabled")
PROGRAMS: Final = ("nvidia_smi_exe",)
"""Sources that start a program, and are limited in it: that they started none is worth a line."""
_XID: Final = re.compile(r"([1-9][0-9]{0,4}):([0-9]{1,15})")
"""Code and count: a double holds so many digits exactly."""


class Family(NamedTuple):
    """A family: ``fields`` gives each field its value of ``label``; without one there is no label.

    ``function`` is NVML's.
    """

    name: str
    function: str
    fields: Mapping[str, str]
    label: str = ""


def _field(field: str, function: str, name: str = "") -> Family:
    """Return the family of one field, whose name it has unless another one is given."""
    return Family(f"gpud_gpu_{name or field}", function, {field: ""})


FAMILIES: Final = (
    _field("memory_total_bytes", "nvmlDeviceGetMemoryInfo"),
    _field("memory_used_bytes", "nvmlDeviceGetMemoryInfo"),
    _field("memory_free_bytes", "nvmlDeviceGetMemoryInfo"),
    _field("memory_reserved_bytes", "nvmlDeviceGetMemoryInfo_v2"),
    Family(
        "gpud_gpu_utilization_ratio",
        "nvmlDeviceGetUtilizationRates and its like for encoder and decoder, share of time busy",
        {f"utilization_{unit}_ratio": unit for unit in ("gpu", "memory", "encoder", "decoder")},
        "unit",
    ),
    _field("temperature_celsius", "nvmlDeviceGetTemperature"),
    _field("temperature_memory_celsius", "nvmlDeviceGetFieldValues", "memory_temperature_celsius"),
    Family(
        "gpud_gpu_temperature_threshold_celsius",
        "nvmlDeviceGetTemperatureThreshold",
        {"temperature_slowdown_celsius": "slowdown", "temperature_shutdown_celsius": "shutdown"},
        "threshold",
    ),
    _field("power_watts", "nvmlDeviceGetPowerUsage"),
    _field("power_limit_watts", "nvmlDeviceGetEnforcedPowerLimit"),
    _field("energy_joules_total", "nvmlDeviceGetTotalEnergyConsumption"),
    Family(
        "gpud_gpu_clock_hertz",
        "nvmlDeviceGetClockInfo",
        {f"clock_{clock}_hertz": clock for clock in ("graphics", "sm", "memory", "video")},
        "clock",
    ),
    Family(
        "gpud_gpu_clock_max_hertz",
        "nvmlDeviceGetMaxClockInfo",
        {f"clock_{clock}_max_hertz": clock for clock in ("graphics", "sm", "memory", "video")},
        "clock",
    ),
    _field("pstate", "nvmlDeviceGetPerformanceState, 0 is the fastest"),
    Family(
        "gpud_gpu_violation_seconds_total",
        "nvmlDeviceGetViolationStatus, time below the wanted clocks",
        {f"{cause}_violation_seconds_total": cause for cause in ("power", "thermal")},
        "cause",
    ),
    _field("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
    _field("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
    _field("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth, lanes"),
    _field("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth, lanes"),
    _field("pcie_replays_total", "nvmlDeviceGetPcieReplayCounter"),
    _field("pcie_sent_bytes_per_second", "nvmlDeviceGetPcieThroughput, by the GPU, over 20 ms"),
    _field("pcie_received_bytes_per_second", "nvmlDeviceGetPcieThroughput, by the GPU, over 20 ms"),
    _field("fan_ratio", "nvmlDeviceGetFanSpeed, of the rated speed, may exceed 1"),
    _field("ecc_corrected_total", "nvmlDeviceGetTotalEccErrors", "ecc_corrected_errors_total"),
    _field("ecc_uncorrected_total", "nvmlDeviceGetTotalEccErrors", "ecc_uncorrected_errors_total"),
    Family(
        "gpud_gpu_remapped_rows_total",
        "nvmlDeviceGetRemappedRows, memory rows by the errors that took them out of use",
        {f"remapped_rows_{cause}_total": cause for cause in ("correctable", "uncorrectable")},
        "cause",
    ),
    _field(
        "remapped_rows_pending",
        "nvmlDeviceGetRemappedRows, 1 while one waits for a reset of the GPU",
    ),
    _field("remapped_rows_failed", "nvmlDeviceGetRemappedRows, 1 when one could not be remapped"),
    _field(
        "processes",
        "nvmlDeviceGetComputeRunningProcesses and its like for graphics, each process once",
    ),
    _field("xid_last", "nvmlEventSetWait, code of the last Xid, 0 for none yet"),
)


def words_of(readings: Iterable[Reading]) -> Words:
    """Sort the texts by field."""
    words: dict[str, dict[int | None, str]] = {}
    for reading in readings:
        if type(reading.value) is str:  # a reason is a str too
            words.setdefault(reading.field, {}).setdefault(reading.gpu, reading.value)
    return words


def numbers(readings: Iterable[Reading]) -> Numbers:
    """Sort the numbers of GPUs by field; what is implausible is skipped."""
    values: dict[str, dict[int, float]] = {}
    for reading in readings:
        value = reading.value
        if reading.gpu is None or not isinstance(value, int | float) or not 0 <= value < LARGEST:
            continue
        values.setdefault(reading.field, {}).setdefault(reading.gpu, float(value))
    return values


def identities(snapshot: Snapshot, words: Words) -> dict[int, dict[str, str]]:
    """Give what is known of each GPU, by number: CUDA's word first, then the readings'.

    A GPU that no reading names any more stays for as long as CUDA lists it.
    """
    machine = {
        field: words[field][None] for field in OF_THE_MACHINE if None in words.get(field, {})
    }
    gpus: dict[int, dict[str, str]] = {}
    for field in OF_A_GPU:
        for gpu, text in words.get(field, {}).items():
            if gpu is not None:
                gpus.setdefault(gpu, {})[field] = text
    gpus = {gpu: texts for gpu, texts in gpus.items() if texts.keys() & {"name", "uuid"}}
    inventory = snapshot.measure.inventory
    if inventory is not None and inventory.cuda_version:
        machine["cuda_version"] = inventory.cuda_version
    for device in () if inventory is None else inventory.devices:
        of_cuda = {
            "uuid": device.uuid,
            "name": device.name,
            "compute_capability": device.compute_capability,
            "pci_bus_id": device.pci_bus_id,
        }
        if device.mig is not None:
            of_cuda["mig"] = device.mig
        if device.mps:
            of_cuda["mps"] = "true"
        number = snapshot.gpus[device.uuid].number
        gpus[number] = gpus.get(number, {}) | {key: text for key, text in of_cuda.items() if text}
    for texts in gpus.values():
        if "pci_bus_id" in texts:
            texts["pci_bus_id"] = bus_id(texts["pci_bus_id"])
    return {
        gpu: {key: clean(text) for key, text in (machine | texts).items()}
        for gpu, texts in sorted(gpus.items())
    }


def bus_id(text: str) -> str:
    """Write a PCI address as NVML does: CUDA's domain has four digits, in lower case."""
    domain, colon, rest = text.partition(":")
    return f"{domain.rjust(DOMAIN_DIGITS, '0')}{colon}{rest}".upper()


def identity(gpus: Mapping[int, Mapping[str, str]], words: Words) -> Families:
    """Yield each GPU's identity, and the driver's, which is there without a GPU too."""
    yield "gpud_gpu_info", {str(gpu): dict(labels) for gpu, labels in gpus.items()}
    named = [field for field in OF_THE_DRIVER if None in words.get(field, {})]
    driver = {field: clean(words[field][None]) for field in named}
    yield "gpud_driver_info", {(): driver} if driver else {}


def numeric(values: Numbers) -> Iterator[Metric]:
    """Yield every family of the table."""
    for row in FAMILIES:
        rows = {
            (str(gpu), label) if label else (str(gpu),): value
            for field, label in row.fields.items()
            for gpu, value in sorted(values.get(field, {}).items())
        }
        labels = ("gpu", row.label) if row.label else ("gpu",)
        yield filled(row.name, labels, f"NVML {row.function}; may come from another source.", rows)


def states(words: Words) -> Families:
    """Yield the families of words: modes, reasons to throttle, Xids."""
    exposed = words.get("exposed", {}).get(None)
    states = EXPOSED if exposed in EXPOSED else ()
    yield "gpud_gpu_exposed", {state: state == exposed for state in states}
    for field, name in SWITCHES.items():
        positions = _by_gpu(words, field)
        yield name, {gpu: POSITIONS.get(position) for gpu, position in positions.items()}
    reasons = {
        gpu: set(text.split(",")) for gpu, text in _by_gpu(words, "throttle_reasons").items()
    }
    for holding in reasons.values():
        if holding - {"none", *THROTTLE_REASONS}:
            holding.add(UNKNOWN_REASON)
    yield (
        "gpud_gpu_throttle_reason",
        {
            (gpu, reason): reason in holding
            for gpu, holding in reasons.items()
            for reason in (*THROTTLE_REASONS, UNKNOWN_REASON)
        },
    )
    yield (
        "gpud_gpu_xid_errors_total",
        {
            (gpu, str(code)): count
            for gpu, text in _by_gpu(words, "xids").items()
            for code, count in sorted(_xids(text).items())
        },
    )


def sources(snapshot: Snapshot, settings: Settings, now: Instant) -> Families:
    """Yield the state of the telemetry sources; where none is named, of the best one in use."""
    disabled, state = settings.telemetry.disabled, snapshot.telemetry
    usable = [name for name in telemetry.LEVELS[1:] if name not in disabled]
    best = usable[-1] if usable else telemetry.LEVELS[0]
    last_s = state.last_success_s
    yield "gpud_telemetry_last_success_timestamp_seconds", last_s.get(best)
    failures = sum(count for (source, _), count in state.failures.items() if source == best)
    yield "gpud_telemetry_failures_total", failures
    best_level = level(state, now.mono_s) if state.answers else None
    yield "gpud_telemetry_level", best_level
    answers = dict(sorted(state.answers.items()))
    up = {source: answer.holds(now.mono_s) for source, answer in answers.items()}
    yield "gpud_telemetry_source_up", up
    durations = {source: answer.duration_s for source, answer in answers.items()}
    yield "gpud_telemetry_source_duration_seconds", durations
    yield "gpud_telemetry_source_last_success_timestamp_seconds", dict(sorted(last_s.items()))
    yield (
        "gpud_telemetry_source_failures_total",
        {(name, clean(reason)): count for (name, reason), count in sorted(state.failures.items())},
    )
    programs = [name for name in PROGRAMS if name not in disabled]
    yield "gpud_telemetry_program_starts_total", {n: state.starts.get(n, 0) for n in programs}


def fields(readings: Iterable[Reading]) -> Families:
    """Yield where each field comes from, or why it has no value."""
    present, missing = set[tuple[str, str]](), set[tuple[str, str, str]]()
    for reading in readings:
        if reading.field not in FIELDS:
            continue
        if isinstance(reading.value, Absent):
            gpu = "" if reading.gpu is None else str(reading.gpu)
            missing.add((gpu, reading.field, reading.value.value))
        else:
            present.add((reading.field, reading.source))
    yield "gpud_telemetry_source_info", {labels: {} for labels in sorted(present)}
    yield "gpud_telemetry_absent_info", {labels: {} for labels in sorted(missing)}


def _xids(text: str) -> dict[int, int]:
    """Read "79:1,31:2" as the number of errors by code."""
    matches = map(_XID.fullmatch, text.split(","))
    return {int(match[1]): int(match[2]) for match in matches if match}


def _by_gpu(words: Words, field: str) -> dict[str, str]:
    texts = ((gpu, text) for gpu, text in words.get(field, {}).items() if gpu is not None)
    return {str(gpu): text for gpu, text in sorted(texts)}
