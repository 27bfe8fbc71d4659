"""What an alert says: its name and labels, a summary of one line, and the evidence line by line.

Every foreign string is cut and escaped here as well as where it is shown. A summary is ASCII but
for the micro sign, which who shows ASCII alone (the shell's notice, some terminals) writes as u.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from gpud.core import causes, slowfix
from gpud.core.alerts import DRIVER_REGRESSION, SHORT, SLOWDOWN, Alert, Cause, Evidence, Severity
from gpud.core.causes import DRIVER, NOTHING
from gpud.core.detector import Kind
from gpud.core.probewords import figure_of, rank
from gpud.core.stats import human
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpud.core.advice import Platform
    from gpud.core.case import Case, Found
    from gpud.core.streams import StreamKey

SUMMARY: Final = 280
"""Characters of a summary: what the shell shows fits in a few lines of a terminal."""
FOREIGN: Final = 200
"""Characters that are kept of a foreign string."""
CRITICAL_FROM: Final = 1.5
"""A slowdown from which on somebody should look now."""
WIDEST: Final = 0.5
"""An interval that is wider than this share of its change leads no summary."""
MICRO: Final = "\N{MICRO SIGN}"
IN_A_SUMMARY: Final = 3
"""Streams that a summary names."""

HOW: Final = {
    Kind.STEP: "at once",
    Kind.DRIFT: "little by little",
    Kind.SLOW_STATE: "more often in a slow power state",
}
"""How it happened, under the same driver."""


def updates(found: Found) -> list[tuple[str, str, str]]:
    """Give what an update made what, the most telling first: ("driver", "572.16", "576.02")."""
    named = [
        (plain(cause.kind), plain(cause.old), plain(cause.new))
        for cause in causes.ordered(found.changed)
        if cause.old is not None and cause.new is not None
    ]
    return named or [(DRIVER, plain(found.alarm.old_driver), plain(found.alarm.new_driver))]


def update_name(found: Found) -> str:
    """Name the alert of an update: one that left the driver as it was is no driver's."""
    kind, _, _ = updates(found)[0]
    return DRIVER_REGRESSION if kind in causes.OF_THE_DRIVER else SLOWDOWN


def update_labels(found: Found) -> dict[str, str]:
    """Give what identifies an update: what became what."""
    kind, old, new = updates(found)[0]
    return {"kind": kind, "old": old, "new": new}


def slowdown_labels(found: Sequence[Found]) -> dict[str, str]:
    """Give what identifies a slowdown under the same driver: the GPU, and since when.

    The kind is that of the strongest; with the moment in it, another one later is another alert.
    """
    strongest = max(found, key=lambda one: one.slowdown)
    since_s = min(one.alarm.since_s for one in found)
    labels = {"kind": str(strongest.alarm.kind), "since": _moment(since_s, "%Y-%m-%dT%H:%MZ")}
    uuid = strongest.key.gpu
    return labels if uuid is None else {**labels, "uuid": plain(uuid)}


def alert(case: Case, gpus: Mapping[str, str], platform: Platform) -> Alert:
    """Put a case into words. Shapes: ``gpus`` says how GPUs are called, by UUID."""
    evidence = tuple(sorted(map(told, _strongest(case.open or case.found)), key=_surest))
    why = _causes(case)
    worst = max(evidence, key=lambda one: one.slowdown)
    return Alert(
        name=case.name,
        severity=Severity.CRITICAL if worst.slowdown >= CRITICAL_FROM else Severity.WARNING,
        labels=case.labels,
        summary=_summary(case, evidence, gpus, why),
        description=_description(case, evidence, gpus, why),
        starts_s=case.starts_s,
        updated_s=case.updated_s,
        ends_s=case.ends_s,
        evidence=evidence,
        causes=why,
        fix=slowfix.fix(why, platform, case.fingerprint[:SHORT]),
        acknowledged_s=case.acknowledged_s,
    )


def _strongest(found: Sequence[Found]) -> list[Found]:
    """Take one alarm of each stream: what came on top of another one is no second figure."""
    best: dict[StreamKey, Found] = {}
    for one in found:
        if one.key not in best or one.slowdown > best[one.key].slowdown:
            best[one.key] = one
    return list(best.values())


def plain(text: str) -> str:
    """Cut a foreign string and make it harmless; half a character, as JSON can spell, is one."""
    whole = text if len(text) <= FOREIGN else f"{text[: FOREIGN - 3]}..."
    return escaped(whole.encode(errors="replace").decode())


def one_line(text: str) -> str:
    """Give a summary: ASCII and the micro sign, one line, never longer than ``SUMMARY``."""
    ours = (part.encode("ascii", "backslashreplace").decode() for part in text.split(MICRO))
    line = escaped(MICRO.join(ours))
    return line if len(line) <= SUMMARY else f"{line[: SUMMARY - 3]}..."


def place(key: StreamKey, gpus: Mapping[str, str]) -> str:
    """Say on what a stream runs: "GPU 0 (NVIDIA GeForce RTX 4070)", "the CPU"."""
    where = "the CPU" if key.gpu is None else gpus.get(key.gpu, key.gpu)
    return f"{plain(where)} on battery" if key.on_battery else plain(where)


def told(found: Found) -> Evidence:
    """Give what is told of one alarm. Errors: ``ArithmeticError`` for one of no size."""
    alarm = found.alarm
    ends = sorted((alarm.effect.low, alarm.effect.high))
    if alarm.effect.ratio < 1:
        ends = sorted(1 / end for end in ends)
    return Evidence(
        stream=found.key,
        unit=found.unit,
        kind=str(alarm.kind),
        before=alarm.before,
        after=alarm.after,
        slowdown=found.slowdown,
        low=ends[0],
        high=ends[1],
        samples=alarm.samples,
        reference=alarm.reference,
        since_s=alarm.since_s,
        seq=alarm.seq,
    )


