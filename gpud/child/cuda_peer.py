"""The second GPU of a run: its context for as long as the run lasts, and copies to and from it.

What is submitted is on the first GPU's stream: a copy to the peer is its write and one from the
peer its read. Without access to the peer's memory the driver stages a copy through the host
(CUDA C++ Programming Guide, Peer-to-Peer Memory Copy).
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager

from gpud.core.errors import ProbeError
from gpud.core.record import replace
from gpud.core.sample import Failure, Reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.child.cuda_gpu import Gpu, PrimaryContext
    from gpud.child.device import Buffer, Call
    from gpud.core.sample import Job

NO_ACCESS = "the driver gives these two GPUs no access to each other's memory"


@contextmanager
def of_second(uuid: str) -> Iterator[None]:
    """Name the second GPU in what goes wrong with it: a run goes by the name of its first one."""
    try:
        yield
    except ProbeError as error:
        failure = error.failure
        words = f"the other GPU, {uuid}: {failure.detail}"
        # As the gate calls it, which cannot always read how much is free.
        reason = Reason.PEER_BUSY if failure.reason is Reason.VRAM_SHORT else failure.reason
        raise ProbeError(replace(failure, reason=reason, detail=words)) from error


class Peer:
    """A second GPU, whose context is current only while ``current`` lasts.

    Errors: every method but ``close`` raises ``ProbeError`` with the function that refused.
    """

    def __init__(self, own: Gpu, other: Gpu) -> None:
        self.device = other.device
        self._own, self._other = own, other
        self._driver = own.context.driver
        self._accessible: list[ctypes.c_void_p] = []  # contexts, the second GPU's first

    @contextmanager
    def current(self) -> Iterator[Gpu]:
        """Give the second GPU, to take, fill, write and read its memory; its costs are the run's.

        Calls that are prebuilt go on being those of the first GPU's stream.
        """
        own, other = self._own, self._other
        self._driver("cuCtxSetCurrent", other.context.handle)
        try:
            with of_second(self.device.uuid):
                yield other
        finally:
            code = self._driver.code("cuCtxSetCurrent", own.context.handle)
            own.busy_s += other.busy_s
            other.busy_s = 0.0
            own.vram_peak_bytes = max(own.vram_peak_bytes, other.vram_peak_bytes)
        if code:
            raise self._driver.error("cuCtxSetCurrent", code)

    def start(self) -> None:
        """Take the second GPU's own stream and events."""
        with self.current() as other:
            other.start()

    def leave_free(self, job: Job) -> None:
        """Take no memory of the second GPU of which too little is free, as ``Gpu.leave_free``."""
        with self.current() as other:
            other.leave_free(job)

    def refusal_of_access(self) -> Failure | None:
        """Give both GPUs access to each other's memory, as long as the run lasts; or say why not.

        Both, because the driver does not say which of them does the copy.
        """
        own, other = self._own.context, self._other.context
        for first, second in ((own, other), (other, own)):
            able = self._driver.value(
                "cuDeviceCanAccessPeer", ctypes.c_int, first.ordinal, second.ordinal
            )
            if not able:
                return Failure(Reason.UNSUPPORTED, NO_ACCESS, function="cuDeviceCanAccessPeer")
        code = self._enabled(other)
        if not code:
            with self.current():
                code = self._enabled(own)
        return self._driver.error("cuCtxEnablePeerAccess", code).failure if code else None

    def _enabled(self, context: PrimaryContext) -> int:
        """Give the current context access to another one's memory; the code of the driver."""
        code = self._driver.code("cuCtxEnablePeerAccess", context.handle, 0)
        if not code:
            self._accessible.append(context.handle)
        return code

    def copy_to(self, there: Buffer, here: Buffer) -> Call:
        """Prebuild a copy of all of ``here`` to the beginning of the peer's ``there``."""
        return self._own.copy_across(there, self._other, here, self._own)

    def copy_from(self, here: Buffer, there: Buffer) -> Call:
        """Prebuild a copy of all of the peer's ``there`` to the beginning of ``here``."""
        return self._own.copy_across(here, self._own, there, self._other)

    def close(self) -> dict[str, str]:
        """Give everything back, the context too. Returns what was refused, by function."""
        own, other = self._own.context.handle, self._other.context.handle
        give_back = self._driver.give_back
        errors = give_back({"cuCtxDisablePeerAccess": self._accessible[:1]})
        errors |= give_back({"cuCtxSetCurrent": [other]})
        errors |= give_back({"cuCtxDisablePeerAccess": self._accessible[1:], **self._other.handles})
        errors |= give_back({"cuCtxSetCurrent": [own]})
        return self._other.context.close() | errors
