"""Session of NVML: one collection after another, and what need not be asked twice.

A call that the driver does not know, and one whose answer is of the hardware, is remembered for as
long as the session lasts; it ends with the driver, with the library's file, and after a while.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from gpud.agent.telemetry.nvml import queries
from gpud.agent.telemetry.nvml.calls import Call, Plain
from gpud.agent.telemetry.nvml.refusals import LOST, NOT_ASKED, WHOLE, Refusal, error, guarded
from gpud.agent.telemetry.nvml.xids import Xids
from gpud.core.fields import plausible
from gpud.core.gpus import MOST_GPUS
from gpud.core.sample import Absent, Reading

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from gpud.agent.telemetry.nvml.queries import Query
    from gpud.core.advice import Platform

NAME = "nvml"
"""The source of every reading, as the metrics name it."""
INIT = Call("nvmlInitWithFlags", (0,))
COUNT = Call("nvmlDeviceGetCount_v2")
DRIVER = Call("nvmlSystemGetDriverVersion")
BUS = Call("nvmlDeviceGetPciInfo_v3")
IDENTITY = frozenset({"name", "uuid", "pci_bus_id"})
"""What a GPU goes by; it stays true of one that is lost."""

Answer: TypeAlias = Plain | Refusal
Key: TypeAlias = tuple[Call, int | None]


def handle(index: int) -> Call:
    """Return the call for the handle of one GPU, in NVML's own order."""
    return Call("nvmlDeviceGetHandleByIndex_v2", (index,))


