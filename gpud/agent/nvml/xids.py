"""Xid errors: the driver tells them as events, each once, to whoever registered before.

Where it tells none, as in WSL and in Windows, they are unsupported; a count is never made up.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pynvml

from gpud.agent.nvml.calls import Call
from gpud.agent.nvml.refusals import Refusal, guarded
from gpud.core.sample import Absent
from gpud.core.xids import HIGHEST, told

if TYPE_CHECKING:
    from collections.abc import Sequence

FIELDS = ("xids", "xid_last")
XID = pynvml.nvmlEventTypeXidCriticalError
OFFERED = Call("nvmlDeviceGetSupportedEventTypes")
NEXT = Call("nvmlEventSetWait_v2", (0,))
NONE_OFFERED = Refusal(Absent.UNSUPPORTED, "the driver tells no Xid events")

NO_MORE = frozenset({pynvml.NVML_ERROR_TIMEOUT, pynvml.NVML_ERROR_GPU_IS_LOST})
"""A GPU that fell off the bus says so when it is asked itself; the others' events stay told."""

MOST_AT_ONCE = 256
"""Of events in one collection; the rest waits for the next."""


class Xids:
    """The Xids of every GPU since this was made: how often each, and which was the last."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self._gpus = {_address(handle): gpu for gpu, handle in enumerate(handles)}
        self._seen: list[Counter[int]] = [Counter() for _ in handles]
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
            self._count(event)

    def _count(self, event: Any) -> None:  # noqa: ANN401  # a ctypes structure
        gpu, code = self._gpus.get(_address(event.device)), int(event.eventData)
        if gpu is None or event.eventType != XID:
            return
        if 0 < code <= HIGHEST:
            self._seen[gpu][code] += 1
            self._last[gpu] = code

    def values(self, gpu: int) -> dict[str, str | float | Refusal]:
        """Give the fields of one GPU: "31:2,79:1" and 79, "none" and 0, or why not."""
        refused = self._refused[gpu] or self._undrained
        if refused is not None:
            return dict.fromkeys(FIELDS, refused)
        return dict(zip(FIELDS, (told(self._seen[gpu]), float(self._last[gpu])), strict=True))


def _address(handle: Any) -> int | None:  # noqa: ANN401  # an opaque pointer
    return ctypes.cast(handle, ctypes.c_void_p).value
