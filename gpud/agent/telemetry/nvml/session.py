"""Session of NVML: one collection after another, what need not be asked twice, and Xids.

A call that the driver does not have, and one whose answer is of the hardware, is remembered for as
long as the session lasts; it ends with the driver, and after a while.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pynvml

from gpud.agent.telemetry.codes import CODES
from gpud.agent.telemetry.fields import plausible
from gpud.agent.telemetry.nvml import queries
from gpud.agent.telemetry.nvml.queries import (
    BUS,
    DRIVER,
    LOST,
    WHOLE,
    NvmlCall,
    NvmlRefusal,
    guarded,
)
from gpud.core import advice
from gpud.core.advice import Situation
from gpud.core.errors import TelemetryError
from gpud.core.sample import MOST_GPUS, Absent, Reading

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from gpud.agent.telemetry.nvml.queries import NvmlQuery
    from gpud.core.advice import Platform

NAME = "nvml"
"""The source of every reading, as the metrics name it."""
INIT = NvmlCall("nvmlInitWithFlags", (0,))
COUNT = NvmlCall("nvmlDeviceGetCount_v2")
REPLACED = "library_replaced"

NOT_ASKED: Final = NvmlRefusal(Absent.NOT_ASKED, "[telemetry] pcie_throughput is off")


def handle(index: int) -> NvmlCall:
    """Return the call for the handle of one GPU, in NVML's own order."""
    return NvmlCall("nvmlDeviceGetHandleByIndex_v2", (index,))