class Session:
    """NVML from its start on. Errors: ``TelemetryError`` where it does not start.

    ``troubled``: a GPU is missing, or gives nothing. Only a new session can see its return.
    """

    def __init__(
        self, platform: Platform, xids: Mapping[str, Sequence[Any]], *, throughput: bool
    ) -> None:
        self._platform = platform
        self._of_gpu = queries.GPU | (queries.THROUGHPUT if throughput else queries.NO_THROUGHPUT)
        self.troubled = False
        self._handles = self._opened()
        self._xids = Xids(self._handles, xids)
        self._driver = self._ask(DRIVER)
        self._driver_now = self._driver
        self._kept: dict[Key, Answer] = {}  # for the session
        self._answers: dict[Key, Answer] = {}  # of this collection
        self._lost: dict[int | None, Refusal] = {}  # likewise

    def _opened(self) -> tuple[Any, ...]:
        """Initialise NVML and return one handle per GPU, in the order of their slots."""
        self._required(INIT)
        count = min(self._required(COUNT), MOST_GPUS)
        answers = [self._ask(handle(index)) for index in range(count)]
        refused = [answer for answer in answers if isinstance(answer, Refusal)]
        handles = [answer for answer in answers if not isinstance(answer, Refusal)]
        if refused and not handles:
            raise error(refused[0], self._platform)
        # One that is forbidden stays so; one that is lost may come back.
        lost = [answer for answer in refused if answer.absent is Absent.FAILED]
        self.troubled = bool(lost) or not handles
        # PCI order, as CUDA is told to count too: one index means one GPU in every series.
        return tuple(sorted(handles, key=self._slot))

    def _required(self, call: Call) -> Any:  # noqa: ANN401  # what C gave
        answer = self._ask(call)
        if isinstance(answer, Refusal):
            raise error(answer, self._platform)
        return answer

    def _slot(self, gpu: Any) -> str:  # noqa: ANN401  # an opaque pointer
        answer = self._ask(BUS, gpu)
        return str(answer["busId"]) if isinstance(answer, dict) else ""

    def _ask(self, call: Call, *handles: Any) -> Answer:  # noqa: ANN401  # opaque pointers
        """Ask now. Errors: ``TelemetryError`` where the refusal is that of the whole library."""
        answer = guarded(call, partial(call.asked, *handles))
        if isinstance(answer, Refusal) and answer.code in WHOLE:
            raise error(answer, self._platform)
        return answer

    def driver_changed(self) -> bool:
        """Return whether the driver is another than at the start: nothing remembered holds then.

        The next collection has the version that was read here, so the two agree.
        """
        self._driver_now = self._ask(DRIVER)
        return not isinstance(self._driver_now, Refusal) and self._driver_now != self._driver

    def collect(self, fields: Container[str] | None = None) -> list[Reading]:
        """Return every field, or those in ``fields``, of the machine and the GPUs; absent ones too.

        Errors: ``TelemetryError`` where no GPU gives anything any more.
        """
        self._answers, self._lost = {(DRIVER, None): self._driver_now}, {}
        self._xids.drain()
        readings = self._of(None, queries.MACHINE, fields)
        gpus = range(len(self._handles))
        for gpu in gpus:
            readings += self._of(gpu, self._of_gpu, fields) + self._xid_readings(gpu, fields)
        silences = [refusal for gpu in gpus if (refusal := self._silence(gpu))]
        if silences and len(silences) == len(gpus):
            raise error(silences[0], self._platform)
        self.troubled = self.troubled or bool(silences)
        return readings

    def _of(
        self, gpu: int | None, table: Mapping[str, Query], fields: Container[str] | None
    ) -> list[Reading]:
        values = {
            field: self._value(gpu, field, query)
            for field, query in table.items()
            if fields is None or field in fields
        }
        if (lost := self._lost.get(gpu)) is not None:  # during this collection
            values |= dict.fromkeys(values.keys() - IDENTITY, lost)
        return [_reading(gpu, field, value) for field, value in values.items()]

    def _xid_readings(self, gpu: int, fields: Container[str] | None) -> list[Reading]:
        uuid = self._answers.get((queries.UUID, gpu), self._kept.get((queries.UUID, gpu)))
        values = self._xids.values(gpu, str(uuid))
        return [
            _reading(gpu, field, value)
            for field, value in values.items()
            if fields is None or field in fields
        ]

    def _silence(self, gpu: int) -> Refusal | None:
        """Return why a GPU gives nothing any more: it is lost, or failed in all it was asked."""
        if gpu in self._lost:
            return self._lost[gpu]
        answers = [answer for (_, of), answer in self._answers.items() if of == gpu]
        failed = [a for a in answers if isinstance(a, Refusal) and a.absent is Absent.FAILED]
        return failed[0] if len(failed) == len(answers) > 1 else None

    def _value(self, gpu: int | None, field: str, query: Query) -> float | str | Absent | Refusal:
        answers: list[Plain] = []
        refusal = NOT_ASKED
        for group in query.groups:
            answer = self._first(group, gpu)
            if not isinstance(answer, Refusal):
                answers.append(answer)
            elif answer.absent is not Absent.UNSUPPORTED:  # a part of the whole is missing
                return answer
            else:
                refusal = answer
        if not answers:
            return refusal
        return guarded(query.groups[0][0], lambda: plausible(field, query.value(answers)))

    def _first(self, group: Sequence[Call], gpu: int | None) -> Answer:
        """Return the answer of the first call that the driver knows."""
        answer: Answer = NOT_ASKED
        for call in group:
            answer = self._answer(call, gpu)
            if not isinstance(answer, Refusal) or answer.absent is not Absent.UNSUPPORTED:
                break
        return answer

    def _answer(self, call: Call, gpu: int | None) -> Answer:
        """Return the answer of this collection, of this session, or a new one."""
        key = call, gpu
        before = self._kept.get(key, self._answers.get(key, self._lost.get(gpu)))
        if before is not None:
            return before
        answer = self._ask(call, *(() if gpu is None else (self._handles[gpu],)))
        self._answers[key] = answer
        if isinstance(answer, Refusal):
            if answer.absent is Absent.UNSUPPORTED:
                self._kept[key] = answer
            elif answer.code == LOST:  # a call to a GPU that is gone may take long
                self._lost[gpu] = answer
        elif call.once:
            self._kept[key] = answer
        return answer


def _reading(gpu: int | None, field: str, value: float | str | Absent | Refusal) -> Reading:
    if isinstance(value, Refusal):
        return Reading(gpu, field, value.absent, NAME, value.words)
    return Reading(gpu, field, value, NAME)
