"""Types of the API's answers: they are encoded as they are, and described from themselves.

Moments are Unix seconds; a name that ends in ``_s`` and is no moment is a duration in seconds.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from gpud.core.sample import (
    SCHEMA_VERSION,
    Backend,
    Condition,
    Failure,
    Flag,
    Missing,
    Pace,
    Unit,
)
from gpud.document.alerts import AlertReport
from gpud.document.machine import SkipName
from gpud.document.runs import Figures, PointReport


class Problem(msgspec.Struct, frozen=True):
    """Why there is no answer, and what to do. ``parameter``: the one that could not be used."""

    reason: str
    detail: str
    fix: str
    parameter: str | None = None


class Refusal(msgspec.Struct, frozen=True):
    """Every answer that is none."""

    error: Problem
    schema_version: int = SCHEMA_VERSION


class Histogram(msgspec.Struct, frozen=True):
    """The latencies of one run, net of the empty call, sorted into buckets.

    ``counts`` has one entry more than ``upper_bounds_s``: what is above the last. A bound belongs
    to its bucket, and counts are not cumulative. ``total_s`` is the sum of all latencies.
    """

    upper_bounds_s: tuple[float, ...]
    counts: tuple[int, ...]
    total_s: float


class ModeFigures(Figures, frozen=True):
    """One mode of a run, with its distribution where the probe has one."""

    buckets: Histogram | None = None


class ProbeRun(msgspec.Struct, frozen=True):
    """The last run of a probe on one GPU: figures, or a failure and no figures.

    ``gpu`` is the GPU's number and ``uuid`` its name; both are null for the CPU. ``curve`` is the
    crossover's. ``skipped`` is why later runs were left out, null where none was.
    """

    gpu: int | None
    uuid: str | None
    device: str | None
    last_success_s: float | None
    duration_s: float | None
    failure: Failure | None
    missing: tuple[Missing, ...]
    flags: tuple[Flag, ...]
    conditions: dict[str, Condition]
    samples: tuple[ModeFigures, ...]
    curve: tuple[PointReport, ...]
    skipped: SkipName | None


class Probe(msgspec.Struct, frozen=True):
    """A probe that this gpud knows of. It takes part in every ``every``-th round of its pace.

    ``interval_s`` lies between two runs where nothing is in the way; ``last`` has one per GPU.
    """

    name: str
    description: str
    backend: Backend
    pace: Pace
    every: int
    interval_s: float
    unit: Unit
    modes: tuple[str, ...]
    version: int
    budget_s: float
    last: tuple[ProbeRun, ...]


class ProbesAnswer(msgspec.Struct, frozen=True):
    """Every probe with its last run on each GPU. ``refused``: modules that do not load, and why."""

    probes: tuple[Probe, ...]
    refused: dict[str, str]
    schema_version: int = SCHEMA_VERSION


Event = Annotated[
    dict[str, Condition],
    msgspec.Meta(
        description="What happened: its kind and moment, and what there is to say of that kind.",
        extra_json_schema={
            "required": ["kind", "at_s"],
            "properties": {"kind": {"type": "string"}, "at_s": {"type": "number"}},
        },
    ),
]


class EventsAnswer(msgspec.Struct, frozen=True):
    """What happened to driver and machine, newest first. ``more``: the limit left some out."""

    events: list[Event]
    more: bool
    schema_version: int = SCHEMA_VERSION


class AlertsAnswer(msgspec.Struct, frozen=True):
    """What fires, then what has fired, what began last first. ``more``: there are others."""

    alerts: list[AlertReport]
    more: bool
    schema_version: int = SCHEMA_VERSION