class NvmlSession:
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
        self._xids = XidCounter(self._handles, xids)
        self._driver = self._ask(DRIVER)
        self._remembered: dict[tuple[NvmlCall, int | None], Any] = {}  # for the session
        self._answers: dict[tuple[NvmlCall, int | None], Any] = {}  # of this collection
        self._lost: dict[int | None, NvmlRefusal] = {}  # likewise

    def _opened(self) -> tuple[Any, ...]:
        """Initialise NVML and return one handle per GPU, in the order of their slots."""
        self._required(INIT)
        count = min(self._required(COUNT), MOST_GPUS)
        answers = [self._ask(handle(index)) for index in range(count)]
        refused = [answer for answer in answers if isinstance(answer, NvmlRefusal)]
        handles = [answer for answer in answers if not isinstance(answer, NvmlRefusal)]
        if refused and not handles:
            raise self._error(refused[0])
        # A GPU that is forbidden stays so; one that is lost may come back.
        self.troubled = not handles or any(r.absent is Absent.FAILED for r in refused)
        # PCI order, as CUDA is told to count too: one index means one GPU in every series.
        return tuple(sorted(handles, key=self._slot))

    def _required(self, call: NvmlCall) -> Any:  # noqa: ANN401  # what C gave
        answer = self._ask(call)
        if isinstance(answer, NvmlRefusal):
            raise self._error(answer)
        return answer

    def _slot(self, gpu: Any) -> str:  # noqa: ANN401  # an opaque pointer
        answer = self._ask(BUS, gpu)
        return str(answer["busId"]) if isinstance(answer, dict) else ""

    def _ask(self, call: NvmlCall, *handles: Any) -> Any:  # noqa: ANN401  # an answer or a refusal
        """Ask now. Errors: ``TelemetryError`` where the refusal is that of the whole library."""
        answer = guarded(call, lambda: call.answer(*handles))
        if isinstance(answer, NvmlRefusal) and answer.code in WHOLE:
            raise self._error(answer)
        return answer

    def _error(self, refusal: NvmlRefusal) -> TelemetryError:
        """Return the error for a refusal of NVML as a whole, with what helps."""
        reason, situation = CODES.get(refusal.code or 0, ("failed", Situation.SILENT))
        code = "" if refusal.code is None else f" ({refusal.code})"
        fix = advice.words(situation, self._platform)
        return TelemetryError(f"NVML: {refusal.words}{code}", reason=reason, fix=fix)

    def collect(self, fields: Container[str] | None) -> list[Reading]:
        """Return every field, or those in ``fields``, of the machine and the GPUs; absent ones too.

        Errors: ``TelemetryError`` where no GPU gives anything any more, and with the reason
        ``REPLACED`` where the driver's version is another than before.
        """
        driver = self._ask(DRIVER)
        if not isinstance(driver, NvmlRefusal) and driver != self._driver:
            words = "another driver is being installed: its version changed"
            raise TelemetryError(words, reason=REPLACED)
        self._answers, self._lost = {(DRIVER, None): driver}, {}
        self._xids.drain()
        readings = list(self._readings(None, queries.MACHINE, fields))
        for gpu in range(len(self._handles)):
            readings += self._readings(gpu, self._of_gpu, fields)
        silences = [self._silence(gpu) for gpu in range(len(self._handles))]
        if silences and all(silences):
            raise self._error(next(filter(None, silences)))
        self.troubled = self.troubled or any(silences)
        return readings

    def processes(self) -> list[dict[str, Any]]:
        """Return for each GPU its processes with a context, or in ``unknown_reason`` why not.

        A process of several lists has the kinds of all, and the largest memory. Errors: as
        ``collect``, after which this is called.
        """
        listed = [self._processes(gpu) for gpu in range(len(self._handles))]
        return [
            {"gpu": gpu, "unknown_reason": processes.words}
            if isinstance(processes, NvmlRefusal)
            else {"gpu": gpu, "processes": processes}
            for gpu, processes in enumerate(listed)
        ]

    def _processes(self, gpu: int) -> list[dict[str, Any]] | NvmlRefusal:
        answers = {kind: self._first(group, gpu) for kind, group in queries.PROCESSES.items()}
        refused = [each for each in answers.values() if isinstance(each, NvmlRefusal)]
        failed = [each for each in refused if each.absent is not Absent.UNSUPPORTED]
        if failed or len(refused) == len(answers):
            return (failed or refused)[0]  # a part of the whole is missing, or all of it
        kinds: dict[int, list[str]] = {}
        memory: dict[int, int | None] = {}
        for kind, answer in answers.items():
            for pid, n_bytes in () if isinstance(answer, NvmlRefusal) else answer:
                kinds.setdefault(pid, []).append(kind)
                memory[pid] = max(memory.get(pid) or 0, n_bytes or 0) or None
        return [
            {"pid": pid, "kind": "+".join(dict.fromkeys(of)), "memory_bytes": memory[pid]}
            for pid, of in kinds.items()
        ]

    def _readings(
        self, gpu: int | None, table: Mapping[str, NvmlQuery], fields: Container[str] | None
    ) -> Iterator[Reading]:
        values: dict[str, Any] = {
            field: self._value(gpu, field, query)
            for field, query in table.items()
            if fields is None or field in fields
        }
        if gpu is not None:
            if fields is None or "processes" in fields:
                listed = self._processes(gpu)
                counted = listed if isinstance(listed, NvmlRefusal) else float(len(listed))
                values["processes"] = counted
            key = (queries.UUID, gpu)
            xids = self._xids.values(gpu, str(self._answers.get(key, self._remembered.get(key))))
            values |= {f: value for f, value in xids.items() if fields is None or f in fields}
        for field, value in values.items():
            if isinstance(value, NvmlRefusal):
                yield Reading(gpu, field, value.absent, NAME, value.words)
            else:
                yield Reading(gpu, field, value, NAME)

    def _silence(self, gpu: int) -> NvmlRefusal | None:
        """Return why a GPU gives nothing any more: it is lost, or failed in all it was asked."""
        answers = [answer for (_, of), answer in self._answers.items() if of == gpu]
        failed = [a for a in answers if isinstance(a, NvmlRefusal) and a.absent is Absent.FAILED]
        silent = failed[0] if len(failed) == len(answers) > 1 else None
        return self._lost.get(gpu, silent)

    def _value(
        self, gpu: int | None, field: str, query: NvmlQuery
    ) -> float | str | Absent | NvmlRefusal:
        answer = self._first(query.group, gpu)
        if isinstance(answer, NvmlRefusal):
            return answer
        return guarded(query.group[0], lambda: plausible(field, query.value(answer)))

    def _first(self, group: Sequence[NvmlCall], gpu: int | None) -> Any:  # noqa: ANN401
        """Return the answer of the first call that the driver has."""
        answer: Any = NOT_ASKED
        for call in group:
            answer = self._answer(call, gpu)
            if not isinstance(answer, NvmlRefusal) or answer.absent is not Absent.UNSUPPORTED:
                break
        return answer

    def _answer(self, call: NvmlCall, gpu: int | None) -> Any:  # noqa: ANN401
        """Return the answer of this session, of this collection, or a new one."""
        key = call, gpu
        before = self._remembered.get(key, self._answers.get(key, self._lost.get(gpu)))
        if before is not None:
            return before
        answer = self._ask(call, *(() if gpu is None else (self._handles[gpu],)))
        self._answers[key] = answer
        refused = isinstance(answer, NvmlRefusal)
        if answer.absent is Absent.UNSUPPORTED if refused else call.once:
            self._remembered[key] = answer
        if refused and answer.code == LOST:  # another call to a GPU that is gone may take long
            self._lost[gpu] = answer
        return answer


