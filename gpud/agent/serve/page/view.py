"""What the page is made of: the status document, and the little beside it that is not in there."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from gpud.show import gpu_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.core.sample import Buckets

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

    document: Mapping[str, Any]
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
        return float(self.document["written_s"])

    @cached_property
    def probes(self) -> list[dict[str, Any]]:
        """Every probe on every GPU, the GPUs in their order and the CPU after them."""
        return sorted(
            self.document["probes"],
            key=lambda one: (one["gpu"] is None, one["gpu"] or 0, one["probe"]),
        )

    def is_fresh(self, state: Mapping[str, Any]) -> bool:
        """Say whether a probe's last run is not too old to stand for now."""
        return self.fresh is None or (state["gpu"], state["probe"]) in self.fresh

    @cached_property
    def gpus(self) -> tuple[tuple[int, str], ...]:
        """Number and UUID of the GPUs that CUDA lists or that are known to telemetry."""
        listed = {one["uuid"] for one in (self.document.get("cuda") or {}).get("devices", ())}
        known = sorted(self.document["gpus"].items(), key=lambda item: item[1]["number"])
        return tuple(
            (one["number"], uuid)
            for uuid, one in known
            if uuid in listed or one["number"] in self.readings
        )

    @cached_property
    def readings(self) -> dict[int | None, gpu_table.Readings]:
        """What telemetry tells, by GPU; None stands for the machine."""
        return gpu_table.by_gpu(self.document)

    def uuid(self, number: int | None) -> str:
        """Name a GPU as the API does: by its UUID, ``cpu`` for none."""
        if number is None:
            return CPU
        for uuid, known in self.document["gpus"].items():
            if known["number"] == number:
                return str(uuid)
        return str(number)

    def place(self, number: int | None) -> str:
        """Name a GPU for a person: "GPU 0"."""
        return "CPU" if number is None else f"GPU {number}"

    def stream(self, gpu: int | None, probe: str, mode: str) -> dict[str, Any] | None:
        """Give how the stream of a figure stands: of its newest method and present power source."""
        found = self._streams.get((gpu, probe, mode))
        if not found:
            return None
        version = max(one["version"] for one in found)
        on_battery = self._on_battery(gpu, probe)
        return max(
            (one for one in found if one["version"] == version),
            key=lambda one: (one["on_battery"] is on_battery, one["last_judged_s"] or 0.0),
        )

    @cached_property
    def _streams(self) -> dict[tuple[int | None, str, str], list[dict[str, Any]]]:
        found: dict[tuple[int | None, str, str], list[dict[str, Any]]] = {}
        for one in self.document["streams"]:
            if (one["uuid"] is None) is (one["gpu"] is None):  # else its GPU is gone
                found.setdefault((one["gpu"], one["probe"], one["mode"]), []).append(one)
        return found

    def _on_battery(self, gpu: int | None, probe: str) -> bool:
        return (gpu, probe) in self._unplugged

    @cached_property
    def _unplugged(self) -> frozenset[tuple[int | None, str]]:
        return frozenset(
            (one["gpu"], one["probe"])
            for one in self.document["probes"]
            if one["conditions"].get("after.ac") is False
        )
