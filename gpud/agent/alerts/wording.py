"""The words of alerts: a summary of one line, the evidence line by line, and what to do.

Every foreign string is cut and escaped here as well as where it is shown. A summary is ASCII but
for the micro sign, which the shell's notice writes as u. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import structs

from gpud.agent.alerts import causes
from gpud.agent.alerts.message import cut, plain
from gpud.agent.alerts.slowdowns import CRITICAL_FROM
from gpud.agent.regression.detector import ChangeKind
from gpud.core.advice import Platform
from gpud.core.alerts import (
    FUNCTION_LOST,
    SHORT,
    UNWELL,
    Alert,
    Cause,
    Evidence,
    Severity,
)
from gpud.core.stats import human
from gpud.core.text import escaped
from gpud.units import utc
from gpud.words import cause_words, figure_of, kind_words, rank

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpud.agent.alerts.functions import Lost
    from gpud.agent.alerts.slowdowns import AlarmFinding, Incident
    from gpud.core.health import Health
    from gpud.core.streams import StreamKey

SUMMARY_LIMIT: Final = 280
"""Characters of a summary: what the shell shows fits in a few lines of a terminal."""
TEXT_LIMIT: Final = 4096
"""Characters of a description."""
WIDEST: Final = 0.5
"""An interval that is wider than this share of its change does not lead a summary."""
MICRO: Final = "\N{MICRO SIGN}"
NAMED: Final = 3
"""Figures that a summary names."""
MANNER: Final = {
    ChangeKind.STEP: "at once",
    ChangeKind.DRIFT: "little by little",
    ChangeKind.SLOW_STATE: "more often in a slow power state",
}
FUNCTIONS: Final = {
    "cuda": "CUDA{where}",
    "nvml": "NVML, the GPU's telemetry,",
    "container": "the GPU in containers",
}

ACCEPT: Final = "to accept the new speed: `gpud baseline accept {alert}`"
COMPARE: Final = "`gpud history` shows what it was like before and since"
IN_WSL: Final = frozenset({Platform.WSL2, Platform.WSL1})
_POWER_MODE: Final = (
    "look at the power mode of Windows and of the laptop, and at who set the clocks"
)
_FIXES_WSL: Final = {
    causes.KERNEL: (
        "`wsl --version` in Windows names the kernel; `wsl --update` may bring a newer one"
    ),
    causes.WSL: "`wsl --update` in Windows may bring a newer WSL, or --web-download an earlier one",
    causes.WINDOWS: "Windows' Update history can take its last update back",
}
_FIXES: Final = {
    causes.POWER_LIMIT: (
        "look at the laptop's performance mode and charger, or at who set the power limit"
    ),
    causes.PCIE: (
        "put the card in its slot anew, or look at the link's setting in the BIOS and the riser"
    ),
    causes.THROTTLE: "look at fans, dust, what else warms the machine, and the power supply",
    causes.SM_CLOCK: _POWER_MODE,
    causes.MEMORY_CLOCK: _POWER_MODE,
    causes.BATTERY: "plug the machine in",
    causes.MEMORY: "close programs that use GPU memory, in Windows too",
    causes.CPU_LOAD: "look with `top`, and in Windows' Task Manager, at what keeps the CPU busy",
    causes.CPU: "look at what else runs on the machine, its power mode and its temperature",
    causes.DXG: "`wsl --shutdown` from Windows renews the channel to the GPU",
}


def slowdown(
    incident: Incident, gpus: Mapping[str, str], platform: Platform, *, machine: bool = False
) -> Alert:
    """Write the alert of an incident.

    Shapes: ``gpus`` names GPUs by UUID. ``machine``: the CPU slowed at that time as well.
    """
    findings = incident.findings or incident.ended
    rows = sorted(map(evidence, _strongest(findings)), key=_least_certain)
    likely = _causes(findings, machine=machine)
    worst = max(row.slowdown for row in rows)
    alert = Alert(
        name=incident.name,
        severity=Severity.CRITICAL if worst >= CRITICAL_FROM else Severity.WARNING,
        labels=incident.labels,
        summary=_summary(incident, rows, gpus, likely),
        description=_description(incident, rows, gpus, likely),
        starts_s=incident.starts_s,
        updated_s=incident.updated_s,
        ends_s=incident.ends_s,
        acknowledged_s=incident.acknowledged_s,
        evidence=tuple(rows),
        causes=tuple(likely),
    )
    return structs.replace(alert, fix=fix(likely, platform, alert.fingerprint[:SHORT]))


def lost(function: Lost, gpus: Mapping[str, str], platform: Platform) -> Alert:
    """Write the alert of a function that worked and fails now."""
    subject, why = function.subject, function.why
    where = f" on {plain(gpus.get(subject.gpu, subject.gpu))}" if subject.gpu else ""
    what = FUNCTIONS[subject.kind].format(where=where)
    detail = plain(why.detail or why.reason)
    old, new = (None if text is None else plain(text) for text in (function.old, function.new))
    replaced = old is not None and new is not None and function.old != function.new
    worked = "" if old is None else f" under driver {old}"
    under = worked if new is not None or not worked else f", last{worked}"
    steps = [] if why.fix is None else [plain(why.fix)]
    description = f"{what} worked{worked} and fails now: {detail}"
    if replaced:
        under = f" since driver {old} -> {new}"
        steps.append(_going_back(old, platform))
        description += f"\nThe driver was replaced: {old} -> {new}."
    labels = {"kind": subject.kind, "uuid": subject.gpu}
    labels |= {"old": function.old or "", "new": function.new or ""}
    return Alert(
        name=FUNCTION_LOST,
        severity=Severity.CRITICAL,
        labels={name: plain(text) for name, text in labels.items() if text},
        summary=single_line(f"{what} no longer works{under}: {detail}"),
        description=description,
        starts_s=function.at_s,
        updated_s=function.at_s,
        causes=(Cause(causes.DRIVER, old, new),) if replaced else (),
        fix="; ".join(steps) or None,
    )


def unwell(component: str, health: Health, now_s: float) -> Alert:
    """Write the alert of a component that stays failed."""
    detail = plain(health.detail or health.reason or "it does not say why")
    return Alert(
        name=UNWELL,
        severity=Severity.WARNING,
        labels={"component": plain(component)},
        summary=single_line(f"{component} has failed: {detail}"),
        description=f"{plain(component)} has been failed for two minutes or longer: {detail}",
        starts_s=now_s,
        updated_s=now_s,
        fix=None if health.fix is None else plain(health.fix),
    )


def fix(likely: Sequence[Cause], platform: Platform, alert: str) -> str:
    """Write what to do about the most likely cause. ``alert`` is the alert's ID."""
    accept = ACCEPT.format(alert=alert)
    steps = [step for cause in likely if (step := _step(cause, platform)) is not None]
    if not steps:
        return f"{COMPARE}; {accept}"
    # An update that came when the whole machine slowed down may be blamed for nothing.
    machine = _FIXES[causes.CPU]
    first = f"first {machine}; {steps[0]}" if machine in steps[1:] else steps[0]
    return f"{first}; {accept}"