def _sure(one: Evidence) -> bool:
    return one.high - one.low <= WIDEST * (one.slowdown - 1)


def _surest(one: Evidence) -> tuple[bool, float, str]:
    """Order by what is certain: wide intervals last, then by the lower end, the highest first."""
    return not _sure(one), -one.low, str(one.stream)


def _causes(case: Case) -> tuple[Cause, ...]:
    """Join what the streams tell: each cause once, what most of them name first of its kind."""
    told: dict[tuple[str, str | None], Cause] = {}
    for one in sorted(case.open or case.found, key=lambda one: (one.alarm.at_s, str(one.key))):
        for cause in causes.ordered((*one.changed, *one.causes)):
            # What was measured differs by a little from stream to stream, and is one cause.
            version = cause.new if cause.kind in causes.OF_CHANGES.values() else None
            told.setdefault((cause.kind, version), _harmless(cause))
    found = list(causes.ordered(told.values()))
    real = [cause for cause in found if cause.kind != NOTHING]
    return tuple(real or found)


def _harmless(cause: Cause) -> Cause:
    old, new, detail = (
        text if text is None else plain(text) for text in (cause.old, cause.new, cause.detail)
    )
    return Cause(plain(cause.kind), old, new, detail)


def _summary(
    case: Case, evidence: Sequence[Evidence], gpus: Mapping[str, str], why: Sequence[Cause]
) -> str:
    """Say what, how much, since when and where; what does not fit is left out from the end."""
    first, *others = _simplest_first(evidence)
    moved = f"{figure_of(first.stream)} {change(first)} ({levels(first)})"
    named = list(dict.fromkeys(f"{figure_of(one.stream)} {change(one)}" for one in others))
    since = _since(case)
    where = f" on {_places([one.stream for one in evidence], gpus)}"
    others_shown = named[: IN_A_SUMMARY - 1]
    more = len(named) - len(others_shown)
    beside = "".join(f", {words}" for words in others_shown)
    beside += f" and {more} more" if more else ""
    because = "" if case.of_update else _because(why)
    for text in (
        f"{moved}{beside}{since}{where}{because}",
        f"{moved}{beside}{since}{where}",
        f"{moved}{since}{where}",
    ):
        if len(one_line(text)) < SUMMARY:
            return one_line(text)
    return one_line(f"{moved}{since}")


def _simplest_first(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Put the simplest figure first, of those that cannot be told from the surest."""
    surest = evidence[0]
    alike = [one for one in evidence if _sure(one) == _sure(surest) and one.high >= surest.slowdown]
    others = [one for one in evidence if one not in alike]
    return [*sorted(alike, key=lambda one: rank(one.stream)), *others]


def _since(case: Case) -> str:
    if case.of_update:
        kind, old, new = (case.labels[name] for name in ("kind", "old", "new"))
        return f" since {causes.WORDS.get(kind, kind)} {old} -> {new}"
    how = HOW.get(Kind(case.labels["kind"]), "")
    label = next((one.alarm.new_driver for one in case.found if one.key.gpu is not None), "")
    under = f", {'driver ' * label[:1].isdigit()}{plain(label)}" if label else ""
    return f" since {_moment(case.since_s)}, {how}{under}"


def _because(why: Sequence[Cause]) -> str:
    if not why or why[0].kind == NOTHING:
        return ""
    return f"; {causes.words(why[0])}"


def _places(streams: Iterable[StreamKey], gpus: Mapping[str, str]) -> str:
    return ", ".join(sorted({place(key, gpus) for key in streams}))


def _description(
    case: Case, evidence: Sequence[Evidence], gpus: Mapping[str, str], why: Sequence[Cause]
) -> str:
    lines = [f"Slower{_since(case)}:"]
    lines += [
        f"- {place(one.stream, gpus)}: {figure_of(one.stream)} {levels(one)}, {change(one)} "
        f"({interval(one)}), {one.samples} samples against {one.reference} before"
        for one in evidence
    ]
    if case.firing and (over := len(case.found) - len(case.open)):
        lines.append(f"{over} more {'was' if over == 1 else 'were'} slower and came back.")
    real = [cause for cause in why if cause.kind != NOTHING]
    if real:
        lines.append("What became another at that time:")
        lines += [f"- {causes.words(cause)}" for cause in real]
    else:
        lines.append("Nothing that gpud records changed at that time.")
    return "\n".join(lines)


def change(one: Evidence) -> str:
    """Give what changed in the stream's own sense: a latency +12 %, a rate -11 %."""
    percent = 100 * (one.after / one.before - 1)
    return f"{percent:+.0f} %"


def levels(one: Evidence) -> str:
    """Write both levels, their unit once: "12.4 -> 13.9 µs"."""
    before, after = (human(value, one.unit) for value in (one.before, one.after))
    figure, _, unit = before.partition(" ")
    return f"{figure} -> {after}" if after.partition(" ")[2] == unit else f"{before} -> {after}"


def interval(one: Evidence) -> str:
    """Write what holds the change nine times in ten: "+10.1 to +13.9 %"."""
    ends = (one.low, one.high) if one.after >= one.before else (1 / one.low, 1 / one.high)
    low, high = (100 * (end - 1) for end in ends)
    return f"{low:+.1f} to {high:+.1f} %"


def _moment(at_s: float, form: str = "%Y-%m-%d %H:%M UTC") -> str:
    # A clock may say anything, and the calendar here ends with the year 9999.
    return datetime.fromtimestamp(min(max(at_s, 0.0), 2.0**37), UTC).strftime(form)
