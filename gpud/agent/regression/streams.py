"""Series of figures that compare with each other, each with a detector of its own."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from gpud.agent.regression.detector import Direction, Observation
from gpud.core.errors import WireError
from gpud.core.sample import Backend, StreamKey, Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpud.core.sample import Condition, Flag, Inventory, ProbeSpec, RunReport

JUDGED: Final = {
    unit: Direction.of(unit)
    for unit in (Unit.SECONDS, Unit.BYTES_PER_SECOND, Unit.FLOPS_PER_SECOND)
}
"""Which way is good. A crossover is not judged: it moves in steps, and with the CPU as well."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What judging needs of a finished run: of one that ends now, or one that the history gives.

    Units: ``finished_s`` is Unix time, the medians are in the units beside them. A failed run has
    none, and one of a GPU that nobody could name has no ``gpu`` although its backend is CUDA. The
    medians are in the order of the modes.
    """

    probe: str
    backend: str
    gpu: str | None
    finished_s: float
    medians: tuple[tuple[str, Unit, float], ...] = ()  # mode, unit, median
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    flags: tuple[Flag, ...] = ()

    @property
    def version(self) -> int:
        """That of the probe's method; runs of before it was stored were of the first."""
        told = self.conditions.get("probe_version")
        return told if type(told) is int else 1


def figures(report: RunReport, finished_s: float, flags: Iterable[Flag]) -> Figures:
    """Take out of a report what judging needs."""
    good = report.failure is None
    return Figures(
        report.probe,
        report.backend,
        report.device.uuid if report.device else None,
        finished_s,
        tuple(sorted((one.mode, one.unit, one.median) for one in report.samples)) if good else (),
        report.conditions,
        tuple(flags),
    )


def observations(run: Figures, context: str) -> tuple[tuple[StreamKey, Unit, Observation], ...]:
    """Give what a run adds to which streams; nothing for one that brought no figures.

    ``context`` names what its figures compare with. Mains is where no battery is known of.
    """
    if run.gpu is None and run.backend != Backend.CPU:
        return ()  # of which GPU, nobody knows
    on_battery = run.conditions.get("after.ac") is False
    return tuple(
        (
            StreamKey(run.gpu, run.probe, mode, run.version, on_battery),
            unit,
            Observation(run.finished_s, median, context, run.flags),
        )
        for mode, unit, median in run.medians
        if unit in JUDGED
    )


def measurable(key: StreamKey, specs: tuple[ProbeSpec, ...], inventory: Inventory | None) -> bool:
    """Say whether a stream can bring samples: its probe is run, in this version, its GPU is here.

    What is not known yet, such as which GPUs there are, is taken for possible.
    """
    versions = {spec.name: spec.version for spec in specs}
    if versions and versions.get(key.probe) != key.version:
        return False
    if key.gpu is None or inventory is None or inventory.failure is not None:
        return True
    return key.gpu in {device.uuid for device in inventory.devices}


_KEY: Final = msgspec.json.Decoder(tuple[str | None, str, str, int, bool])


def named(key: StreamKey) -> str:
    """Write a key as the history does: `["GPU-...","launch","submit",1,false]`."""
    return msgspec.json.encode(astuple(key)).decode()


def key(text: str | bytes) -> StreamKey:
    """Read back what ``named`` wrote. Errors: ``WireError`` for anything else."""
    try:
        return StreamKey(*_KEY.decode(text))
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise WireError(f"{text[:80]!r} names no stream: {error}") from error
