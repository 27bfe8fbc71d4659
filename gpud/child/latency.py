"""The timed loops of every latency probe: null call, real call, null call, and the clock between.

A null call has the prototype of the real one and does nothing; the median null call is what is
subtracted. Three things keep the error at half a microsecond near 1 %, which is 5 ns there:

- Interleaving call by call: a core that changes speed in the middle spoils both sides alike.
- A null call on either side. The one before finds the interpreter as the bookkeeping left it, the
  one after as the driver left it, and they differ by 20 to 40 ns; what the real call finds lies
  between the two. Subtracting the second one alone says 5 % too much or too little.
- Nothing else between two readings of the clock, neither the test of a code nor a growing list.

What remains is what the interpreter does to the caches: on an H100 a launch is 0.1 to 0.5 us longer
than in a C loop that does nothing else, as it is in a C program that does (docs/results).

A sequence that ends with a wait has no null call for the wait: from the last submission on, the GPU
works while the interpreter comes back, goes round and calls again, and what is done by then
costs nothing. What is left, the way into the first call and out of the last one, is one call.

The same holds for every call after the first where the GPU is slower than the host. The final wait
does not tell whether it was: a GPU that takes longer than a call, and less than a call and the
interpreter, is behind a C program and waits for this one; and a driver that sends launches in
batches makes the wait long on a fast GPU. So the GPU's own time is measured as well, and no more
null calls are subtracted than leave that time.
"""

from __future__ import annotations

import time
from array import array

from gpud.child.device import verification_failed
from gpud.child.summary import summarised
from gpud.child.warmup import sized
from gpud.core.record import Record, replace
from gpud.core.stats import median

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.child.cuda_gpu import Gpu
    from gpud.child.device import Call
    from gpud.child.progress import Budget
    from gpud.child.warmup import Load
    from gpud.core.sample import Sample, Unit

BURST = 250
"""Launches between two untimed waits: the driver's queue is finite, and a full one blocks."""
QUEUED, PILOTS = 9, 5
AHEAD, LEAST_AHEAD_S = 4, 50e-6
"""How long a load lasts beside the queueing it shall cover, and at least."""
NS = 1e-9


class Timed(Record):
    """Seconds of n real calls and of the 2 n null calls around them."""

    real: tuple[float, ...]
    null: tuple[float, ...]
    bound: str | None = None  # of a sequence: what it waited for, "gpu" or "host"

    @property
    def net_s(self) -> float:
        """The median call, less the median null."""
        return median(self.real) - median(self.null)

    def sample(self, mode: str, unit: Unit, *, with_buckets: bool = False) -> Sample:
        """Reduce it to the figures of one mode."""
        return summarised(
            self.real, mode=mode, unit=unit, null=self.null, with_buckets=with_buckets
        )


def bounded(timed: Timed, calls: int, least_s: float) -> Timed:
    """Correct sequences of ``calls`` calls for null calls that the GPU has hidden.

    Without all of them a sequence may be shorter than ``least_s``: what its first call takes alone,
    wait included, and the GPU's own time for the others. So much of them is added to ``real`` again
    as was hidden, and all but one at most. Units: seconds, divided as ``timed`` is.
    """
    hidden_s = min(least_s - timed.net_s, median(timed.null) * (calls - 1) / calls)
    if hidden_s <= 0:
        return replace(timed, bound="host")
    return replace(timed, real=tuple(each + hidden_s for each in timed.real), bound="gpu")


def single_calls(gpu: Gpu, call: Call, count: int, budget: Budget) -> Timed:
    """Time ``count`` calls that are not waited for, in blocks of 250 with an untimed wait.

    Units: seconds per call. Errors: ``ProbeError`` from the first call that is refused.
    """
    real, null, clock = call.real, call.null, time.perf_counter_ns
    taken, nothing = _nanoseconds(count), _nanoseconds(2 * count)
    for first in range(0, count, BURST):
        gpu.about(call)
        for place in range(first, min(first + BURST, count)):
            begun = clock()
            idle = null()
            before = clock()
            code = real()
            after = clock()
            idle = null()
            ended = clock()
            taken[place] = after - before
            nothing[2 * place] = before - begun
            nothing[2 * place + 1] = ended - after
            if code or idle:
                gpu.check(code, call)
        gpu.about(gpu.wait)
        gpu.check(gpu.wait.real(), gpu.wait)
        budget.check()
    return _timed(taken, nothing, 1)


