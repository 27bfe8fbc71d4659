"""Xid errors: the driver reports them as events, each once, to whoever registered before.

Where it reports none, as in WSL and in Windows, they are unsupported; a count is never made up.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pynvml

from gpud.agent.telemetry.nvml.calls import Call
from gpud.agent.telemetry.nvml.refusals import Refusal, guarded
from gpud.core.sample import Absent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FIELDS = ("xids", "xid_last")
XID = pynvml.nvmlEventTypeXidCriticalError
OFFERED = Call("nvmlDeviceGetSupportedEventTypes")
NEXT = Call("nvmlEventSetWait_v2", (0,))
NONE_OFFERED = Refusal(Absent.UNSUPPORTED, "the driver tells no Xid events")

NO_MORE = frozenset({pynvml.NVML_ERROR_TIMEOUT, pynvml.NVML_ERROR_GPU_IS_LOST})
"""A GPU that fell off the bus says so when it is asked itself; the others' events still count."""

MOST_AT_ONCE = 256
"""Of events in one collection; the rest waits for the next."""
MOST_CODES: Final = 16
HIGHEST: Final = 1000
"""NVIDIA's list of Xids ends below 200; anything beyond this is none."""


class Xids:
    """The Xids of every GPU: how often each, and which was the last.

    Shapes: ``earlier`` has ``(xids, xid_last)`` of former helpers by UUID; it is counted on.
    """

    def __init__(self, handles: Sequence[Any], earlier: Mapping[str, Sequence[Any]]) -> None:
        self._gpus = {_address(handle): gpu for gpu, handle in enumerate(handles)}
        self._earlier = earlier
        self._counts: list[Counter[int]] = [Counter() for _ in handles]
        self._last = [0 for _ in handles]
        self._set: Any = None
        self._refused = [guarded(OFFERED, partial(self._watch, handle)) for handle in handles]
        self._undrained: Refusal | None = None

    def _watch(self, handle: Any) -> Refusal | None:  # noqa: ANN401  # an opaque pointer
        if not pynvml.nvmlDeviceGetSupportedEventTypes(handle) & XID:
            return NONE_OFFERED
        if self._set is None:
            self._set = pynvml.nvmlEventSetCreate()
        pynvml.nvmlDeviceRegisterEvents(handle, XID, self._set)
        return None

    def drain(self) -> None:
        """Take the events there are, without waiting."""
        self._undrained = None
        for _ in range(MOST_AT_ONCE if self._set is not None else 0):
            event = guarded(NEXT, partial(pynvml.nvmlEventSetWait_v2, self._set, 0))
            if isinstance(event, Refusal):
                self._undrained = None if event.code in NO_MORE else event
                break
            gpu, code = self._gpus.get(_address(event.device)), int(event.eventData)
            if gpu is not None and event.eventType == XID and 0 < code <= HIGHEST:
                self._counts[gpu][code] += 1
                self._last[gpu] = code

    def values(self, gpu: int, uuid: str) -> dict[str, str | float | Refusal]:
        """Return the fields of one GPU: "31:2,79:1" and 79, "none" and 0, or why not."""
        refused = self._refused[gpu] or self._undrained
        if refused is not None:
            return dict.fromkeys(FIELDS, refused)
        text, last = self._earlier.get(uuid, ("none", 0))
        counts = self._counts[gpu] + counted(text)
        return {"xids": written(counts), "xid_last": float(self._last[gpu] or last)}


def written(counts: Mapping[int, int]) -> str:
    """Write counts in the order of their codes; more codes than fit are dropped."""
    codes = sorted(counts)[:MOST_CODES]
    return ",".join(f"{code}:{counts[code]}" for code in codes) or "none"


def counted(text: str) -> Counter[int]:
    """Read what ``written`` wrote."""
    pairs = (part.split(":") for part in text.split(",") if text != "none")
    return Counter({int(code): int(count) for code, count in pairs})


def _address(handle: Any) -> int | None:  # noqa: ANN401  # an opaque pointer
    return ctypes.cast(handle, ctypes.c_void_p).value
