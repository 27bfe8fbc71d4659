"""Status document as a whole."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import msgspec

from gpud.core.alerts import SinkState
from gpud.core.errors import GpudError
from gpud.core.health import Health
from gpud.core.report import RootReport
from gpud.core.sample import SCHEMA_VERSION
from gpud.core.text import escaped
from gpud.document.alerts import AlertReport, FaultReport
from gpud.document.machine import (
    BreakerReport,
    ChangeReport,
    ComparisonReport,
    ContextsReport,
    Counters,
    CudaReport,
    DeviceReport,
    Expected,
    ListedGpu,
    StoreSize,
    TelemetryReport,
)
from gpud.document.runs import LastRun, RecentSeries, SkippedProbe, StreamReport


class Status(msgspec.Struct, frozen=True, dict=True):
    """Everything a person or a program may want to know of one moment.

    ``state`` is the worst of ``health``. ``gpus`` and ``expected`` are by UUID. ``gpu_from_s`` is
    when GPU work begins, None where it may have begun at once. ``url``: where the page is, while
    ``http`` has not failed.
    """

    version: str = ""
    state: str = ""
    written_s: float = 0.0
    started_s: float = 0.0
    url: str | None = None
    gpu_from_s: float | None = None
    platform: Mapping[str, str] = {}
    health: Mapping[str, Health] = {}
    root: RootReport | None = None
    containers: ComparisonReport | None = None
    gpus: Mapping[str, ListedGpu] = {}
    breaker: BreakerReport | None = None
    contexts: ContextsReport | None = None
    changes: tuple[ChangeReport, ...] = ()
    expected: Mapping[str, Expected] = {}
    cuda: CudaReport | None = None
    probes: tuple[LastRun, ...] = ()
    put_off: tuple[SkippedProbe, ...] = ()
    streams: tuple[StreamReport, ...] = ()
    recent: tuple[RecentSeries, ...] = ()
    telemetry: TelemetryReport = TelemetryReport()
    alerts: tuple[AlertReport, ...] = ()
    sinks: Mapping[str, SinkState] = {}
    known_faults: tuple[FaultReport, ...] = ()
    store: StoreSize | None = None
    counters: Counters = Counters()
    schema_version: int = SCHEMA_VERSION

    @property
    def devices(self) -> dict[str, DeviceReport]:
        """The GPUs that CUDA lists now, by UUID."""
        return {} if self.cuda is None else {device.uuid: device for device in self.cuda.devices}

    def place(self, uuid: str | None) -> str:
        """Name a GPU by its number, and the CPU."""
        gpu = self.gpus.get(uuid or "")
        return "CPU" if uuid is None else f"GPU {gpu.number}" if gpu else uuid

    def stream(self, run: LastRun, mode: str) -> StreamReport | None:
        """Return the stream of a figure: of its newest method and the run's power source."""
        return self._newest.get((run.gpu, run.probe, mode, run.on_battery))

    @cached_property
    def _newest(self) -> dict[tuple[int | None, str, str, bool], StreamReport]:
        ordered = sorted(
            self.streams, key=lambda stream: (stream.version, stream.last_judged_s or 0.0)
        )
        return {
            (stream.gpu, stream.probe, stream.mode, stream.on_battery): stream
            for stream in ordered
            if (stream.uuid is None) is (stream.gpu is None)  # else its GPU is gone
        }


def read(document: Mapping[str, Any]) -> Status:
    """Read a document. Errors: ``GpudError`` where this release cannot show it."""
    try:
        return msgspec.convert(document, Status)
    except msgspec.ValidationError as error:
        message = f"the agent's status is none that this gpud can show: {escaped(str(error))}"
        raise GpudError(message, fix="gpud restart") from error