def sequences(  # noqa: PLR0913  # the last three belong to a single mode each
    gpu: Gpu,
    calls: Sequence[Call],
    count: int,
    budget: Budget,
    *,
    per: int = 1,
    visible: int | None = None,
    behind: Call | None = None,
) -> Timed:
    """Time ``count`` sequences of calls, the last of which is a wait for those before it.

    ``visible``: the first so many calls have a null call, all but the last unless told; the GPU
    hides the interpreter before the others. ``behind`` is called, untimed, after each sequence.
    Units: seconds per sequence, divided by ``per``. Errors: ``ProbeError``; a call that is refused
    is the last of its sequence.
    """
    shown = len(calls) - 1 if visible is None else visible
    reals, nulls = [call.real for call in calls], [call.null for call in calls[:shown]]
    clock = time.perf_counter_ns
    taken, nothing = _nanoseconds(count), _nanoseconds(2 * count)
    gpu.about(*calls, *(() if behind is None else (behind,)))
    for place in range(count):
        begun = clock()
        for null in nulls:
            if idle := null():
                break
        before = clock()
        for real in reals:
            if code := real():
                break
        after = clock()
        for null in nulls:
            if idle := null():
                break
        ended = clock()
        taken[place] = after - before
        nothing[2 * place] = before - begun
        nothing[2 * place + 1] = ended - after
        if code or idle:
            gpu.check(code, calls[reals.index(real)])
        if behind is not None:
            gpu.check(behind.real(), behind)
        budget.check()
    return _timed(taken, nothing, per)


def occupying(gpu: Gpu, calls: Sequence[Call], budget: Budget) -> Load:
    """Make a load that keeps the GPU busy for longer than the host needs to queue these calls.

    Errors: ``ProbeError``.
    """
    queueing_s = median(sequences(gpu, (*calls, gpu.wait), QUEUED, budget).real)
    target_s = max(LEAST_AHEAD_S, AHEAD * queueing_s)
    ahead, _ = sized(gpu, target_s)
    while _lasting(gpu, ahead) < target_s / 2:
        small, ahead = ahead, ahead.doubled()
        small.close()
        budget.check()
    return ahead


def _lasting(gpu: Gpu, ahead: Load) -> float:
    """Give how long a load keeps the GPU busy: the second of two begins when the first one ends.

    Alone it is timed from before the launch is there, and a short one looks long.
    """
    alone_s = ahead.timed()
    return gpu.timed(ahead.call, 2) - alone_s


def gpu_time(gpu: Gpu, calls: Sequence[Call], ahead: Load, count: int) -> tuple[float, ...]:
    """Time calls on the GPU itself, between two events that are queued behind other work.

    On an idle GPU the first event would pass at once, and the interval would be how long the host
    needs to send the rest. ``ahead`` keeps the GPU busy until all of it is queued.
    Shapes: float[count]. Units: seconds. Errors: ``ProbeError``.
    """
    first, last = gpu.first, gpu.last
    queued = (ahead.call, first, *calls, last)
    seconds = []
    for _ in range(count):
        gpu.about(*queued)
        for each in queued:
            gpu.check(each.real(), each)
        seconds.append(gpu.between())
    gpu.busy_s += sum(seconds) + count * ahead.seconds
    return tuple(seconds)


def behind_load(gpu: Gpu, budget: Budget, *rows: Sequence[Call]) -> list[float]:
    """Give the median GPU time of rows of calls that are queued behind other work; account for all.

    Units: seconds. Errors: ``ProbeError``.
    """
    first, last = gpu.first, gpu.last
    ahead = occupying(gpu, (first, *max(rows, key=len), last), budget)
    taken_s = [median(gpu_time(gpu, calls, ahead, PILOTS)) for calls in rows]
    ahead.close()
    gpu.busy_s += QUEUED * max(taken_s)
    return taken_s


def verify_launches(gpu: Gpu, seed: int) -> None:
    """Launch a counting kernel from a new start and look whether it ran as often as asked.

    Errors: ``ProbeError`` (verification_failed) with both counts.
    """
    counter = gpu.alloc(4)
    start = seed % 1_000_000
    gpu.fill(counter, start)
    call = gpu.launch(gpu.kernel("gpud_count"), (1, 1), (1, 1), counter)
    gpu.about(call)
    for _ in range(BURST):
        gpu.check(call.real(), call)
    counted = int.from_bytes(gpu.download(counter), "little") - start
    if counted != BURST:
        raise verification_failed(f"{BURST} launches were made and {counted} counted")


def _nanoseconds(count: int) -> array[int]:
    """Room for readings, taken beforehand: the heap shall not grow between two calls."""
    return array("q", bytes(8 * count))


def _timed(taken: array[int], nothing: array[int], per: int) -> Timed:
    scale = NS / per
    return Timed(tuple(ns * scale for ns in taken), tuple(ns * scale for ns in nothing))
