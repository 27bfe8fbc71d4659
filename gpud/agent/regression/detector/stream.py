"""One stream, sample by sample: levels, the trial of an update, alarms and what ends them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

import msgspec

from gpud.agent.regression.detector import parameters, windows
from gpud.agent.regression.detector.intake import SETTLING, Grouped, Intake, Silence, combined
from gpud.agent.regression.detector.level import Integers, LevelChange, LevelSample, SpeedLevel
from gpud.agent.regression.detector.model import (
    Alarm,
    ChangeKind,
    Direction,
    DriverVerdict,
    Effect,
    Observation,
    StreamStanding,
    VerdictState,
)
from gpud.agent.regression.detector.parameters import Spans
from gpud.agent.regression.detector.share import Busy, Share
from gpud.agent.regression.detector.windows import Trial
from gpud.core.sample import Flag
from gpud.core.stats import FEWEST_USUAL, median

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

DIGITS = 7
"""Of a logarithm: a hundred-thousandth of a percent is no change."""
LATEST = 20
"""Samples whose median is what a stream is like now."""
RETURNED = 250
"""Samples that are as they were before an alarm, and end it where no step back was seen: one of 8 %
is found among 240."""
MOST_OPEN = 8
TOO_FEW = "the old driver brought too few samples to compare with"
CAME_BACK = "the old driver came back before there was a verdict"
OVERTAKEN = "another change came before there was a verdict"
ACCEPTED = "what it brought was taken for the usual before there was a verdict"
MARKED = "hardly a run of it can be judged, most are marked {why}"
LEAST_ACCEPTED = 0.01
"""A shift of a level that is nothing to accept, whatever its noise."""
UNRECORDED = "unrecorded"
"""The driver of recorded samples that name none."""


class Detector(msgspec.Struct, dict=True, forbid_unknown_fields=True):
    """One stream: one GPU, one probe, one mode. Bounded state, no clock, no I/O.

    The fields are the whole state, as the history keeps it. ``settled`` is the last verdict that
    was reached; ``judged`` counts samples.
    """

    direction: Direction
    intake: Intake = msgspec.field(default_factory=Intake, name="door")
    group: list[Grouped] = msgspec.field(default_factory=list, name="gather")
    share: Share = msgspec.field(default_factory=Share)
    busy: Busy = msgspec.field(default_factory=Busy)
    silence: Silence = msgspec.field(default_factory=Silence)
    level: SpeedLevel = msgspec.field(default_factory=lambda: SpeedLevel(""))
    left: Any = msgspec.UNSET  # levels that version 0.1 kept; nobody reads them
    trial: Trial | None = None
    settled: DriverVerdict | None = msgspec.field(default=None, name="verdict")
    open: list[Alarm] = []
    judged: int = 0
    last_judged_s: float | None = None
    version: Literal[2] = 2  # raised when a state of before would be misread

    def __post_init__(self) -> None:
        """Drop what nothing reads any more."""
        self.left = msgspec.UNSET

    def covering(self, spans: Spans) -> Detector:
        """Cover these spans before a change is believed; returns itself."""
        self.intake.spans = spans
        return self

    def push(self, observation: Observation) -> Alarm | None:
        """Take one sample in; give the alarm that it decides, if any.

        Samples come in the order in which they were taken, whatever the clock said. One that
        cannot be a measurement is counted in ``standing().refused`` and changes nothing else.
        """
        intake = self.intake
        seq, at_s = intake.next_seq, observation.at_s
        if intake.refuse(observation):
            return None
        if intake.driver is None:
            self.level.driver = observation.driver
        if intake.enter(observation):  # another driver
            self.level = self._after_update(observation, seq)
        if not intake.settled(at_s):
            self.silence.add(at_s, SETTLING)
            return None
        marks = intake.marks(observation)
        self.silence.add(at_s, next((flag.value for flag in Flag if flag in marks), ""))
        point = LevelSample(seq, at_s, self._logarithm(observation.value))
        intake.together = intake.group_size()
        if Flag.JUMPED not in marks and seq % intake.together == 0:
            self.busy.add(point, intake, busy=Flag.BUSY in marks)
        if marks - {Flag.LOW}:
            return None
        if not marks:
            self.judged += 1
            self.last_judged_s = at_s
        self.group.append(Grouped(seq, at_s, point.y, int(bool(marks))))
        if len(self.group) < intake.together:
            return None
        sample, slow = combined(self.group)
        self.group = []
        return self._evaluated(sample, point, slow=slow)

    def _evaluated(self, sample: LevelSample, latest: LevelSample, *, slow: bool) -> Alarm | None:
        """Evaluate a sample or the one that stands for a group, of which ``latest`` is the last."""
        self.share.add(sample, slow=slow)
        alarm = None
        if not slow:
            self.level.add(sample)
            alarm = self._trial_alarm(latest) or self._same_driver_alarm(latest)
            if alarm is None and self.open:
                self._let_go()
        return alarm or self._share_alarm(latest)  # a moved share can wait for the next sample

    def accept(self) -> None:
        """Take the present level for the usual one: what a person may say to an open alarm.

        What is known of the level's noise and power states stays; a slide that goes on moves it to
        where it is now, and an update on trial has no verdict any more.
        """
        self.open.clear()
        level = self.level
        latest = level.latest(min(LATEST, level.count))
        reference = level.reference(without=0)
        if reference is not None and len(latest) >= FEWEST_USUAL:
            shift = reference.located(latest).mean
            if abs(shift) > max(LEAST_ACCEPTED, 2 * reference.noise(len(latest))):
                level.rebase(shift)
        if self.trial is not None:
            self._settle(VerdictState.NONE, why=ACCEPTED)

    @property
    def verdict(self) -> DriverVerdict | None:
        """What is known about the latest driver update, None where there was none."""
        trial, m = self.trial, self.level.count
        if trial is None or trial.reported:
            return self.settled
        silent = self.silence.why
        past = [n for n in parameters.LOOKS if n <= m and self.intake.is_look(n)]
        limit = math.expm1(trial.limit(past[-1])) if past else None
        why = None if silent is None else MARKED.format(why=silent)
        return self._verdict(
            trial, VerdictState.UNDECIDED if past else VerdictState.LEARNING, None, limit, why
        )

    def _verdict(
        self,
        trial: Trial,
        state: VerdictState,
        effect: Effect | None,
        limit: float | None,
        why: str | None,
    ) -> DriverVerdict:
        """Describe an update by all that the new driver brought so far."""
        base, m, reference = trial.base, self.level.count, len(trial.before.values)
        since_s = trial.since_s
        return DriverVerdict(
            state, base.driver, trial.driver, since_s, m, reference, effect, limit, why
        )

    def standing(self) -> StreamStanding:
        """Give what people are shown: counts, levels, what is open."""
        enough = len(self.level.ys) >= FEWEST_USUAL
        now = median(self.level.latest(LATEST)) if enough else None
        befores = [
            self._logarithm(alarm.before) for alarm in self.open if not self._of_share(alarm)
        ]
        usual = min(befores) if befores else (self.level.centre if enough else None)
        return StreamStanding(
            seen=self.intake.next_seq,
            judged=self.judged,
            refused=dict(self.intake.refused),
            set_aside=dict(self.intake.set_aside),
            last_judged_s=self.last_judged_s,
            level=self._value(self.level.centre) if enough else None,
            slowdown=None if now is None or usual is None else math.exp(now - usual),
            slow_state_ratio=self.share.marks.ratio,
            open=tuple(self.open),
            verdict=self.verdict,
            busy_ratio=self.busy.marks.ratio,
            busy_before_ratio=self.busy.before,
            busy_since_s=self.busy.since_s,
            unjudged_since_s=self.silence.since_s,
            unjudged_for=self.silence.why,
        )

    def _after_update(self, observation: Observation, seq: int) -> SpeedLevel:
        """Give the level that a sample of another driver belongs to; open its trial.

        While an update is undecided the level before it goes on being the reference, unless the
        undecided driver is known as well by now.
        """
        driver, at_s = observation.driver, observation.at_s
        base, left = self.level, self.level.driver
        self.group = []
        if self.trial is not None:
            if driver == self.trial.base.driver:
                back = self.trial.base
                self._settle(VerdictState.NONE, why=CAME_BACK)
                return back
            if base.count < self.trial.base.count:
                base = self.trial.base
        if base.count >= FEWEST_USUAL and self.intake.fills_look(base.count):
            base.rest()
            self.trial = Trial(base, driver, seq, at_s, left)
        else:
            self.trial = None
            self.settled = DriverVerdict(
                VerdictState.NONE, base.driver, driver, at_s, 0, base.count, why=TOO_FEW
            )
        return SpeedLevel(driver)

    def _trial_alarm(self, point: LevelSample) -> Alarm | None:
        """Compare a new driver with the level before, if there is a trial."""
        trial = self.trial
        if trial is None:
            return None
        finding = trial.finding(self.level, self.intake)
        if finding is None:
            if self.level.count >= parameters.LOOKS[-1]:
                self._settle(VerdictState.NO_CHANGE)
            return None
        self._settle(_moved(finding), self._effect(finding))
        return self._alarm(finding, (trial.base.driver, trial.driver), point)

    def _same_driver_alarm(self, point: LevelSample) -> Alarm | None:
        """Look for a change under the same driver."""
        level = self.level
        finding = windows.change(level, self.intake)
        if finding is None:
            return None
        if self.trial is not None:
            self._settle(VerdictState.NONE, why=OVERTAKEN)
        self.level = SpeedLevel(level.driver).extended(finding.points)
        return self._alarm(finding, (level.driver, level.driver), point)

    def _share_alarm(self, point: LevelSample) -> Alarm | None:
        """Look for a share of slow samples that moved, with an update or under the same driver."""
        trial = self.trial
        open_trial = None if trial is None or trial.reported else trial
        since_seq = None if open_trial is None else open_trial.since_seq
        finding = self.share.change(since_seq, self.intake)
        if finding is None:
            return None
        self.share.marks.restart(finding.points)
        slack = parameters.SHARE_WINDOW // 4 * self.intake.together  # as roughly is it placed
        if open_trial is None or abs(finding.first.seq - open_trial.since_seq) > slack:
            return self._alarm(finding, (self.level.driver, self.level.driver), point)
        open_trial.reported = True
        self.settled = DriverVerdict(
            state=_moved(finding),
            old_driver=open_trial.left,
            new_driver=open_trial.driver,
            since_s=open_trial.since_s,
            samples=len(finding.points),
            reference=finding.reference,
            effect=self._effect(finding),
        )
        return self._alarm(finding, (open_trial.left, open_trial.driver), point)

    def _alarm(self, finding: LevelChange, drivers: tuple[str, str], point: LevelSample) -> Alarm:
        """Build the alarm that ``point`` decided, and open it or close those that it ends."""
        worse = finding.shift > 0
        after = finding.before + finding.shift
        alarm = Alarm(
            kind=finding.kind,
            worse=worse,
            seq=point.seq,
            at_s=point.at_s,
            since_seq=finding.first.seq,
            since_s=finding.first.at_s,
            effect=self._effect(finding),
            before=self._value(finding.before),
            after=self._value(after),
            old_driver=drivers[0],
            new_driver=drivers[1],
            samples=len(finding.points),
            reference=finding.reference,
        )
        if worse:
            self.open = [*self.open, alarm][-MOST_OPEN:]
            return alarm
        ended = [
            other
            for other in self.open
            if self._of_share(other) is self._of_share(alarm)
            and after <= self._logarithm(other.before) + parameters.NEAR
        ]
        self.open = [other for other in self.open if other not in ended]
        return replace(alarm, closes=tuple(other.seq for other in ended))

    def _let_go(self) -> None:
        """End the alarms whose slowness is over: it may go in steps too small for an alarm."""
        level = self.level
        if level.count < RETURNED:
            return
        now = median(level.latest(RETURNED))
        self.open = [
            alarm for alarm in self.open if self._of_share(alarm) or not self._over(now, alarm)
        ]

    def _over(self, now: float, alarm: Alarm) -> bool:
        """Return whether a level is near that of before an alarm, and nearer than to its own."""
        before, after = self._logarithm(alarm.before), self._logarithm(alarm.after)
        return now - before < min(parameters.NEAR, (after - before) / 2)

    def _of_share(self, alarm: Alarm) -> bool:
        """Say whether an alarm is of a share and no level: where the slow samples are marked."""
        return alarm.kind is ChangeKind.SLOW_STATE and bool(self.share.slow)

    def _settle(
        self, state: VerdictState, effect: Effect | None = None, why: str | None = None
    ) -> None:
        """End the trial with a verdict."""
        trial, m = self.trial, self.level.count
        self.trial = None
        if trial is not None and (effect is not None or not trial.reported):
            limit = None if why else math.expm1(trial.limit(m))
            self.settled = self._verdict(trial, state, effect, limit, why)

    def _effect(self, finding: LevelChange) -> Effect:
        shift, doubt = finding.shift, finding.doubt
        shifts = (shift, shift - doubt, shift + doubt)
        ratios = [self._value(shift) for shift in shifts]
        return Effect(ratios[0], min(ratios), max(ratios))

    def _logarithm(self, value: float) -> float:
        """Turn a value so that bigger is worse and a ratio is a difference."""
        return round(self.direction.sign * math.log(value), DIGITS)

    def _value(self, y: float) -> float:
        return math.exp(self.direction.sign * y)


def _moved(finding: LevelChange) -> VerdictState:
    return VerdictState.REGRESSED if finding.shift > 0 else VerdictState.IMPROVED


ENCODER: Final = msgspec.json.Encoder(enc_hook=list)  # of arrays
"""Writes states; ``decode_hook`` reads the arrays back."""


def decode_hook(kind: type[array[Any]], numbers: list[Any] | None) -> array[Any]:
    """Make an array of a list. Errors: ``ValueError`` for anything else."""
    try:
        return kind("q" if kind is Integers else "d", numbers or ())
    except (OverflowError, TypeError) as error:
        raise ValueError(f"no list of numbers: {error}") from error


class Detection(TypedDict):
    """One alarm, as an evaluation harness takes it."""

    index: int
    change_index: int
    ratio: float


def detect(
    timestamps: Sequence[float],
    values: Sequence[float],
    context: Sequence[str],
    direction: str,
    flags: Sequence[str] | None = None,
) -> list[Detection]:
    """Evaluate a recorded stream.

    Shapes: one entry a sample in each sequence; ``flags`` has '' or the value of one ``Flag``. An
    empty ``context`` is a driver like any other: a recording that names none is of one.
    Units: Unix seconds; values all of one unit. Errors: ``ValueError`` for an unknown direction or
    flag, or for sequences of different lengths.
    """
    words = flags if flags is not None else [""] * len(values)
    detector = Detector(Direction(direction))
    detections: list[Detection] = []
    for at_s, value, driver, word in zip(timestamps, values, context, words, strict=True):
        marks = (Flag(word),) if word else ()
        alarm = detector.push(Observation(at_s, value, driver or UNRECORDED, marks))
        if alarm is not None:
            detections.append(
                {
                    "index": alarm.seq,
                    "change_index": alarm.since_seq,
                    "ratio": alarm.effect.ratio,
                }
            )
    return detections
