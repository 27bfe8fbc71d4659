"""Incidents of slowness: the detector's alarms, gathered by their cause, one alert for each.

The alarms of one update are one incident, on all streams and GPUs; so are those of one GPU that
began together under the same driver. An alarm alone is a suspect and no alert until another stream
agrees, or the same stream does over a second window: with thirty streams a GPU, one is wrong with
every tenth update. An alarm may be added twice: a replay does that. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from gpud.agent.alerts import causes, wording
from gpud.agent.regression.causes import CPU, DRIVER, MACHINE, OF_THE_DRIVER
from gpud.agent.regression.detector import Alarm, ChangeKind
from gpud.agent.regression.detector.model import SLACK_S, alike, confirmed
from gpud.core.alerts import DRIVER_REGRESSION, SLOWDOWN, Alert, Cause, Severity
from gpud.core.sample import Unit
from gpud.core.stream_key import StreamKey

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from gpud.agent.regression.detector import StreamStanding

MOST_ENDED: Final = 32
MOST_SUSPECTS: Final = 100
MOST_OVER: Final = 64
"""Alarms of one incident that are over and kept: a stream may come and go for years."""
LONGEST_WINDOW, SHORTEST_WINDOW = 120, 8
"""Samples of a second window; it is as long as the first one, within these."""

AlarmId: TypeAlias = "tuple[StreamKey, int]"


class Finding(msgspec.Struct, frozen=True):
    """An alarm of one stream. Its drivers are named as people do: "572.16", "576.02".

    ``judged`` counts the samples that the stream had judged by then. ``changed`` is what differs
    between the contexts before and after; ``causes`` are those of ``gpud.agent.alerts.causes``.
    """

    key: StreamKey
    unit: Unit
    alarm: Alarm
    judged: int
    changed: tuple[Cause, ...] = ()
    causes: tuple[Cause, ...] = ()

    @property
    def id(self) -> AlarmId:
        """The stream, and the sample of it that raised the alarm."""
        return self.key, self.alarm.seq

    @property
    def slowdown(self) -> float:
        """How much slower, 1.12 for 12 %, whatever the unit: of a rate less is worse."""
        ratio = self.alarm.effect.ratio
        return max(ratio, 1 / ratio)

    @property
    def updates(self) -> list[tuple[str, str, str]]:
        """What an update replaced, the most telling first: ("driver", "572.16", "576.02")."""
        named = [
            (wording.plain(cause.kind), wording.plain(cause.old), wording.plain(cause.new))
            for cause in causes.ordered(self.changed)
            if cause.old is not None and cause.new is not None
        ]
        old, new = wording.plain(self.alarm.old_driver), wording.plain(self.alarm.new_driver)
        return named or [(DRIVER, old, new)]


class Incident(msgspec.Struct):
    """Findings of one cause. It ends with the last of them; the same cause later is another one."""

    name: str
    labels: dict[str, str]
    findings: list[Finding] = msgspec.field(name="found")
    starts_s: float
    updated_s: float
    over: list[int] = msgspec.field(default_factory=list)  # places in ``findings``
    ends_s: float | None = None
    acknowledged_s: float | None = None

    @property
    def firing(self) -> bool:
        """Whether a finding of it is not over."""
        return self.ends_s is None

    @property
    def of_update(self) -> bool:
        """Whether an update is the cause, of the driver or of what it runs on."""
        return "old" in self.labels

    @property
    def since_s(self) -> float:
        """When the update came, else when the first stream changed."""
        updates = [one.alarm.since_s for one in self.findings if not one.alarm.suspect]
        return min(updates or [one.alarm.since_s for one in self.findings])

    @property
    def open(self) -> list[Finding]:
        """The findings that are not over."""
        return [one for place, one in enumerate(self.findings) if place not in self.over]

    @property
    def fingerprint(self) -> str:
        """That of its alert."""
        return Alert(self.name, Severity.WARNING, self.labels, "", "", 0.0, 0.0).fingerprint

    def on(self, gpu: str | None) -> bool:
        """Return whether it concerns a GPU, by UUID; None is the CPU."""
        return any(one.key.gpu == gpu for one in self.findings)

    def add(self, findings: Iterable[Finding], now_s: float) -> None:
        """Add findings; of those that are over the latest are kept."""
        dropped = set(self.over[:-MOST_OVER])
        kept = [place for place in range(len(self.findings)) if place not in dropped]
        self.over = [new for new, old in enumerate(kept) if old in self.over]
        self.findings = [*(self.findings[place] for place in kept), *findings]
        self.updated_s = now_s

    def end(self, is_over: Callable[[Finding], bool], now_s: float) -> bool:
        """End the findings that are over, with the last one the incident; return whether any."""
        open_places = set(range(len(self.findings))) - set(self.over) if self.firing else set()
        ended = {place for place in open_places if is_over(self.findings[place])}
        if ended:
            self.over = sorted({*self.over, *ended})
            self.updated_s = now_s
            if ended == open_places:  # never before it began, whatever the clock was set to
                self.ends_s = self.updated_s = max(now_s, self.starts_s)
        return bool(ended)


class Suspect(msgspec.Struct):
    """A finding that nothing confirms yet; ``judged`` samples were when its window began."""

    finding: Finding = msgspec.field(name="found")
    judged: int


class Slowdowns:
    """All incidents that fire or ended lately, and the suspects; ``revision`` counts changes."""

    def __init__(self) -> None:
        self.incidents: list[Incident] = []
        self.suspects: list[Suspect] = []
        self.revision = 0

    @property
    def streams(self) -> frozenset[StreamKey]:
        """The streams on which an incident rests that fires."""
        return frozenset(one.key for i in self.incidents if i.firing for one in i.open)

    def add(self, finding: Finding, now_s: float) -> None:
        """Take in an alarm; an improvement is no incident, and ends what it ends."""
        every = [one for incident in self.incidents for one in incident.findings]
        every += [suspect.finding for suspect in self.suspects]
        if any(one.id == finding.id for one in every):
            return
        alarm = finding.alarm
        self.close(finding.key, alarm.closes, now_s)
        if alarm.closes and not alarm.suspect:
            self._end(lambda one: _blames_replaced_driver(one, finding), now_s)
        if not alarm.worse:
            return
        agreeing = [one for one in self.suspects if _agree(one.finding, finding)]
        joins = any(_same_cause(one, finding) for one in self.incidents if one.firing)
        sure = not alarm.suspect and finding.slowdown >= wording.CRITICAL_FROM
        if joins or agreeing or sure:
            self._confirm(finding, [] if joins else agreeing, now_s)
        else:
            self.suspects = [*self.suspects, Suspect(finding, finding.judged)][-MOST_SUSPECTS:]
        self.revision += 1

    def close(self, stream: StreamKey, closed: Collection[int], now_s: float) -> None:
        """End the findings of these alarms of a stream, by ``seq``: it is as it was before."""
        self._end(lambda one: one.key == stream and one.alarm.seq in closed, now_s)

    def observe(self, stream: StreamKey, standing: StreamStanding, now_s: float) -> None:
        """Take in the state of a stream: alarms that it holds no more end, a suspect is confirmed.

        The second window is as long as the first one was and follows it. At its end the alarm has
        to be open and the latest samples to have half of its shift, else another window begins.
        """
        held = {alarm.seq for alarm in standing.open}
        self._end(
            lambda one: (
                one.key == stream and one.alarm.seq < standing.seen and one.id[1] not in held
            ),
            now_s,
        )
        for suspect in [one for one in self.suspects if one.finding.key == stream]:
            window = min(max(suspect.finding.alarm.samples, SHORTEST_WINDOW), LONGEST_WINDOW)
            if suspect not in self.suspects or standing.judged - suspect.judged < window:
                continue
            if _persists(suspect.finding, standing):
                self._confirm(suspect.finding, [suspect], now_s)
            else:
                suspect.judged = standing.judged
            self.revision += 1

    def forget(self, stream: StreamKey, now_s: float) -> None:
        """End what rests on a stream that was accepted, reset or removed."""
        self._end(lambda one: one.key == stream, now_s)

    def acknowledge(self, fingerprint: str, now_s: float) -> None:
        """Note that a person has seen an incident; the first time counts."""
        for one in self.incidents:
            if one.firing and one.acknowledged_s is None and one.fingerprint == fingerprint:
                one.acknowledged_s = now_s
                self.revision += 1

    def resume(self, incidents: list[Incident], suspects: list[Suspect]) -> None:
        """Continue from what was saved; what was found before it could be read is added again."""
        own = [(one, i.starts_s) for i in self.incidents for one in i.findings]
        own += [(one.finding, one.finding.alarm.at_s) for one in self.suspects]
        self.incidents, self.suspects = incidents, suspects
        for finding, at_s in own:
            self.add(finding, at_s)
        self.revision += 1

    def _confirm(self, finding: Finding, suspects: Collection[Suspect], now_s: float) -> None:
        """Add a finding to the incident of its cause, or open one with the suspects that agree."""
        self.suspects = [one for one in self.suspects if one not in suspects]
        firing = [one for one in self.incidents if one.firing]
        incident = next((one for one in firing if _same_cause(one, finding)), None)
        if incident is not None:
            incident.add([finding], now_s)
        else:
            findings = [one.finding for one in suspects if one.finding is not finding]
            opened = _incident([*findings, finding], now_s)
            incident = next((one for one in firing if one.fingerprint == opened.fingerprint), None)
            if incident is not None:
                incident.add(opened.findings, now_s)
            else:
                incident = opened
                self.incidents.append(opened)
        if incident.of_update:
            self._absorb(incident, now_s)
        elif incident.on(None):
            self._name_machine(incident, now_s)
        gone = [one for one in self.incidents if not one.firing][:-MOST_ENDED]
        self.incidents = [one for one in self.incidents if one not in gone]

    def _absorb(self, update: Incident, now_s: float) -> None:
        """Move into the incident of an update what came with it as a suspect or on its own."""
        suspects = [one for one in self.suspects if _same_cause(update, one.finding)]
        own = [
            one
            for one in self.incidents
            if one.firing
            and not one.of_update
            and any(_same_cause(update, finding) for finding in one.open)
        ]
        taken = [one.finding for one in suspects] + [one for i in own for one in i.open]
        self.suspects = [one for one in self.suspects if one not in suspects]
        for incident in own:
            incident.end(lambda _: True, now_s)
        if taken:
            update.add(taken, now_s)

    def _name_machine(self, cpu: Incident, now_s: float) -> None:
        """Name the slower CPU as a cause of updates of that time: it is found out later."""
        cause = Cause(CPU, detail=MACHINE)
        for update in self.incidents:
            together = abs(update.since_s - cpu.since_s) <= SLACK_S
            if update.firing and update.of_update and together and not update.on(None):
                update.findings = [
                    one
                    if cause in one.causes
                    else msgspec.structs.replace(one, causes=(*one.causes, cause))
                    for one in update.findings
                ]
                update.updated_s = now_s

    def _end(self, is_over: Callable[[Finding], bool], now_s: float) -> None:
        ended = [incident.end(is_over, now_s) for incident in self.incidents]
        suspects = [one for one in self.suspects if not is_over(one.finding)]
        if any(ended) or len(suspects) != len(self.suspects):
            self.suspects = suspects
            self.revision += 1


def _incident(findings: list[Finding], now_s: float) -> Incident:
    """Open an incident: of an update if any finding is, else of a GPU or the CPU and a moment."""
    update = next((one for one in findings if not one.alarm.suspect), None)
    if update is not None:
        kind, old, new = update.updates[0]
        name = DRIVER_REGRESSION if kind in OF_THE_DRIVER else SLOWDOWN
        return Incident(name, {"kind": kind, "old": old, "new": new}, findings, now_s, now_s)
    strongest = max(findings, key=lambda one: one.slowdown)
    since_s = min(one.alarm.since_s for one in findings)
    labels = {
        "kind": str(strongest.alarm.kind),
        "since": wording.moment(since_s, "%Y-%m-%dT%H:%MZ"),
    }
    if strongest.key.gpu is not None:
        labels["uuid"] = wording.plain(strongest.key.gpu)
    return Incident(SLOWDOWN, labels, findings, now_s, now_s)


def _same_cause(incident: Incident, finding: Finding) -> bool:
    alarm = finding.alarm
    if not alarm.suspect:
        updates = [one for one in incident.findings if not one.alarm.suspect]
        return any(_replaced(finding) & _replaced(one) for one in updates)
    if incident.of_update:  # a driver serves all GPUs; the CPU only where it slowed as well
        served = finding.key.gpu is not None or incident.on(None)
        return served and abs(alarm.since_s - incident.since_s) <= SLACK_S
    # Where a GPU and the CPU became slower it is the machine; two GPUs are two causes.
    beside = incident.on(finding.key.gpu) or finding.key.gpu is None or incident.on(None)
    return beside and confirmed(alarm, (one.alarm for one in incident.findings))


def _replaced(finding: Finding) -> set[tuple[str, str]]:
    """Return what an update brought; of what it replaced, streams may differ that skipped one."""
    return {(kind, new) for kind, _, new in finding.updates}


def _agree(one: Finding, other: Finding) -> bool:
    """Return whether two streams confirm each other: the same update, or the same GPU and time."""
    if one.key == other.key:
        return False
    if not (one.alarm.suspect or other.alarm.suspect):
        return bool(_replaced(one) & _replaced(other))
    return one.key.gpu == other.key.gpu and alike(one.alarm, other.alarm)


def _blames_replaced_driver(one: Finding, back: Finding) -> bool:
    """Return whether a finding blames the driver that went when its stream's twin came back.

    The twin is the same figure on the other power source, or by another version of the method: days
    may pass before this stream has a sample, and the driver that it blames is gone.
    """
    ours, theirs = one.key, back.key
    twin = (ours.gpu, ours.probe, ours.mode) == (theirs.gpu, theirs.probe, theirs.mode)
    return twin and not one.alarm.suspect and one.alarm.new_driver == back.alarm.old_driver


def _persists(finding: Finding, standing: StreamStanding) -> bool:
    """Return whether the latest samples have half of a shift, on the scale of ratios.

    Slow samples are no part of a level: of their share all that is known is that it is open still.
    """
    if finding.alarm.kind is ChangeKind.SLOW_STATE:
        return True
    return standing.slowdown is not None and standing.slowdown >= finding.slowdown**0.5
