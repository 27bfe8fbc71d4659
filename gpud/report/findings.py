"""What the detectors found and what people were told of it; and what nobody was told. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from gpud.core.commands import ALERT_ACKNOWLEDGED
from gpud.core.detector import Direction, Kind, Parameters, State
from gpud.core.stats import compared
from gpud.report.model import Mark, Shift, Told, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpud.core.commands import Command
    from gpud.core.sample import Unit
    from gpud.core.streams import StreamKey
    from gpud.report.model import Level, Stretch, Track
    from gpud.report.rows import Finding

FEWEST: Final = 20
"""Clean runs of either driver from which their difference is worth a line."""
LEAST_SHIFT: Final = 0.015
HANG_TOGETHER: Final = 10
"""Runs that count as one here: those of one hour have the same neighbours and the same heat."""
ERRORS: Final = 4.0
PER_SIGMA: Final = 2.563  # from p10 to p90 of a normal distribution, in standard deviations
OF_A_MEDIAN: Final = 1.2533

LAST_LOOK: Final = Parameters().looks[-1]
"""Samples after which a driver has its verdict, if it is ever to have one."""

KINDS: Final = {
    Kind.DRIVER: "with the new driver",
    Kind.STEP: "at once, under the same driver",
    Kind.DRIFT: "little by little, under the same driver",
    Kind.SLOW_STATE: "more of its time in the slow power state",
}
UNTOLD: Final = "no alert tells of it"
SUSPECT: Final = "a suspect: nothing else that is measured confirmed it"
BELOW: Final = "below what gpud judges"
UNDECIDED: Final = "no verdict was reached"


def told(alerts: Iterable[Mapping[str, Any]]) -> tuple[Told, ...]:
    """Give the alerts of the time, oldest first."""
    return tuple(
        Told(
            name=_text(one.get("name")) or "unnamed",
            severity=_text(one.get("severity")) or "warning",
            summary=_text(one.get("summary")) or "",
            fix=_text(one.get("fix")),
            starts_s=one["starts_s"],
            ends_s=one["ends_s"],
            acknowledged=one.get("acknowledged_s") is not None,
        )
        for one in alerts
    )


def verdicts(findings: Iterable[Finding], units: Mapping[StreamKey, Unit]) -> Iterator[Verdict]:
    """Yield what was found out about drivers, oldest first; a body that says nothing is none."""
    for one in findings:
        state = _member(State, one.body.get("state"))
        old, new = _text(one.body.get("old_driver")), _text(one.body.get("new_driver"))
        if state is None or old is None or new is None:
            continue
        samples = one.body.get("samples")
        based = f", {samples} samples" if isinstance(samples, int) else ""
        words = _outcome(state, one, units.get(one.key)) + based
        yield Verdict(one.key, one.at_s, old, new, words, worse=state is State.REGRESSED)


def awaited(
    tracks: Iterable[Track], stretches: Sequence[Stretch], findings: Sequence[Finding]
) -> Iterator[Verdict]:
    """Yield the streams whose present driver is still on trial, with the runs it has so far."""
    last = len(stretches) - 1
    for track in tracks:
        # No driver is on trial by what the CPU does.
        if track.key.gpu is None or len(track.levels) < len(("before", "now")):
            continue
        if track.levels[-1].stretch != last:
            continue
        before, now = track.levels[-2:]
        new = stretches[last]
        told = any(one.key == track.key and _within(one, new) for one in findings)
        if not told and now.n < LAST_LOOK:
            old = stretches[before.stretch].driver
            words = f"no verdict yet, {now.n} runs"
            yield Verdict(track.key, new.since_s, old, new.driver, words, worse=False)


def marks(findings: Iterable[Finding], key: StreamKey, unit: Unit) -> tuple[Mark, ...]:
    """Give the moments at which a level of one stream moved."""
    found = []
    for one in findings:
        if one.key != key:
            continue
        slower, since_s = _slowdown(one, unit), _number(one.body.get("since_s"))
        if slower is not None and since_s is not None:
            found.append(Mark(since_s, slower > 1, f"{compared(slower)} {_how(one)}".strip()))
    return tuple(found)


def untold(
    alarms: Sequence[Finding],
    alerts: Iterable[Mapping[str, Any]],
    units: Mapping[StreamKey, Unit],
    said: Sequence[Command] = (),
) -> Iterator[Shift]:
    """Yield the alarms of slowness that are in no alert, and whether they are over.

    What a person has accepted leaves the alert that goes on for the other streams: he was told.
    """
    alerts = tuple(alerts)
    known = {strand for alert in alerts for strand in _strands(alert)}
    updates = {update for alert in alerts if (update := _update(alert)) is not None}
    closed = {(one.key, seq) for one in alarms for seq in _list(one.body.get("closes"))}
    for one in alarms:
        slower = _slowdown(one, units.get(one.key))
        since_s = _number(one.body.get("since_s"))
        if slower is None or slower <= 1 or since_s is None:
            continue
        seq = _number(one.body.get("seq"))
        if (_named(one.key), seq) not in known:
            decided = any(
                word.at_s >= one.at_s and word.choice.holds(one.key)
                for word in said
                if word.kind != ALERT_ACKNOWLEDGED
            )
            driver = one.body.get("kind") == Kind.DRIVER
            update = (_text(one.body.get("old_driver")), _text(one.body.get("new_driver")))
            if driver and decided and update in updates:
                continue
            over = decided or (one.key, seq) in closed
            yield Shift(one.key, since_s, slower, _how(one), UNTOLD if driver else SUSPECT, over)


def unsaid(
    tracks: Iterable[Track],
    stretches: Sequence[Stretch],
    findings: Sequence[Finding],
    alarms: Sequence[Finding],
) -> Iterator[Shift]:
    """Yield what moved with a driver beyond its own noise, and drew neither verdict nor alarm."""
    for track in tracks:
        for before, after in zip(track.levels, track.levels[1:], strict=False):
            slower, new = after.slowdown, stretches[after.stretch]
            if slower is None or not _beyond_noise(slower, before, after):
                continue
            if any(one.key == track.key and _within(one, new) for one in alarms):
                continue
            states = {
                _member(State, one.body.get("state"))
                for one in findings
                if one.key == track.key and _within(one, new)
            }
            if states & {State.REGRESSED, State.IMPROVED}:
                continue
            old = stretches[before.stretch].driver
            why = BELOW if State.NO_CHANGE in states else UNDECIDED
            when = "since" if track.key.gpu is not None else "at the time of"
            words = f"{when} driver {old} -> {new.driver}"
            yield Shift(track.key, new.since_s, slower, words, why)


def _within(one: Finding, stretch: Stretch) -> bool:
    """Say whether a finding is about what began in a stretch."""
    since_s = _number(one.body.get("since_s"))
    return since_s is not None and stretch.since_s <= since_s <= stretch.until_s


def _beyond_noise(slower: float, before: Level, after: Level) -> bool:
    if min(before.n, after.n) < FEWEST or min(before.p10, after.p10) <= 0:
        return False
    errors = [
        OF_A_MEDIAN * math.log(one.p90 / one.p10) / PER_SIGMA / math.sqrt(one.n / HANG_TOGETHER)
        for one in (before, after)
    ]
    return abs(math.log(slower)) > max(LEAST_SHIFT, ERRORS * math.hypot(*errors))


def _outcome(state: State, one: Finding, unit: Unit | None) -> str:
    limit, why = _number(one.body.get("limit")), _text(one.body.get("why"))
    if state in {State.REGRESSED, State.IMPROVED}:
        ends = _interval(one, unit)
        slower = _slowdown(one, unit)
        much = "" if slower is None else f": {compared(slower)}"
        return f"{state}{much}" + ("" if ends is None else f" ({ends})")
    if state is State.NO_CHANGE:
        return "no change seen" + ("" if limit is None else f" (limit +-{100 * limit:.0f} %)")
    if state is State.NONE:
        return "no verdict" + ("" if why is None else f": {why}")
    return str(state)


def _slowdown(one: Finding, unit: Unit | None) -> float | None:
    ratio = _number(_effect(one).get("ratio"))
    return None if ratio is None or ratio <= 0 else _turned(one, unit)(ratio)


def _interval(one: Finding, unit: Unit | None) -> str | None:
    ends = [_number(_effect(one).get(name)) for name in ("low", "high")]
    turned = [_turned(one, unit)(end) for end in ends if end is not None and end > 0]
    if len(turned) != len(ends):
        return None
    low, high = sorted(100 * abs(end - 1) for end in turned)
    return f"{low:.1f}-{high:.1f} %"


def _turned(one: Finding, unit: Unit | None) -> Any:  # noqa: ANN401  # a function of one ratio
    """Give what makes a slowdown of a ratio: by the unit, else by what the detector called it."""
    if unit is not None:
        rate = Direction.of(unit) is Direction.HIGHER
    else:
        ratio = _number(_effect(one).get("ratio")) or 1.0
        worse = bool(one.body.get("worse")) or one.body.get("state") == State.REGRESSED
        rate = worse == (ratio < 1)
    return (lambda ratio: 1 / ratio) if rate else (lambda ratio: ratio)


def _effect(one: Finding) -> Mapping[str, Any]:
    effect = one.body.get("effect")
    return effect if isinstance(effect, dict) else {}


def _how(one: Finding) -> str:
    kind = _member(Kind, one.body.get("kind"))
    return "" if kind is None else KINDS[kind]


def _strands(alert: Mapping[str, Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield stream and seq of everything an alert rests on."""
    evidence = alert.get("evidence")
    for one in evidence if isinstance(evidence, list) else ():
        if isinstance(one, dict):
            yield _parts(one.get("stream")), _number(one.get("seq"))


