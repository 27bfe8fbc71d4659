"""Every stream's detector, and the generations its figures are of: runs in, what they decide out.

Pure and incremental, like the detectors themselves: the same runs and commands in the same order
give the same state, whether they come live or out of the history.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gpud.core import contexts
from gpud.core.commands import BASELINE_ACCEPTED, BASELINE_RESET
from gpud.core.contexts import Contexts
from gpud.core.detector import Detector, restored, saved
from gpud.core.errors import WireError
from gpud.core.sample import Unit
from gpud.core.streams import JUDGED, observations

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from gpud.core.commands import Command
    from gpud.core.contexts import Difference
    from gpud.core.detector import Alarm, Parameters, Standing, Verdict
    from gpud.core.streams import Figures, StreamKey


@dataclass(slots=True)
class Stream:
    """One stream in memory. ``last_s``: when its latest sample was taken, judged or not."""

    detector: Detector
    unit: Unit
    last_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Decided:
    """A stream's alarm, with people's names for the drivers, and in what else the machine differs.

    ``standing`` is how the stream stands after it.
    """

    key: StreamKey
    unit: Unit
    alarm: Alarm
    standing: Standing
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class Settled:
    """A verdict on a driver update that will not change any more; ``at_s``: of its last sample."""

    key: StreamKey
    unit: Unit
    verdict: Verdict
    at_s: float


@dataclass(frozen=True, slots=True)
class Taken:
    """What one run did: which streams it is of, and what it decided."""

    keys: tuple[StreamKey, ...] = ()
    decided: tuple[Decided, ...] = ()
    settled: tuple[Settled, ...] = ()


@dataclass(slots=True)
class Judging:
    """The state of all streams.

    ``first_seq``: where the numbers of a stream's samples begin if it is not known yet, so that an
    alarm of a stream that is learnt anew is none of those that were told.
    """

    parameters: Parameters
    gpu: Contexts = field(default_factory=lambda: Contexts(contexts.OF_A_GPU))
    cpu: Contexts = field(default_factory=lambda: Contexts(contexts.OF_THE_CPU))
    streams: dict[StreamKey, Stream] = field(default_factory=dict)
    first_seq: Mapping[StreamKey, int] = field(default_factory=dict)
    newest_s: float = 0.0  # of the latest run

    def take(self, run: Figures, only: Collection[StreamKey] | None = None) -> Taken:
        """Take a run in; ``only`` names the streams that are to learn from it, None for all.

        A run that failed says nothing: what a broken driver tells of itself is nobody's context.
        """
        if not run.medians:
            return Taken()
        self.gpu, self.cpu = self.gpu.seen(run.conditions), self.cpu.seen(run.conditions)
        self.newest_s = run.finished_s
        of = self.cpu if run.gpu is None else self.gpu
        keys, decided, settled = [], [], []
        for key, unit, observation in observations(run, of.present.name):
            if only is not None and key not in only:
                continue
            stream = self.streams.get(key)
            if stream is None:
                stream = Stream(self._fresh(unit, self.first_seq.get(key, 0)), unit)
                self.streams[key] = stream
            before = stream.detector.settled
            alarm = stream.detector.push(observation)
            stream.last_s = run.finished_s
            keys.append(key)
            if alarm is not None:
                decided.append(self._decided(key, stream, alarm))
            verdict = stream.detector.settled
            if verdict is not None and verdict is not before:
                settled.append(Settled(key, unit, _verdict(verdict, of), run.finished_s))
        return Taken(tuple(keys), tuple(decided), tuple(settled))

    def of(self, run: Figures) -> set[StreamKey]:
        """Name the streams that a run is of."""
        return {key for key, _, _ in observations(run, contexts.UNKNOWN)}

    def obey(self, command: Command, only: Collection[StreamKey] | None = None) -> set[StreamKey]:
        """Do what a person said about baselines; give the streams that it is about."""

        def chosen(key: StreamKey) -> bool:
            return command.choice.holds(key) and (only is None or key in only)

        if command.kind == BASELINE_ACCEPTED:
            return set(self.accept(chosen))
        return set(self.reset(chosen)) if command.kind == BASELINE_RESET else set()

    def accept(self, chosen: Callable[[StreamKey], bool]) -> tuple[StreamKey, ...]:
        """Take what is now for the usual, in the streams that are ``chosen``; give those."""
        keys = tuple(key for key in self.streams if chosen(key))
        for key in keys:
            self.streams[key].detector.accept()
        return keys

    def reset(self, chosen: Callable[[StreamKey], bool]) -> tuple[StreamKey, ...]:
        """Learn the streams that are ``chosen`` anew; give those."""
        keys = tuple(key for key in self.streams if chosen(key))
        for key in keys:
            stream = self.streams[key]
            stream.detector = self._fresh(stream.unit, stream.detector.door.seen)
        return keys

    def standing(self, key: StreamKey) -> Standing:
        """Say how a stream stands, with people's names for the drivers."""
        of = self._contexts(key)
        now = self.streams[key].detector.standing()
        return replace(
            now,
            open=tuple(_alarm(alarm, of) for alarm in now.open),
            verdict=None if now.verdict is None else _verdict(now.verdict, of),
        )

    def gone(self, quiet_s: float) -> tuple[StreamKey, ...]:
        """Name the streams of which no sample has come for longer than ``quiet_s``."""
        return tuple(
            key for key, stream in self.streams.items() if self.newest_s - stream.last_s > quiet_s
        )

    def adopt(self, other: Judging) -> None:
        """Take over the streams that ``other`` has learnt from the same runs."""
        self.streams |= other.streams
        self.gpu, self.cpu = other.gpu, other.cpu

    def saved_contexts(self) -> dict[str, Any]:
        """Give what all streams share as plain JSON data."""
        return {"gpu": self.gpu.saved(), "cpu": self.cpu.saved(), "newest_s": self.newest_s}

    def restore_contexts(self, state: Mapping[str, Any]) -> None:
        """Read back what ``saved_contexts`` gave. Errors: ``WireError``, and nothing is changed."""
        try:
            gpu, cpu = Contexts.restored(state["gpu"]), Contexts.restored(state["cpu"])
            self.newest_s = float(state["newest_s"])
        except (KeyError, TypeError, ValueError) as error:
            raise WireError(f"contexts are damaged: {type(error).__name__}: {error}") from error
        self.gpu, self.cpu = gpu, cpu

    def saved_stream(self, key: StreamKey) -> dict[str, Any]:
        """Give the state of one stream as plain JSON data."""
        stream = self.streams[key]
        return {
            "unit": stream.unit.value,
            "last_s": stream.last_s,
            "detector": saved(stream.detector),
        }

    def restore_stream(self, key: StreamKey, state: Mapping[str, Any]) -> None:
        """Read back what ``saved_stream`` gave. Errors: ``WireError``, and nothing is changed."""
        try:
            unit, last_s = Unit(state["unit"]), float(state["last_s"])
            detector = restored(state["detector"], self.parameters)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise WireError(f"{key}: {type(error).__name__}: {error}") from error
        if detector.direction is not JUDGED.get(unit):
            raise WireError(f"{key}: {unit} is judged the other way round")
        self.streams[key] = Stream(detector, unit, last_s)

    def alarms_beside(self, key: StreamKey) -> Iterable[tuple[StreamKey, Alarm]]:
        """Give the open alarms of the other streams of the same GPU, and of the CPU's."""
        for other, stream in self.streams.items():
            if other != key and other.gpu in {key.gpu, None}:
                of = self._contexts(other)
                for alarm in stream.detector.open:
                    yield other, _alarm(alarm, of)

    def _fresh(self, unit: Unit, seq: int) -> Detector:
        made = Detector(JUDGED[unit], self.parameters)
        made.door.seen = seq
        return made

    def _contexts(self, key: StreamKey) -> Contexts:
        return self.cpu if key.gpu is None else self.gpu

    def _decided(self, key: StreamKey, stream: Stream, alarm: Alarm) -> Decided:
        of = self._contexts(key)
        differences = of.difference(alarm.old_driver, alarm.new_driver)
        return Decided(key, stream.unit, _alarm(alarm, of), self.standing(key), differences)


def _alarm(alarm: Alarm, of: Contexts) -> Alarm:
    old, new = of.label(alarm.old_driver), of.label(alarm.new_driver)
    return replace(alarm, old_driver=old, new_driver=new)


def _verdict(verdict: Verdict, of: Contexts) -> Verdict:
    old, new = of.label(verdict.old_driver), of.label(verdict.new_driver)
    return replace(verdict, old_driver=old, new_driver=new)