def _step(cause: Cause, platform: Platform) -> str | None:
    if cause.kind in causes.OF_THE_DRIVER:
        return _going_back(cause.old if cause.kind == causes.DRIVER else None, platform)
    in_wsl = _FIXES_WSL.get(cause.kind) if platform in IN_WSL else None
    return in_wsl or _FIXES.get(cause.kind)


def _going_back(driver: str | None, platform: Platform) -> str:
    """Write how to get an earlier driver back, None: one whose version is not known."""
    if platform not in IN_WSL:
        return f"to go back, install the driver's packages of {driver or 'before'} and reboot"
    before = "the driver of before" if driver is None else f"driver {driver}"
    or_install = "" if driver is None else f", or install {driver} from nvidia.com/drivers"
    return (
        f"to go back to {before} in Windows: Device Manager, Display adapters, the GPU, Driver, "
        f"Roll Back Driver{or_install}; then `wsl --shutdown`"
    )


def evidence(finding: AlarmFinding) -> Evidence:
    """Return what one finding shows."""
    alarm, effect = finding.alarm, finding.alarm.effect
    falls = effect.ratio < 1
    low, high = sorted(1 / end if falls else end for end in (effect.low, effect.high))
    return Evidence(
        stream=finding.key,
        unit=finding.unit,
        kind=str(alarm.kind),
        before=alarm.before,
        after=alarm.after,
        slowdown=finding.slowdown,
        low=low,
        high=high,
        samples=alarm.samples,
        reference=alarm.reference,
        since_s=alarm.since_s,
        seq=alarm.seq,
    )


def _strongest(findings: Sequence[AlarmFinding]) -> list[AlarmFinding]:
    """Keep one finding of each stream: what came on top of another is no second figure."""
    weakest_first = sorted(findings, key=lambda finding: finding.slowdown)
    return list({finding.key: finding for finding in weakest_first}.values())


def _certain(row: Evidence) -> bool:
    return row.high - row.low <= WIDEST * (row.slowdown - 1)


def _least_certain(row: Evidence) -> tuple[bool, float, str]:
    """Order rows by certainty: wide intervals last, then the highest lower end first."""
    return not _certain(row), -row.low, str(row.stream)


def _causes(findings: Sequence[AlarmFinding], *, machine: bool) -> list[Cause]:
    """Merge what the streams name: each cause once, the first of its kind."""
    every = [Cause(causes.CPU, detail=causes.MACHINE)] if machine else []
    for finding in sorted(findings, key=lambda finding: (finding.alarm.at_s, str(finding.key))):
        every += (*finding.changed, *finding.causes)
    merged: dict[tuple[str, str | None], Cause] = {}
    for cause in causes.ordered(every):
        # What was measured differs by a little from stream to stream, and is one cause.
        version = cause.new if cause.kind in causes.OF_CHANGES.values() else None
        texts = (None if t is None else plain(t) for t in (cause.old, cause.new, cause.detail))
        merged.setdefault((cause.kind, version), Cause(plain(cause.kind), *texts))
    likely = list(merged.values())
    return [cause for cause in likely if cause.kind != causes.NOTHING] or likely