XID = pynvml.nvmlEventTypeXidCriticalError
SUPPORTED_EVENTS = NvmlCall("nvmlDeviceGetSupportedEventTypes")
NEXT_EVENT = NvmlCall("nvmlEventSetWait_v2", (0,))
NO_EVENTS = NvmlRefusal(Absent.UNSUPPORTED, "the driver tells no Xid events")
NO_MORE = frozenset({pynvml.NVML_ERROR_TIMEOUT, LOST})
"""A GPU that fell off the bus says so when it is asked itself; the others' events still count."""
MOST_EVENTS = 256
"""Of one collection; the rest waits for the next."""
MOST_CODES: Final = 16
HIGHEST_XID: Final = 1000
"""NVIDIA's list of Xids ends below 200; anything beyond this is none."""


class XidCounter:
    """The Xids of every GPU: how often each, and which was the last.

    The driver reports them as events, each once, to whoever registered before. Where it reports
    none, as in WSL and in Windows, they are unsupported; a count is never made up.
    Shapes: ``earlier`` has ``(xids, xid_last)`` of former helpers by UUID, which are added.
    """

    def __init__(self, handles: Sequence[Any], earlier: Mapping[str, Sequence[Any]]) -> None:
        self._gpus = {_address(handle): gpu for gpu, handle in enumerate(handles)}
        self._earlier = earlier
        self._counts: list[Counter[int]] = [Counter() for _ in handles]
        self._last = [0 for _ in handles]
        self._set: Any = None
        self._refused = [
            guarded(SUPPORTED_EVENTS, partial(self._register, handle)) for handle in handles
        ]
        self._undrained: NvmlRefusal | None = None

    def _register(self, handle: Any) -> NvmlRefusal | None:  # noqa: ANN401  # an opaque pointer
        if not pynvml.nvmlDeviceGetSupportedEventTypes(handle) & XID:
            return NO_EVENTS
        if self._set is None:
            self._set = pynvml.nvmlEventSetCreate()
        pynvml.nvmlDeviceRegisterEvents(handle, XID, self._set)
        return None

    def drain(self) -> None:
        """Take the events there are, without waiting."""
        self._undrained = None
        for _ in range(MOST_EVENTS if self._set is not None else 0):
            event = guarded(NEXT_EVENT, lambda: pynvml.nvmlEventSetWait_v2(self._set, 0))
            if isinstance(event, NvmlRefusal):
                self._undrained = None if event.code in NO_MORE else event
                break
            gpu, code = self._gpus.get(_address(event.device)), int(event.eventData)
            if gpu is not None and event.eventType == XID and 0 < code <= HIGHEST_XID:
                self._counts[gpu][code] += 1
                self._last[gpu] = code

    def values(self, gpu: int, uuid: str) -> dict[str, str | float | NvmlRefusal]:
        """Return the fields of one GPU: "31:2,79:1" and 79, "none" and 0, or why not.

        More codes than ``MOST_CODES`` are dropped.
        """
        if (refused := self._refused[gpu] or self._undrained) is not None:
            return {"xids": refused, "xid_last": refused}
        text, last = self._earlier.get(uuid, ("none", 0))
        pairs = [part.split(":") for part in text.split(",") if text != "none"]
        counts = self._counts[gpu] + Counter({int(code): int(count) for code, count in pairs})
        written = [f"{code}:{counts[code]}" for code in sorted(counts)[:MOST_CODES]]
        return {"xids": ",".join(written) or "none", "xid_last": float(self._last[gpu] or last)}


def _address(handle: Any) -> int | None:  # noqa: ANN401  # an opaque pointer
    return ctypes.cast(handle, ctypes.c_void_p).value
