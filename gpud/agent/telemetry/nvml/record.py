"""Recording of every call that a collection makes, with its raw answer.

Nothing is converted or omitted: 2^64 - 1 stays that. Of process lists, which are about people, only
the length is recorded.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import pynvml

from gpud.agent.telemetry.nvml import queries, session, xids
from gpud.agent.telemetry.nvml.library import load
from gpud.agent.telemetry.nvml.refusals import Refusal, guarded
from gpud.core.errors import TelemetryError
from gpud.core.gpus import MOST_GPUS

if TYPE_CHECKING:
    from gpud.agent.telemetry.nvml.calls import Call
    from gpud.agent.telemetry.nvml.library import Library
    from gpud.agent.telemetry.nvml.session import Answer
    from gpud.core.advice import Platform


def recorded(candidates: list[str], where: Platform) -> dict[str, Any]:
    """Return library, error, missing and calls, as ``gpud capture`` keeps them. Errors: none."""
    try:
        library = load(candidates, where)
    except TelemetryError as error:
        return {"library": None, "error": str(error), "missing": [], "calls": []}
    tape = _Tape(library)
    tape.run()
    return {
        "library": library.watched().real,
        "error": None,
        "missing": sorted(tape.missing),
        "calls": tape.calls,
    }


class _Tape:
    def __init__(self, library: Library) -> None:
        self._library = library
        self.missing: set[str] = set()
        self.calls: list[dict[str, Any]] = []

    def run(self) -> None:
        """Start NVML and ask for everything; without a start there is nothing to ask."""
        if isinstance(self._asked(session.INIT, None), Refusal):
            return
        for call in queries.calls(queries.MACHINE):
            self._asked(call, None)
        count = self._asked(session.COUNT, None)
        for gpu in range(min(count, MOST_GPUS) if isinstance(count, int) else 0):
            device = self._asked(session.handle(gpu), None)
            if isinstance(device, Refusal):
                continue
            for call in (*queries.calls(queries.GPU | queries.THROUGHPUT), xids.OFFERED):
                self._asked(call, gpu, device)

    def _asked(self, call: Call, gpu: int | None, *handles: Any) -> Answer:  # noqa: ANN401
        answer = guarded(call, partial(call.asked, *handles))
        if not hasattr(self._library.exports, call.function):
            self.missing.add(call.function)
            return answer
        entry = {"call": call.function, "gpu": gpu, "arguments": list(call.arguments)}
        if not isinstance(answer, Refusal):
            entry |= {"code": pynvml.NVML_SUCCESS, "value": _value(answer)}
        elif answer.code is None:
            entry |= {"code": None, "value": None, "error": answer.words}
        else:
            entry |= {"code": answer.code, "value": None}
        self.calls.append(entry)
        return answer


def _value(answer: Any) -> Any:  # noqa: ANN401  # whatever C gave
    if isinstance(answer, list):
        return {"count": len(answer)}
    if isinstance(answer, float) and not math.isfinite(answer):
        return str(answer)  # JSON has no such number
    return answer if isinstance(answer, int | float | str | dict) else None  # a handle