def _summary(
    incident: Incident, rows: Sequence[Evidence], gpus: Mapping[str, str], likely: Sequence[Cause]
) -> str:
    """Write what moved, how much, since when and where; what does not fit goes from the end."""
    first, *others = _simplest_first(rows)
    moved = f"{figure_of(first.stream)} {_change(first)} ({_levels(first)})"
    named = list(dict.fromkeys(f"{figure_of(row.stream)} {_change(row)}" for row in others))
    more = "".join(f", {text}" for text in named[: NAMED - 1])
    if len(named) >= NAMED:
        more += f" and {len(named) - NAMED + 1} more"
    since = _since(incident)
    where = f" on {', '.join(sorted({_place(row.stream, gpus) for row in rows}))}"
    because = ""
    if not incident.of_update and likely and likely[0].kind != causes.NOTHING:
        because = f"; {cause_words(likely[0])}"
    for text in (
        f"{moved}{more}{since}{where}{because}",
        f"{moved}{more}{since}{where}",
        f"{moved}{since}{where}",
    ):
        if len(single_line(text)) < SUMMARY_LIMIT:
            return single_line(text)
    return single_line(f"{moved}{since}")


def single_line(text: str) -> str:
    """Write a summary: ASCII and the micro sign, on one line, cut."""
    ascii_parts = (part.encode("ascii", "backslashreplace").decode() for part in text.split(MICRO))
    line = escaped(MICRO.join(ascii_parts))
    return cut(line, SUMMARY_LIMIT)


def _simplest_first(rows: Sequence[Evidence]) -> list[Evidence]:
    """Put the simplest figure first, of those that cannot be told from the most certain one."""
    first = rows[0]
    alike = [row for row in rows if _certain(row) == _certain(first) and row.high >= first.slowdown]
    others = [row for row in rows if row not in alike]
    return [*sorted(alike, key=lambda row: rank(row.stream)), *others]


def _since(incident: Incident) -> str:
    if incident.of_update:
        kind, old, new = (incident.labels[name] for name in ("kind", "old", "new"))
        return f" since {kind_words(kind)} {old} -> {new}"
    manner = MANNER.get(ChangeKind(incident.labels["kind"]), "")
    drivers = (f.alarm.new_driver for f in incident.every if f.key.gpu is not None)
    driver = plain(next(drivers, ""))
    under = f", {'driver ' * driver[:1].isdigit()}{driver}" if driver else ""
    return f" since {utc(incident.since_s)}, {manner}{under}"


def _description(
    incident: Incident, rows: Sequence[Evidence], gpus: Mapping[str, str], likely: Sequence[Cause]
) -> str:
    lines = [f"Slower{_since(incident)}:"]
    lines += [
        f"- {_place(row.stream, gpus)}: {figure_of(row.stream)} {_levels(row)}, {_change(row)} "
        f"({_interval(row)}), {row.samples} samples against {row.reference} before"
        for row in rows
    ]
    if incident.findings and (over := len(incident.ended)):
        lines.append(f"{over} more {'was' if over == 1 else 'were'} slower and came back.")
    changes = [f"- {cause_words(cause)}" for cause in likely if cause.kind != causes.NOTHING]
    if changes:
        lines += ["What became another at that time:", *changes]
    else:
        lines.append("Nothing that gpud records changed at that time.")
    return cut("\n".join(lines), TEXT_LIMIT)


def _place(key: StreamKey, gpus: Mapping[str, str]) -> str:
    """Name what a stream runs on: "GPU 0 (NVIDIA GeForce RTX 4070)", "the CPU"."""
    name = plain("the CPU" if key.gpu is None else gpus.get(key.gpu, key.gpu))
    return f"{name} on battery" if key.on_battery else name


def _change(row: Evidence) -> str:
    """Write the change in the stream's own sense: a latency +12 %, a rate -11 %."""
    return f"{100 * (row.after / row.before - 1):+.0f} %"


def _levels(row: Evidence) -> str:
    """Write both levels, a common unit once: "12.4 -> 13.9 µs"."""
    before, after = (human(value, row.unit, row.stream.mode) for value in (row.before, row.after))
    figure, _, unit = before.partition(" ")
    return f"{figure} -> {after}" if after.partition(" ")[2] == unit else f"{before} -> {after}"


def _interval(row: Evidence) -> str:
    """Write what holds the change nine times in ten: "+10.1 to +13.9 %"."""
    ends = (row.low, row.high) if row.after >= row.before else (1 / row.low, 1 / row.high)
    low, high = (100 * (end - 1) for end in ends)
    return f"{low:+.1f} to {high:+.1f} %"
