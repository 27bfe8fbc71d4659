"""Evaluation of runs: the detector of every stream, and the generations its figures are of.

Pure and incremental, like the detectors themselves: the same runs and commands in the same order
give the same state, whether they come live or out of the history.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import msgspec

from gpud.agent.regression import contexts
from gpud.agent.regression.commands import BASELINE_ACCEPTED, BASELINE_RESET
from gpud.agent.regression.contexts import Contexts
from gpud.agent.regression.detector import ENCODER, Detector, decode_hook
from gpud.agent.regression.streams import JUDGED, observations
from gpud.core.errors import WireError
from gpud.core.sample import Unit  # states are decoded by this type

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from gpud.agent.regression.commands import Command
    from gpud.agent.regression.contexts import Difference
    from gpud.agent.regression.detector import Alarm, Parameters, Standing, Verdict
    from gpud.agent.regression.streams import Figures
    from gpud.core.sample import StreamKey


class Stream(msgspec.Struct, forbid_unknown_fields=True):
    """One stream, as memory and history keep it. ``last_s``: when its latest sample was taken."""

    unit: Unit
    last_s: float
    detector: Detector


class SharedState(msgspec.Struct):
    """What all streams share. ``heard`` is the number of the last command that was obeyed."""

    gpu: Contexts
    cpu: Contexts
    newest_s: float = 0.0  # of the latest run
    heard: int = 0


_STREAM: Final = msgspec.json.Decoder(Stream, dec_hook=decode_hook)


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
    shared: SharedState = field(
        default_factory=lambda: SharedState(
            Contexts(contexts.OF_A_GPU), Contexts(contexts.OF_THE_CPU)
        )
    )
    streams: dict[StreamKey, Stream] = field(default_factory=dict)
    first_seq: Mapping[StreamKey, int] = field(default_factory=dict)

    def take(self, run: Figures, only: Collection[StreamKey] | None = None) -> Taken:
        """Take a run in; ``only`` names the streams that are to learn from it, None for all.

        A run that failed says nothing: what a broken driver tells of itself is nobody's context.
        """
        if not run.medians:
            return Taken()
        shared = self.shared
        shared.gpu, shared.cpu = shared.gpu.seen(run.conditions), shared.cpu.seen(run.conditions)
        shared.newest_s = run.finished_s
        of = shared.cpu if run.gpu is None else shared.gpu
        keys, decided, settled = [], [], []
        for key, unit, observation in observations(run, of.present.name):
            if only is not None and key not in only:
                continue
            stream = self.streams.get(key)
            if stream is None:
                detector = self._fresh(unit, self.first_seq.get(key, 0))
                stream = self.streams[key] = Stream(unit, run.finished_s, detector)
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
            stream.detector = self._fresh(stream.unit, stream.detector.intake.seen)
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
            key
            for key, stream in self.streams.items()
            if self.shared.newest_s - stream.last_s > quiet_s
        )

    def encoded(self, key: StreamKey) -> str:
        """Return the state of one stream, as the history keeps it."""
        return ENCODER.encode(self.streams[key]).decode()

    def restore(self, key: StreamKey, body: str) -> None:
        """Read back what ``encoded`` gave. Errors: ``WireError``, and nothing is changed."""
        try:
            stream = _STREAM.decode(body)
        except msgspec.MsgspecError as error:
            raise WireError(f"{key}: {error}") from error
        if stream.detector.direction is not JUDGED.get(stream.unit):
            raise WireError(f"{key}: {stream.unit} is judged the other way round")
        stream.detector.configured(self.parameters)
        self.streams[key] = stream

    def _fresh(self, unit: Unit, seq: int) -> Detector:
        made = Detector(JUDGED[unit]).configured(self.parameters)
        made.intake.seen = seq
        return made

    def _contexts(self, key: StreamKey) -> Contexts:
        return self.shared.cpu if key.gpu is None else self.shared.gpu

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
