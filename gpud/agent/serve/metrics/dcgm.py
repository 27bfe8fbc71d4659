"""The names of dcgm-exporter's default counters, for dashboards that exist: opt in.

Names, labels and units are as that exporter writes them, base units or not. Only what NVML or
nvidia-smi has read is here: nothing is computed from something else to fill a name.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily, UnknownMetricFamily

from gpud.agent.serve.metrics.families import clean
from gpud.agent.serve.metrics.gpus import LARGEST, numbers, words_of
from gpud.agent.telemetry import codes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from gpud.agent.serve.metrics.gpus import Numbers
    from gpud.core.sample import Reading

NAME: Final = "dcgm"
"""As ``[export] compat`` names it."""

PREFIX: Final = "DCGM_FI_"

SOURCES: Final = frozenset({"nvml", "nvidia_smi_exe"})
"""Whoever else tells something of a GPU tells what was true at another time, or for another use."""

XID: Final = "DCGM_FI_DEV_XID_ERRORS"


class DcgmRow(NamedTuple):
    """One name: the field behind it, and what its base unit is multiplied by."""

    name: str
    field: str
    factor: float
    text: str


_TABLE: Final = """\
DEV_SM_CLOCK clock_sm_hertz 1e-6 SM clock, MHz.
DEV_MEM_CLOCK clock_memory_hertz 1e-6 Memory clock, MHz.
DEV_GPU_TEMP temperature_celsius 1 GPU temperature, C.
DEV_MEMORY_TEMP temperature_memory_celsius 1 Memory temperature, C.
DEV_POWER_USAGE power_watts 1 Power draw, W.
DEV_TOTAL_ENERGY_CONSUMPTION energy_joules_total 1e3 Energy since the driver was loaded, mJ.
DEV_PCIE_REPLAY_COUNTER pcie_replays_total 1 PCIe retries.
DEV_GPU_UTIL utilization_gpu_ratio 100 GPU utilization, %.
DEV_MEM_COPY_UTIL utilization_memory_ratio 100 Memory utilization, %.
DEV_ENC_UTIL utilization_encoder_ratio 100 Encoder utilization, %.
DEV_DEC_UTIL utilization_decoder_ratio 100 Decoder utilization, %.
DEV_XID_ERRORS xid_last 1 The last Xid, 0 for none.
DEV_POWER_VIOLATION power_violation_seconds_total 1e9 Held by power, ns.
DEV_THERMAL_VIOLATION thermal_violation_seconds_total 1e9 Held by temperature, ns.
DEV_FB_FREE memory_free_bytes 9.5367431640625e-07 Free memory, MiB.
DEV_FB_USED memory_used_bytes 9.5367431640625e-07 Used memory, MiB.
DEV_FB_RESERVED memory_reserved_bytes 9.5367431640625e-07 Reserved memory, MiB.
DEV_UNCORRECTABLE_REMAPPED_ROWS remapped_rows_uncorrectable_total 1 Rows remapped for \
uncorrectable errors.
DEV_CORRECTABLE_REMAPPED_ROWS remapped_rows_correctable_total 1 Rows remapped for correctable \
errors.
DEV_ROW_REMAP_FAILURE remapped_rows_failed 1 1 when remapping failed.
PROF_PCIE_TX_BYTES pcie_sent_bytes_per_second 1 Sent over PCIe, B/s.
PROF_PCIE_RX_BYTES pcie_received_bytes_per_second 1 Received over PCIe, B/s.
"""
"""Name, field, factor (MiB: 2**-20) and help."""

ROWS: Final = tuple(
    DcgmRow(f"{PREFIX}{name}", field, float(factor), text)
    for name, field, factor, text in (line.split(" ", 3) for line in _TABLE.splitlines())
)
FRACTIONS: Final = frozenset({"DCGM_FI_DEV_POWER_USAGE"})
"""Of all other names DCGM has whole numbers, and cuts off what is more."""

LABELS: Final = (
    ("UUID", "uuid"),
    ("pci_bus_id", "pci_bus_id"),
    ("modelName", "name"),
    ("GPU_I_PROFILE", "mig"),
    ("DCGM_FI_DRIVER_VERSION", "driver_version"),
)
"""DCGM's name of a label, and ours of what it says."""


def families(
    readings: Iterable[Reading],
    gpus: Mapping[int, Mapping[str, str]],
    *,
    hostname: dict[str, str],
) -> Iterator[Metric]:
    """Yield every name for which something was read. ``hostname``: one label, under any name.

    A counter is of unknown type here: OpenMetrics has none without ``_total``. Whoever writes the
    older text format calls it a counter again (``exposition``).
    """
    read = [reading for reading in readings if reading.source in SOURCES]
    present = numbers(read)
    # CUDA's UUID of a MIG instance is its own, and DCGM's label that of the card.
    uuids = words_of(read).get("uuid", {})
    cards = {gpu: {"UUID": clean(uuid)} for gpu, uuid in uuids.items()}
    shown = {gpu for values in present.values() for gpu in values}
    labels = {gpu: _labels(gpu, gpus.get(gpu, {})) | cards.get(gpu, {}) | hostname for gpu in shown}
    for row in ROWS:
        counts = row.field.endswith("_total")
        family = (UnknownMetricFamily if counts else GaugeMetricFamily)(row.name, row.text)
        for gpu, value in sorted(_of(row, present).items()):
            of_this = labels[gpu]
            if row.name == XID:
                of_this = of_this | {
                    "err_code": str(int(value)),
                    "err_msg": codes.XIDS.get(int(value), "Unknown Error"),
                }
            family.add_sample(row.name, of_this, value)
        yield family


def _of(row: DcgmRow, present: Numbers) -> dict[int, float]:
    """Give the values of one name by GPU, in its unit; the sixth decimal is noise of floats."""
    return {
        gpu: scaled if row.name in FRACTIONS else float(math.floor(scaled))
        for gpu, value in present.get(row.field, {}).items()
        if (scaled := round(value * row.factor, 6)) < LARGEST
    }


def _labels(gpu: int, texts: Mapping[str, str]) -> dict[str, str]:
    named = {name: texts[ours] for name, ours in LABELS if ours in texts}
    return {"gpu": str(gpu), "device": f"nvidia{gpu}"} | named
