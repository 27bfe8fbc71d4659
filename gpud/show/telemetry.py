"""Telemetry over time: a low chart for each field of a GPU, in line with that of its speed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.show import model
from gpud.units import place

if TYPE_CHECKING:
    from collections.abc import Iterator

FIELDS: Final = {
    "temperature": "temperature_celsius",
    "power": "power_watts",
    "SM clock": "clock_sm_hertz",
    "memory clock": "clock_memory_hertz",
    "use": "utilization_gpu_ratio",
    "memory": "memory_used_bytes",
}
"""The fields that the history keeps, by what they are called."""
LOW_CLOCKS: Final = frozenset({"idle", "set_clocks", "sync_boost", "display_clocks"})
"""Reasons for low clocks that slow nothing."""


def gpus(shown: model.Input) -> set[int]:
    """Return the numbers of the GPUs that have telemetry now."""
    listed = {gpu.number for gpu in shown.document.gpus.values()}
    return {gpu for gpu in listed if any(charts(shown, gpu))}


def charts(shown: model.Input, gpu: int | None) -> Iterator[model.Chart]:
    """Yield a chart of each field that has a value now."""
    present = {
        reading.field
        for reading in shown.document.telemetry.readings
        if reading.gpu == gpu and isinstance(reading.value, int | float)
    }
    for words, field in FIELDS.items():
        if field in present:
            name = f"telemetry-{model.slug(place(gpu))}-{model.slug(words)}"
            title = model.Styled(words, "strong")
            data = {"gpu": shown.uuid(gpu), "field": field, "calm": " ".join(sorted(LOW_CLOCKS))}
            yield model.Chart(name, title, "telemetry", data, ())
