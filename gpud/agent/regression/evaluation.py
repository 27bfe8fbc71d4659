"""Evaluation of runs: the detector of every stream, and the generations its figures are of.

Pure and incremental, like the detectors themselves: the same runs and commands in the same order
give the same state, whether they come live or out of the history.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from gpud.agent.regression.commands import BASELINE_ACCEPTED, BASELINE_RESET
from gpud.agent.regression.contexts import OF_A_GPU, OF_THE_CPU, Contexts
from gpud.agent.regression.detector import (
    ENCODER,
    Alarm,
    Detector,
    Direction,
    Observation,
    decode_hook,
)
from gpud.core.alerts import Cause
from gpud.core.errors import WireError
from gpud.core.sample import Backend, Unit  # states are decoded by the latter
from gpud.core.streams import StreamKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpud.agent.regression.commands import Command
    from gpud.agent.regression.detector import DriverVerdict, Spans, StreamStanding
    from gpud.core.sample import Condition, Flag, RunReport

JUDGED: Final = {
    unit: Direction.of(unit)
    for unit in (Unit.SECONDS, Unit.BYTES_PER_SECOND, Unit.FLOPS_PER_SECOND)
}
"""Evaluated units, and which way is good. A crossover moves in steps, and with the CPU as well."""


@dataclass(frozen=True, slots=True)
class RunFigures:
    """What evaluation needs of a finished run, whether it ends now or comes from the history.

    Units: ``finished_s`` is Unix time, the medians are in the units beside them. A failed run has
    none, and one of a GPU that nobody could name has no ``gpu`` although its backend is CUDA. The
    medians are in the order of the modes.
    """

    probe: str
    backend: str
    gpu: str | None
    finished_s: float
    medians: tuple[tuple[str, Unit, float], ...] = ()  # mode, unit, median
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    flags: tuple[Flag, ...] = ()


def figures(report: RunReport, finished_s: float, flags: Iterable[Flag]) -> RunFigures:
    """Take out of a report what evaluation needs."""
    samples = report.samples if report.failure is None else ()
    return RunFigures(
        report.probe,
        report.backend,
        report.device.uuid if report.device else None,
        finished_s,
        tuple(sorted((sample.mode, sample.unit, sample.median) for sample in samples)),
        report.conditions,
        tuple(flags),
    )


def observations(run: RunFigures, context: str) -> Iterator[tuple[StreamKey, Unit, Observation]]:
    """Yield what a run adds to which streams; nothing for one that brought no figures.

    ``context`` names what its figures compare with. Mains is where no battery is reported, and runs
    of before the version of a probe's method was stored were of the first.
    """
    if run.gpu is None and run.backend != Backend.CPU:
        return  # of which GPU is not known
    number = run.conditions.get("probe_version")
    version = number if type(number) is int else 1
    on_battery = run.conditions.get("after.ac") is False
    peer = run.conditions.get("peer")
    peer = peer if isinstance(peer, str) else None
    for mode, unit, median in run.medians:
        if unit in JUDGED:
            observation = Observation(run.finished_s, median, context, run.flags)
            key = StreamKey(run.gpu, run.probe, mode, version, on_battery, peer)
            yield key, unit, observation


class _Name(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A key as the history writes it: without a peer it ends one item earlier."""

    gpu: str | None
    probe: str
    mode: str
    version: int
    on_battery: bool
    peer: str | None = None


_NAME: Final = msgspec.json.Decoder(_Name)


def stream_name(key: StreamKey) -> str:
    """Write a key as the history does: `["GPU-...","launch","submit",1,false]`."""
    values = msgspec.structs.astuple(key)
    return msgspec.json.encode(values if key.peer else values[:-1]).decode()


def stream_key(name: str | bytes) -> StreamKey:
    """Read back what ``stream_name`` wrote. Errors: ``WireError`` for anything else."""
    try:
        return StreamKey(*msgspec.structs.astuple(_NAME.decode(name)))
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise WireError(f"{name[:80]!r} names no stream: {error}") from error


class StreamState(msgspec.Struct, forbid_unknown_fields=True):
    """One stream, as memory and history keep it. ``last_s``: when its latest sample was taken."""

    unit: Unit
    last_s: float
    detector: Detector


class SharedState(msgspec.Struct):
    """What all streams share. ``obeyed`` is the number of the last command."""

    gpu: Contexts
    cpu: Contexts
    newest_s: float = 0.0  # of the latest run
    obeyed: int = msgspec.field(default=0, name="heard")


_STREAM: Final = msgspec.json.Decoder(StreamState, dec_hook=decode_hook)


