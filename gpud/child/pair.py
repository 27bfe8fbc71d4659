"""A buffer on each of two GPUs, the copies between them, and whether every byte of one arrives."""

from __future__ import annotations

from gpud.child.device import Buffer, verification_failed
from gpud.core.errors import ProbeError
from gpud.core.record import Record
from gpud.core.sample import Failure, Missing, Reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpud.child.cuda_gpu import Gpu
    from gpud.child.cuda_peer import Peer
    from gpud.child.device import Call
    from gpud.core.sample import Condition

TO, FROM = DIRECT = ("to_peer", "from_peer")
STAGED = "staged_"
"""Begins the modes that have no access to the other GPU's memory."""
PIECE = 8 << 20
"""Bytes that are written or compared at once, in the host's memory."""
CLEARED = 0xFF


class GpuPair(Record):
    """Buffers of one size; copies are of their first bytes."""

    gpu: Gpu
    peer: Peer
    here: Buffer
    there: Buffer

    def calls(self, size: int) -> dict[str, Call]:
        """Prebuild a copy in each direction, by its direct mode."""
        here, there = Buffer(self.here.address, size), Buffer(self.there.address, size)
        return {
            TO: self.peer.copy_to(self.there, here),
            FROM: self.peer.copy_from(self.here, there),
        }

    def part(self, size: int) -> GpuPair:
        """Give the beginnings of both buffers."""
        here, there = Buffer(self.here.address, size), Buffer(self.there.address, size)
        return GpuPair(self.gpu, self.peer, here, there)

    def write(self, content: Callable[[int, int], bytes]) -> None:
        """Write ``content(place, size)`` to the first GPU's buffer."""
        for place in range(0, self.here.size, PIECE):
            size = min(PIECE, self.here.size - place)
            self.gpu.upload(self.here, content(place, size), place)

    def verify(self, content: Callable[[int, int], bytes], size: int) -> None:
        """Copy ``size`` bytes to the cleared peer and back: these bytes, and no others.

        The first GPU's buffer has ``content`` already, unless a copy has spoilt it. Errors:
        ``ProbeError`` (verification_failed).
        """
        calls, word = self.calls(size), CLEARED * 0x01010101
        with self.peer.current() as other:
            other.fill(self.there, word)
        self.gpu.timed(calls[TO])
        with self.peer.current() as other:
            _compare(other, self.there, content, size)
        self.gpu.fill(self.here, word)
        self.gpu.timed(calls[FROM])
        _compare(self.gpu, self.here, content, size)


def second(gpu: Gpu) -> Peer:
    """Return the second GPU of a run. ``Errors: ProbeError`` for a run without one."""
    if gpu.peer is None:
        raise ProbeError(Failure(Reason.UNSUPPORTED, "this probe copies between two GPUs"))
    return gpu.peer


def paired(gpu: Gpu, peer: Peer, size: int) -> GpuPair:
    """Take a buffer on each. ``Errors: ProbeError``."""
    here = gpu.alloc(size)
    with peer.current() as other:
        there = other.alloc(size)
    return GpuPair(gpu, peer, here, there)


def without_access(modes: tuple[str, ...], refusal: Failure | None) -> tuple[Missing, ...]:
    """Say of the direct ``modes`` why there are none; nothing where access was granted."""
    if refusal is None:
        return ()
    return tuple(Missing(mode, refusal.reason, refusal.detail) for mode in modes)


def facts(peer: Peer, refusal: Failure | None) -> dict[str, Condition]:
    """Name the second GPU: figures of another one do not compare."""
    note = f"the other GPU is {peer.device.name}, {peer.device.uuid}"
    return {"peer": peer.device.uuid, "peer_access": refusal is None, "note": note}


def _compare(gpu: Gpu, buffer: Buffer, content: Callable[[int, int], bytes], size: int) -> None:
    for place in range(0, buffer.size, PIECE):
        count = min(PIECE, buffer.size - place)
        copied = max(min(count, size - place), 0)
        expected = content(place, copied) + bytes([CLEARED]) * (count - copied)
        if gpu.download(buffer, count, place) != expected:
            raise verification_failed(
                f"bytes from {place} to {place + count} did not arrive on {gpu.device.uuid}"
            )