def _update(alert: Mapping[str, Any]) -> tuple[str | None, str | None] | None:
    """Give the old and the new driver that an alert is about, None where it is about no update."""
    labels = alert.get("labels")
    if not isinstance(labels, dict) or labels.get("kind") != "driver":
        return None
    return _text(labels.get("old")), _text(labels.get("new"))


def _parts(stream: object) -> tuple[Any, ...]:
    """Read a stream, spelled as the object of its parts; empty for what is none."""
    if not isinstance(stream, dict):
        return ()
    parts = tuple(stream.get(name) for name in ("gpu", "probe", "mode", "version", "on_battery"))
    return parts if all(isinstance(part, str | int | None) for part in parts) else ()


def _list(numbers: object) -> Iterator[float]:
    """Yield the numbers of a list; nothing of what is none."""
    for one in numbers if isinstance(numbers, list | tuple) else ():
        if (number := _number(one)) is not None:
            yield number


def _named(key: StreamKey) -> tuple[Any, ...]:
    return (key.gpu, key.probe, key.mode, key.version, key.on_battery)


def _member(kind: Any, value: object) -> Any:  # noqa: ANN401  # an enumeration and a member of it
    try:
        return kind(value)
    except ValueError:
        return None


def _number(value: object) -> float | None:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and math.isfinite(value) else None  # type: ignore[arg-type]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
