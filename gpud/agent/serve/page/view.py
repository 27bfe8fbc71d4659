"""Input of the page: the status document, and the little beside it that is not in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from gpud.show import gpu_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.core.sample import Buckets
    from gpud.show.document import Probe, Status

CPU: Final = "cpu"
"""How the page and the API call the place of what runs on no GPU."""


@dataclass(frozen=True, slots=True)
class Own:
    """What the agent's process takes.

    Units: ``cpu_s`` is CPU time of it and of the children that have ended, None: not known.
    """

    rss_bytes: int | None = None
    cpu_s: float | None = None


@dataclass(frozen=True)
class View:
    """Everything one rendering needs; the same view gives the same page.

    ``document`` is that of /api/v1/status. ``buckets`` has the last run's latency distributions by
    GPU's number (None: the CPU), probe and mode. ``fresh`` has the number and probe of every figure
    that is not too old; None where nobody says. ``style``, ``script`` and ``modules``, what
    the script is made of, are addresses.
    """

    document: Status
    buckets: Mapping[tuple[int | None, str, str], Buckets] = field(default_factory=dict)
    fresh: frozenset[tuple[int | None, str]] | None = None
    own: Own = Own()
    host: str = ""
    config: str = ""  # the path of the configuration file
    style: str = "/static/page.css"
    script: str = "/static/main.js"
    modules: tuple[str, ...] = ()

    @property
    def now_s(self) -> float:
        """The moment of the rendering, Unix time."""
        return self.document.written_s

    @cached_property
    def probes(self) -> list[Probe]:
        """Every probe on every GPU, the GPUs in their order and the CPU after them."""
        return sorted(
            self.document.probes, key=lambda one: (one.gpu is None, one.gpu or 0, one.probe)
        )

    def is_fresh(self, probe: Probe) -> bool:
        """Say whether a probe's last run is not too old to stand for now."""
        return self.fresh is None or (probe.gpu, probe.probe) in self.fresh

    @cached_property
    def gpus(self) -> tuple[tuple[int, str], ...]:
        """Number and UUID of the GPUs that CUDA lists or that are known to telemetry."""
        return tuple(
            (one.number, uuid)
            for uuid, one in sorted(self.document.gpus.items(), key=lambda item: item[1].number)
            if uuid in self.document.devices or one.number in self.readings
        )

    @cached_property
    def readings(self) -> dict[int | None, gpu_table.Readings]:
        """What telemetry tells, by GPU; None stands for the machine."""
        return gpu_table.by_gpu(self.document)

    def uuid(self, number: int | None) -> str:
        """Name a GPU as the API does: by its UUID, ``cpu`` for none."""
        if number is None:
            return CPU
        found = (uuid for uuid, gpu in self.document.gpus.items() if gpu.number == number)
        return next(found, str(number))
