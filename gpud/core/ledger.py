"""From alarms to alerts: what is told to people, one alert per cause, and what ends it.

A frozen ``Ledger`` in, the next one out; time comes in as a value. The alarms of one driver update
are one alert, of all streams and GPUs; so are those of one GPU that began together under the same
driver. An alarm alone is a suspect and told to nobody until another stream says the same, or the
same stream does over a second window: with thirty streams a GPU, one is wrong with every tenth
update. Every finding may be handed in twice: a replay does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from operator import is_
from typing import TYPE_CHECKING, Final

from gpud.core import alertwords, causes
from gpud.core.advice import Platform
from gpud.core.alerts import SLOWDOWN, Alert, Cause
from gpud.core.case import Case, Found, strand
from gpud.core.detector import Kind
from gpud.core.detector.siblings import SLACK_S, alike, confirmed
from gpud.core.plainalerts import raised

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from gpud.core.detector import Standing
    from gpud.core.streams import StreamKey

LATELY_S: Final = 24 * 3600.0
"""For so long an alert that ended is among those that are shown."""
MOST_ENDED, MOST_SUSPECTS = 32, 100
"""What is kept of either: more than a day brings."""
LONGEST_WINDOW, SHORTEST_WINDOW = 120, 8
"""Samples of a second window; it is as long as the one that raised the alarm, within these."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """An alarm that nobody has confirmed yet. ``judged``: samples judged when its window began."""

    found: Found
    judged: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """All that fires, what ended lately, and what may yet be told.

    ``gpus`` says how GPUs are called, by UUID: "GPU 0 (NVIDIA GeForce RTX 4070)"; ``platform``, in
    whose words advice is given.
    """

    cases: tuple[Case, ...] = ()
    plain: tuple[Alert, ...] = ()  # of functions, components, sinks: they have no streams
    suspects: tuple[Suspect, ...] = ()
    gpus: Mapping[str, str] = field(default_factory=dict)
    platform: Platform = Platform.WSL2


def alerts(ledger: Ledger, now_s: float) -> tuple[Alert, ...]:
    """Give what fires and what ended in the last 24 hours, the gravest first.

    Of one fingerprint only the latest: what fires again is not shown as ended beside it.
    """
    shown = [
        one for one in everything(ledger) if one.ends_s is None or one.ends_s > now_s - LATELY_S
    ]
    latest: dict[str, Alert] = {}
    for one in sorted(shown, key=lambda one: (one.firing, one.starts_s)):
        latest[one.fingerprint] = one
    return tuple(sorted(latest.values(), key=_order))


def everything(ledger: Ledger) -> tuple[Alert, ...]:
    """Give each alert that is known of, whenever it ended."""
    told = (alertwords.alert(case, ledger.gpus, ledger.platform) for case in ledger.cases)
    return (*told, *ledger.plain)


def suspects(ledger: Ledger) -> tuple[Found, ...]:
    """Give the alarms that were told to nobody yet, oldest first."""
    return tuple(one.found for one in ledger.suspects)


def told_of(ledger: Ledger) -> frozenset[StreamKey]:
    """Name the streams on which something rests that fires."""
    return frozenset(one.key for case in ledger.cases if case.firing for one in case.open)


def with_alarm(ledger: Ledger, found: Found, now_s: float) -> Ledger:
    """Take in an alarm of one stream; an improvement is no alert, and ends what it ends."""
    if _known(ledger, found):
        return ledger
    after = with_return(ledger, found.key, found.alarm.closes, now_s)
    if found.alarm.closes and not found.alarm.suspect:
        after = _without(after, lambda one: _gone_with(one, found), now_s)
    if not found.alarm.worse:
        return after
    if (more := _joined(after, found, now_s)) is not None:
        return more
    beside = [one for one in after.suspects if _agree(one.found, found)]
    if not beside and not _beyond_doubt(found):
        suspect = Suspect(found, found.judged)
        return replace(after, suspects=(*after.suspects, suspect)[-MOST_SUSPECTS:])
    left = tuple(one for one in after.suspects if one not in beside)
    together = [*(one.found for one in beside), found]
    return _opened(replace(after, suspects=left), _case(together, now_s), now_s)


def with_return(ledger: Ledger, stream: StreamKey, closes: Collection[int], now_s: float) -> Ledger:
    """End what rests on these alarms of a stream, by their ``seq``: it is as it was before."""
    return _without(ledger, lambda one: one.key == stream and one.alarm.seq in closes, now_s)


def with_standing(ledger: Ledger, stream: StreamKey, standing: Standing, now_s: float) -> Ledger:
    """Take in how a stream stands by now: a suspect may be confirmed, an alarm be held no more.

    The second window is as long as the first one was, and follows it: then the alarm has to be open
    still, and the latest samples to have half of its shift. Otherwise another window begins.
    """
    held = {alarm.seq for alarm in standing.open}

    def over(one: Found) -> bool:
        seq = one.alarm.seq
        return one.key == stream and seq < standing.seen and seq not in held

    after = _without(ledger, over, now_s)
    for suspect in after.suspects:
        found = suspect.found
        if found.key != stream or standing.judged - suspect.judged < _window(found):
            continue
        left = tuple(one for one in after.suspects if one is not suspect)
        if _still(found, standing):
            rest = replace(after, suspects=left)
            after = _joined(rest, found, now_s) or _opened(rest, _case([found], now_s), now_s)
        else:
            again = replace(suspect, judged=standing.judged)
            after = replace(after, suspects=(*left, again))
    return after


def forgotten(ledger: Ledger, stream: StreamKey, now_s: float) -> Ledger:
    """End whatever rests on a stream: a person accepted it or began anew, or it is no more."""
    return _without(ledger, lambda one: one.key == stream, now_s)


def acknowledged(ledger: Ledger, fingerprint: str, now_s: float) -> Ledger:
    """Note that a person has seen it; one that does not fire, or was seen, stays as it is."""
    return replace(
        ledger,
        cases=tuple(
            replace(case, acknowledged_s=now_s)
            if case.firing and case.acknowledged_s is None and case.fingerprint == fingerprint
            else case
            for case in ledger.cases
        ),
        plain=tuple(
            replace(one, acknowledged_s=now_s)
            if one.firing and one.acknowledged_s is None and one.fingerprint == fingerprint
            else one
            for one in ledger.plain
        ),
    )


def with_past(own: Ledger, past: Ledger) -> Ledger:
    """Give what an earlier life knew, once it can be read, with what came up meanwhile."""
    found = [(one, case.starts_s) for case in own.cases for one in case.found]
    found += [(one.found, one.found.alarm.at_s) for one in own.suspects]
    after = with_machine(past, own.gpus, own.platform)
    for one, at_s in found:
        after = with_alarm(after, one, at_s)
    for alert in own.plain:
        after = raised(after, alert)
    return after


def with_machine(ledger: Ledger, gpus: Mapping[str, str], platform: Platform) -> Ledger:
    """Say how GPUs are called by now, and on what; one that is gone keeps its name."""
    called = {**ledger.gpus, **gpus}
    if (called, platform) == (ledger.gpus, ledger.platform):
        return ledger
    return replace(ledger, gpus=called, platform=platform)


def _known(ledger: Ledger, found: Found) -> bool:
    named = strand(found)
    return any(strand(one) == named for case in ledger.cases for one in case.found) or any(
        strand(one.found) == named for one in ledger.suspects
    )


def _one_cause(case: Case, found: Found) -> bool:
    """Say whether a case that fires has the cause of an alarm."""
    alarm = found.alarm
    if not alarm.suspect:
        updates = [one for one in case.found if not one.alarm.suspect]
        return any(_changes(found) & _changes(one) for one in updates)
    if case.of_update:  # one driver serves all GPUs; of the CPU it is only where that slowed too
        with_it = found.key.gpu is not None or case.on(None)
        return with_it and abs(alarm.since_s - case.since_s) <= SLACK_S
    # Where a GPU and the CPU became slower it is the machine; two GPUs are two causes.
    beside = case.on(found.key.gpu) or found.key.gpu is None or case.on(None)
    return beside and confirmed(alarm, (one.alarm for one in case.found))


def _joined(ledger: Ledger, found: Found, now_s: float) -> Ledger | None:
    """Add an alarm to what fires of its cause, None where nothing does."""
    case = next((one for one in ledger.cases if one.firing and _one_cause(one, found)), None)
    if case is None:
        return None
    rest = replace(ledger, cases=tuple(one for one in ledger.cases if one is not case))
    return _opened(rest, case.joined([found], now_s), now_s)


def _gone_with(one: Found, back: Found) -> bool:
    """Say whether an alarm blames the driver that went when its stream's twin came back.

    The twin is the same figure on the other power source, or by another version of the method: days
    may go by before this stream brings a sample, and the driver that it blames is here no more.
    """
    ours, theirs = one.key, back.key
    same = (ours.gpu, ours.probe, ours.mode) == (theirs.gpu, theirs.probe, theirs.mode)
    return same and not one.alarm.suspect and one.alarm.new_driver == back.alarm.old_driver


def _changes(found: Found) -> set[tuple[str, str]]:
    """Name what became what: by what it was before, streams may differ that skipped a driver."""
    return {(kind, new) for kind, _, new in alertwords.updates(found)}


def _agree(one: Found, other: Found) -> bool:
    """Say whether two alarms confirm each other: streams of one update, or of one GPU and time."""
    if one.key == other.key:
        return False
    if not (one.alarm.suspect or other.alarm.suspect):
        return bool(_changes(one) & _changes(other))
    return one.key.gpu == other.key.gpu and alike(one.alarm, other.alarm)


def _beyond_doubt(found: Found) -> bool:
    """Say whether an update's alarm is told at once: noise has never been half as slow again."""
    return not found.alarm.suspect and found.slowdown >= alertwords.CRITICAL_FROM


