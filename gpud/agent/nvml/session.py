"""NVML, opened, and what it has said that need not be asked twice.

A call that the driver does not know, and one whose answer is of the hardware, is remembered for as
long as the session lasts; it ends with the driver, with the library's file, and after a while.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gpud.agent.nvml import queries
from gpud.agent.nvml.calls import Call
from gpud.agent.nvml.refusals import WHOLE, Refusal, error, guarded
from gpud.agent.nvml.round import NAME, Round
from gpud.agent.nvml.xids import Xids
from gpud.core.gpus import MOST_KNOWN
from gpud.core.sample import Absent, Reading

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from gpud.agent.nvml.queries import Query
    from gpud.agent.nvml.round import Answer, Key
    from gpud.core.advice import Platform

INIT = Call("nvmlInitWithFlags", (0,))
COUNT = Call("nvmlDeviceGetCount_v2")
DRIVER = Call("nvmlSystemGetDriverVersion")
BUS = Call("nvmlDeviceGetPciInfo_v3")


def handle(index: int) -> Call:
    """Give the call for the handle of one GPU, in NVML's own order."""
    return Call("nvmlDeviceGetHandleByIndex_v2", (index,))


class Session:
    """NVML from its start on. Errors: ``TelemetryError`` where it does not start.

    ``troubled``: a GPU is missing, or gives nothing. Only a new session can see its return.
    """

    def __init__(self, platform: Platform, *, throughput: bool) -> None:
        self._platform = platform
        self._of_gpu = queries.GPU | (queries.THROUGHPUT if throughput else queries.NO_THROUGHPUT)
        self._kept: dict[Key, Answer] = {}
        self.troubled = False
        self._handles = self._opened()
        self._xids = Xids(self._handles)
        self._driver = self._driver_now = self._asked(DRIVER)

    def _opened(self) -> tuple[Any, ...]:
        """Initialise NVML and give one handle per GPU, in the order of their slots."""
        self._required(INIT)
        count = min(self._required(COUNT), MOST_KNOWN)
        given = [self._asked(handle(index)) for index in range(count)]
        refused = [answer for answer in given if isinstance(answer, Refusal)]
        handles = [answer for answer in given if not isinstance(answer, Refusal)]
        if refused and not handles:
            raise error(refused[0], self._platform)
        # One that is forbidden stays so; one that is lost may come back.
        lost = [answer for answer in refused if answer.absent is Absent.FAILED]
        self.troubled = bool(lost) or not handles
        # PCI order, as CUDA is told to count too: one index means one GPU in every series.
        return tuple(sorted(handles, key=self._slot))

    def _required(self, call: Call) -> Any:  # noqa: ANN401  # what C gave
        answer = self._asked(call)
        if isinstance(answer, Refusal):
            raise error(answer, self._platform)
        return answer

    def _slot(self, gpu: Any) -> str:  # noqa: ANN401  # an opaque pointer
        answer = self._asked(BUS, gpu)
        return str(answer["busId"]) if isinstance(answer, dict) else ""

    def driver_changed(self) -> bool:
        """Tell whether the driver is another than at the start: nothing remembered holds then.

        The next collection says what was found here: the two shall not be of different drivers.
        """
        self._driver_now = self._asked(DRIVER)
        return not isinstance(self._driver_now, Refusal) and self._driver_now != self._driver

    def collect(self, wanted: Container[str] | None = None) -> list[Reading]:
        """Give every field of the machine and of every GPU, or those ``wanted``; absent ones too.

        Errors: ``TelemetryError`` where no GPU gives anything any more.
        """
        asking = Round(self._asked_of, self._kept, {(DRIVER, None): self._driver_now})
        readings = asking.readings(None, _only(queries.MACHINE, wanted))
        of_gpu = _only(self._of_gpu, wanted)
        self._xids.drain()
        for gpu in range(len(self._handles)):
            readings += asking.readings(gpu, of_gpu)
            readings += self._xid_readings(gpu, wanted)
        silent = [why for gpu in range(len(self._handles)) if (why := asking.silence(gpu))]
        if silent and len(silent) == len(self._handles):
            raise error(silent[0], self._platform)
        self.troubled = self.troubled or bool(silent)
        return readings

    def _xid_readings(self, gpu: int, wanted: Container[str] | None) -> Iterator[Reading]:
        for field, value in self._xids.values(gpu).items():
            if wanted is not None and field not in wanted:
                continue
            if isinstance(value, Refusal):
                yield Reading(gpu, field, value.absent, NAME, value.words)
            else:
                yield Reading(gpu, field, value, NAME)

    def _asked_of(self, call: Call, gpu: int | None) -> Answer:
        return self._asked(call, *(() if gpu is None else (self._handles[gpu],)))

    def _asked(self, call: Call, *handles: Any) -> Answer:  # noqa: ANN401  # opaque pointers
        """Ask now. Errors: ``TelemetryError`` where the refusal is that of the whole library."""
        answer = guarded(call, partial(call.asked, *handles))
        if isinstance(answer, Refusal) and answer.code in WHOLE:
            raise error(answer, self._platform)
        return answer


def _only(asked: Mapping[str, Query], wanted: Container[str] | None) -> Mapping[str, Query]:
    if wanted is None:
        return asked
    return {field: query for field, query in asked.items() if field in wanted}
