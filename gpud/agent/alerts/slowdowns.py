"""Incidents of slowness: the detector's alarms, grouped by their cause, one alert for each.

The alarms of one update are one incident, on all streams and GPUs; so are those of one GPU that
began together under the same driver. An alarm alone is a suspect and no alert until another stream
agrees, or the same stream does over a second window: with thirty streams a GPU, one is wrong with
every tenth update. An alarm may be added twice: a replay does that. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpud.agent.alerts import causes
from gpud.agent.alerts.message import plain
from gpud.agent.regression.detector import ChangeKind
from gpud.agent.regression.detector.model import SLACK_S, alike, confirmed
from gpud.agent.regression.evaluation import StreamAlarm
from gpud.core.alerts import DRIVER_REGRESSION, SLOWDOWN, Cause
from gpud.core.streams import StreamKey
from gpud.units import utc

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from gpud.agent.regression.detector import Alarm, StreamStanding

CRITICAL_FROM = 1.5
"""A slowdown from which on somebody should look now; noise has never been so slow."""
LONGEST_WINDOW, SHORTEST_WINDOW = 120, 8
"""Samples of a second window; it is as long as the first one, within these."""


class AlarmFinding(StreamAlarm, frozen=True):
    """An alarm of one stream, and what may have caused it, by ``gpud.agent.alerts.causes``."""

    causes: tuple[Cause, ...] = ()

    @property
    def id(self) -> tuple[StreamKey, int]:
        """The stream, and the sample of it that raised the alarm."""
        return self.key, self.alarm.seq

    @property
    def slowdown(self) -> float:
        """How much slower, 1.12 for 12 %, whatever the unit: of a rate less is worse."""
        ratio = self.alarm.effect.ratio
        return max(ratio, 1 / ratio)

    @property
    def updates(self) -> list[tuple[str, str, str]]:
        """What an update replaced, the most likely cause first: ("driver", "572.16", "576.02")."""
        named = [
            (plain(cause.kind), plain(cause.old), plain(cause.new))
            for cause in causes.ordered(self.changed)
            if cause.old is not None and cause.new is not None
        ]
        old, new = plain(self.alarm.old_driver), plain(self.alarm.new_driver)
        return named or [(causes.DRIVER, old, new)]

    @property
    def brought(self) -> set[tuple[str, str]]:
        """What the update brought. A stream that missed one has replaced another old version."""
        return {(kind, new) for kind, _, new in self.updates}


class Incident(msgspec.Struct):
    """Findings of one cause. It ends with the last of them; the same cause later is another one.

    Without a name it is a suspect: one finding that nothing confirms yet, of a stream that had
    judged ``judged`` samples when its window began. ``ended`` has the last finding of each stream
    that came back.
    """

    findings: list[AlarmFinding] = msgspec.field(name="found")
    judged: int = 0
    name: str = ""
    labels: dict[str, str] = {}
    starts_s: float = 0.0
    updated_s: float = 0.0
    ended: list[AlarmFinding] = []
    ends_s: float | None = None
    acknowledged_s: float | None = None  # of version 0.1; the row of the alert has it now

    @property
    def of_update(self) -> bool:
        """Whether an update is the cause, of the driver or of what it runs on."""
        return "old" in self.labels

    @property
    def every(self) -> list[AlarmFinding]:
        """The findings that last, and those that ended."""
        return [*self.findings, *self.ended]

    @property
    def since_s(self) -> float:
        """When the update came, else when the first stream changed."""
        updates = [f.alarm.since_s for f in self.every if not f.alarm.suspect]
        return min(updates or [f.alarm.since_s for f in self.every])

    def on(self, gpu: str | None) -> bool:
        """Return whether it concerns a GPU, by UUID; None is the CPU."""
        return any(finding.key.gpu == gpu for finding in self.every)

    def add(self, findings: list[AlarmFinding], now_s: float) -> None:
        """Add findings."""
        self.findings += findings
        self.updated_s = now_s

    def end(self, is_over: Callable[[AlarmFinding], bool], now_s: float) -> bool:
        """End findings, with the last of them the incident; return whether any ended."""
        over = [finding for finding in self.findings if is_over(finding)]
        if over:
            streams = {finding.key for finding in over}
            self.ended = [*(f for f in self.ended if f.key not in streams), *over]
            self.findings = [finding for finding in self.findings if finding not in over]
            self.updated_s = now_s
            if not self.findings:  # never before it began, whatever the clock was set to
                self.ends_s = self.updated_s = max(now_s, self.starts_s)
        return bool(over)


class Slowdowns:
    """Suspects, incidents that fire, and those that ended since they were last dropped.

    ``revision`` counts changes.
    """

    def __init__(self) -> None:
        self.incidents: list[Incident] = []
        self.revision = 0

    @property
    def firing(self) -> list[Incident]:
        """The incidents that began and have not ended."""
        return [i for i in self.incidents if i.name and i.ends_s is None]

    @property
    def suspects(self) -> list[Incident]:
        """Those that nothing confirms yet."""
        return [incident for incident in self.incidents if not incident.name]

    @property
    def streams(self) -> frozenset[StreamKey]:
        """The streams on which an incident rests that fires."""
        return frozenset(finding.key for i in self.firing for finding in i.findings)

    def drop_ended(self) -> None:
        """Forget the incidents that ended: their alerts have been written down."""
        self.incidents = [i for i in self.incidents if i.ends_s is None]

    def machine_slowed(self, incident: Incident) -> bool:
        """Return whether the CPU slowed at about the time at which the GPUs of an incident did."""
        return any(finding.key.gpu is not None for finding in incident.every) and any(
            other.on(None) and abs(other.since_s - incident.since_s) <= SLACK_S
            for other in self.firing
        )

    def add(self, finding: AlarmFinding, now_s: float) -> None:
        """Take in an alarm; an improvement is no incident, and ends what it ends."""
        if finding.id in (f.id for incident in self.incidents for f in incident.every):
            return
        alarm = finding.alarm
        self._end(lambda f: f.key == finding.key and f.alarm.seq in alarm.closes, now_s)
        if alarm.closes and not alarm.suspect:
            self._end(lambda f: _blames_replaced_driver(f, finding), now_s)
        if not alarm.worse:
            return
        agreeing = [s for s in self.suspects if _agree(s.findings[0], finding)]
        joins = any(_same_cause(incident, finding) for incident in self.firing)
        certain = not alarm.suspect and finding.slowdown >= CRITICAL_FROM
        suspect = Incident([finding], finding.judged)
        self.incidents.append(suspect)
        if joins or agreeing or certain:
            self._confirm(suspect, agreeing, now_s)
        self.revision += 1

    def observe(self, stream: StreamKey, standing: StreamStanding, now_s: float) -> None:
        """Take in the state of a stream: alarms no longer open end, a suspect is confirmed.

        The second window is as long as the first one was and follows it. At its end the alarm has
        to be open and the latest samples to have half of its shift, else another window begins.
        """
        self._end(
            lambda finding: (
                finding.key == stream
                and finding.alarm.seq < standing.seen
                and not any(_is_alarm_of(finding, alarm) for alarm in standing.open)
            ),
            now_s,
        )
        for suspect in self.suspects:
            finding = suspect.findings[0]
            window = min(max(finding.alarm.samples, SHORTEST_WINDOW), LONGEST_WINDOW)
            waits = finding.key != stream or standing.judged - suspect.judged < window
            if waits or suspect not in self.suspects:  # which another one may have taken with it
                continue
            if _persists(finding, standing):
                self._confirm(suspect, (), now_s)
            else:
                suspect.judged = standing.judged
            self.revision += 1

    def forget(self, stream: StreamKey, now_s: float) -> None:
        """End what rests on a stream that was accepted, reset or removed."""
        self._end(lambda finding: finding.key == stream, now_s)

    def _confirm(self, suspect: Incident, agreeing: Collection[Incident], now_s: float) -> None:
        """Make a suspect part of the incident of its cause, else one with those that agree."""
        finding = suspect.findings[0]
        incident = next((i for i in self.firing if _same_cause(i, finding)), None)
        parts = [suspect] if incident is not None else [*agreeing, suspect]
        findings = [part.findings[0] for part in parts]
        if incident is None:
            name, labels = _named(findings)
            same = (i for i in self.firing if (i.name, i.labels) == (name, labels))
            if (incident := next(same, None)) is None:
                incident = Incident([], 0, name, labels, now_s)
                self.incidents.append(incident)
        self.incidents = [i for i in self.incidents if i not in parts]
        incident.add(findings, now_s)
        if incident.of_update:
            self._absorb(incident, now_s)

    def _absorb(self, update: Incident, now_s: float) -> None:
        """Move into the incident of an update what came with it as a suspect or on its own."""
        for other in (*self.suspects, *self.firing):
            if not other.of_update and any(_same_cause(update, f) for f in other.findings):
                update.add(other.findings, now_s)
                other.end(lambda _: True, now_s)
        self._drop_suspects()

    def _end(self, is_over: Callable[[AlarmFinding], bool], now_s: float) -> None:
        ended = [incident.end(is_over, now_s) for incident in self.incidents]
        if any(ended):
            self._drop_suspects()
            self.revision += 1

    def _drop_suspects(self) -> None:
        self.incidents = [i for i in self.incidents if i.name or i.findings]


def _named(findings: list[AlarmFinding]) -> tuple[str, dict[str, str]]:
    """Name an incident: by an update if any finding is of one, else by GPU or CPU and moment."""
    update = next((finding for finding in findings if not finding.alarm.suspect), None)
    if update is not None:
        kind, old, new = update.updates[0]
        name = DRIVER_REGRESSION if kind in causes.OF_THE_DRIVER else SLOWDOWN
        return name, {"kind": kind, "old": old, "new": new}
    strongest = max(findings, key=lambda finding: finding.slowdown)
    since_s = min(finding.alarm.since_s for finding in findings)
    labels = {"kind": str(strongest.alarm.kind), "since": utc(since_s, "%Y-%m-%dT%H:%MZ")}
    if strongest.key.gpu is not None:
        labels["uuid"] = plain(strongest.key.gpu)
    return SLOWDOWN, labels


def _same_cause(incident: Incident, finding: AlarmFinding) -> bool:
    alarm = finding.alarm
    if not alarm.suspect:
        updates = [f for f in incident.every if not f.alarm.suspect]
        return any(finding.brought & update.brought for update in updates)
    if incident.of_update:  # a driver serves all GPUs; the CPU only where it slowed as well
        served = finding.key.gpu is not None or incident.on(None)
        return served and abs(alarm.since_s - incident.since_s) <= SLACK_S
    # Where a GPU and the CPU became slower it is the machine; two GPUs are two causes.
    together = incident.on(finding.key.gpu) or finding.key.gpu is None or incident.on(None)
    return together and confirmed(alarm, (f.alarm for f in incident.every))


def _agree(finding: AlarmFinding, other: AlarmFinding) -> bool:
    """Return whether two streams confirm each other: the same update, or the same GPU and time."""
    if finding.key == other.key:
        return False
    if not (finding.alarm.suspect or other.alarm.suspect):
        return bool(finding.brought & other.brought)
    return finding.key.gpu == other.key.gpu and alike(finding.alarm, other.alarm)


def _blames_replaced_driver(finding: AlarmFinding, back: AlarmFinding) -> bool:
    """Return whether a finding blames the driver that went when its stream's twin came back.

    The twin is the same figure on the other power source, or by another version of the method: days
    may pass before this stream has a sample, and the driver that it blames is gone.
    """
    ours, theirs = finding.key, back.key
    twin = (ours.gpu, ours.probe, ours.mode) == (theirs.gpu, theirs.probe, theirs.mode)
    return twin and not finding.alarm.suspect and finding.alarm.new_driver == back.alarm.old_driver


def _is_alarm_of(finding: AlarmFinding, alarm: Alarm) -> bool:
    """Return whether an open alarm of its stream is that of a finding.

    A stream that was learnt again counts its samples on, so its alarms have later numbers and not
    later moments.
    """
    ours = finding.alarm
    if alarm.seq <= ours.seq:
        return alarm.seq == ours.seq
    return alarm.worse and alarm.kind is ours.kind and alarm.at_s <= ours.at_s


def _persists(finding: AlarmFinding, standing: StreamStanding) -> bool:
    """Return whether the latest samples have half of a shift, on the scale of ratios.

    Slow samples are no part of a level: of their share all that is known is that it is open still.
    """
    if finding.alarm.kind is ChangeKind.SLOW_STATE:
        return True
    return standing.slowdown is not None and standing.slowdown >= finding.slowdown**0.5