def _case(found: list[Found], now_s: float) -> Case:
    """Make a case of alarms that have one cause: an update, if it is that of any."""
    update = next((one for one in found if not one.alarm.suspect), None)
    if update is None:
        return Case.of(SLOWDOWN, alertwords.slowdown_labels(found), found, now_s)
    name, labels = alertwords.update_name(update), alertwords.update_labels(update)
    return Case.of(name, labels, found, now_s)


def _opened(ledger: Ledger, case: Case, now_s: float) -> Ledger:
    """Add a case. That of an update takes in what came with it and was told as its own, or not.

    One that would be told by a name that fires already is a part of that.
    """
    twin = next((c for c in ledger.cases if c.firing and c.fingerprint == case.fingerprint), None)
    if twin is not None:
        rest = replace(ledger, cases=tuple(one for one in ledger.cases if one is not twin))
        return _opened(rest, twin.joined(case.found, now_s), now_s)
    if not case.of_update:
        after = _blamed(ledger, case, now_s) if case.on(None) else ledger
        return _pruned(replace(after, cases=(*after.cases, case)))
    suspected = [one for one in ledger.suspects if _one_cause(case, one.found)]
    told = [
        other
        for other in ledger.cases
        if other.firing and not other.of_update and any(_one_cause(case, o) for o in other.found)
    ]
    taken = [one.found for one in suspected] + [one for other in told for one in other.open]
    cases = tuple(one.closed(now_s) if one in told else one for one in ledger.cases)
    left = tuple(one for one in ledger.suspects if one not in suspected)
    whole = case.joined(taken, now_s) if taken else case
    return _pruned(replace(ledger, cases=(*cases, whole), suspects=left))