class StreamAlarm(msgspec.Struct, frozen=True):
    """An alarm of one stream. Its drivers are named as people do: "572.16", "576.02".

    ``judged`` counts the samples that the stream had judged by then. ``changed`` is what differs
    between the contexts before and after.
    """

    key: StreamKey
    unit: Unit
    alarm: Alarm
    judged: int
    changed: tuple[Cause, ...] = ()


@dataclass(frozen=True, slots=True)
class FinalVerdict:
    """A verdict on a driver update that will not change any more; ``at_s``: of its last sample."""

    key: StreamKey
    unit: Unit
    verdict: DriverVerdict
    at_s: float


@dataclass(slots=True)
class Results:
    """Results of runs: the streams that got samples, in order, alarms and verdicts."""

    keys: list[StreamKey] = field(default_factory=list)
    alarms: list[StreamAlarm] = field(default_factory=list)
    verdicts: list[FinalVerdict] = field(default_factory=list)


@dataclass(slots=True)
class Evaluator:
    """The state of all streams.

    ``first_seq``: where the numbers of a new stream's samples begin, 0 unless it is learnt again:
    its alarms must have other numbers than those that were raised before.
    """

    spans: Spans
    shared: SharedState = field(
        default_factory=lambda: SharedState(Contexts(OF_A_GPU), Contexts(OF_THE_CPU))
    )
    streams: dict[StreamKey, StreamState] = field(default_factory=dict)
    first_seq: Mapping[StreamKey, int] = field(default_factory=dict)

    def evaluate(self, run: RunFigures) -> Results:
        """Evaluate a run.

        A run that failed says nothing: what a broken driver reports of itself is no context.
        """
        results, shared = Results(), self.shared
        if not run.medians:
            return results
        shared.gpu, shared.cpu = shared.gpu.after(run.conditions), shared.cpu.after(run.conditions)
        shared.newest_s = run.finished_s
        context = (shared.cpu if run.gpu is None else shared.gpu).present.name
        for key, unit, observation in observations(run, context):
            self._push(key, unit, observation, results)
        return results

    def _push(self, key: StreamKey, unit: Unit, observation: Observation, results: Results) -> None:
        stream = self.streams.get(key)
        if stream is None:
            detector = self._new_detector(unit, self.first_seq.get(key, 0))
            stream = self.streams[key] = StreamState(unit, 0.0, detector)
        before, of = stream.detector.settled, self._contexts(key)
        alarm = stream.detector.push(observation)
        stream.last_s = observation.at_s
        results.keys.append(key)
        if alarm is not None:
            changed = of.difference(alarm.old_driver, alarm.new_driver)
            named = _with_labels(alarm, of)
            judged = stream.detector.standing().judged
            results.alarms.append(StreamAlarm(key, unit, named, judged, changed))
        verdict = stream.detector.settled
        if verdict is not None and verdict is not before:
            named_verdict = _with_labels(verdict, of)
            results.verdicts.append(FinalVerdict(key, unit, named_verdict, observation.at_s))

    def obey(self, command: Command) -> set[StreamKey]:
        """Accept the present level of the chosen streams or learn them again; return those."""
        if command.kind not in {BASELINE_ACCEPTED, BASELINE_RESET}:
            return set()
        keys = {key for key in self.streams if command.choice.holds(key)}
        for stream in map(self.streams.__getitem__, keys):
            if command.kind == BASELINE_ACCEPTED:
                stream.detector.accept()
            else:
                stream.detector = self._new_detector(stream.unit, stream.detector.intake.next_seq)
        return keys

    def standing(self, key: StreamKey) -> StreamStanding:
        """Say how a stream stands, with its unit and people's names for the drivers."""
        stream, of = self.streams[key], self._contexts(key)
        now = stream.detector.standing()
        alarms = tuple(_with_labels(alarm, of) for alarm in now.open)
        verdict = None if now.verdict is None else _with_labels(now.verdict, of)
        return replace(now, open=alarms, verdict=verdict, unit=stream.unit)

    def quiet(self, span_s: float) -> set[StreamKey]:
        """Name the streams of which no sample has come for longer than ``span_s``."""
        newest_s = self.shared.newest_s
        return {key for key, stream in self.streams.items() if newest_s - stream.last_s > span_s}

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
            raise WireError(f"{key}: {stream.unit} has the other direction")
        stream.detector.covering(self.spans)
        self.streams[key] = stream

    def _new_detector(self, unit: Unit, seq: int) -> Detector:
        detector = Detector(JUDGED[unit]).covering(self.spans)
        detector.intake.next_seq = seq
        return detector

    def _contexts(self, key: StreamKey) -> Contexts:
        return self.shared.cpu if key.gpu is None else self.shared.gpu


_T = TypeVar("_T", "Alarm", "DriverVerdict")


def _with_labels(result: _T, of: Contexts) -> _T:
    old, new = of.label(result.old_driver), of.label(result.new_driver)
    return replace(result, old_driver=old, new_driver=new)