def _blamed(ledger: Ledger, machine: Case, now_s: float) -> Ledger:
    """Say with updates that came when the CPU slowed that it did: it takes longer to be sure of."""
    cause = Cause(causes.CPU, detail=causes.MACHINE)

    def told(case: Case) -> Case:
        together = abs(case.since_s - machine.since_s) <= SLACK_S
        if not (case.firing and case.of_update and together) or case.on(None):
            return case
        found = tuple(
            one if cause in one.causes else replace(one, causes=(*one.causes, cause))
            for one in case.found
        )
        return replace(case, found=found, updated_s=now_s)

    return replace(ledger, cases=tuple(told(case) for case in ledger.cases))


def _without(ledger: Ledger, over: Callable[[Found], bool], now_s: float) -> Ledger:
    """Close alarms in what fires, and drop them where they were suspects."""
    cases = tuple(case.without(over, now_s) for case in ledger.cases)
    suspects = tuple(one for one in ledger.suspects if not over(one.found))
    if all(map(is_, cases, ledger.cases)) and len(suspects) == len(ledger.suspects):
        return ledger  # the very same: every sample of every stream comes here
    return replace(ledger, cases=cases, suspects=suspects)


def _window(found: Found) -> int:
    return min(max(found.alarm.samples, SHORTEST_WINDOW), LONGEST_WINDOW)


def _still(found: Found, standing: Standing) -> bool:
    """Say whether the latest samples have half of an alarm's shift, on the scale of ratios.

    Slow samples are no part of a level, so of a share all that is known is that it is still open.
    """
    if found.alarm.kind is Kind.SLOW_STATE:
        return True
    return standing.slowdown is not None and standing.slowdown >= found.slowdown**0.5


def _pruned(ledger: Ledger) -> Ledger:
    """Keep what fires, and of what ended the latest."""
    gone = [case for case in ledger.cases if not case.firing][:-MOST_ENDED]
    return replace(ledger, cases=tuple(case for case in ledger.cases if case not in gone))


def _order(alert: Alert) -> tuple[bool, bool, int, float]:
    rank = list(type(alert.severity)).index(alert.severity)
    return (not alert.firing, alert.acknowledged_s is not None, rank, -alert.starts_s)
