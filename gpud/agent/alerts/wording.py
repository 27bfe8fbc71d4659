"""The words of alerts: a summary of one line, the evidence line by line, and what to do.

Every foreign string is cut and escaped here as well as where it is shown. A summary is ASCII but
for the micro sign, which the shell's notice writes as u. Pure.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from gpud.agent.alerts import causes
from gpud.agent.regression.causes import (
    BATTERY,
    CPU,
    CPU_LOAD,
    DRIVER,
    DXG,
    KERNEL,
    MEMORY,
    MEMORY_CLOCK,
    NOTHING,
    OF_CHANGES,
    OF_THE_DRIVER,
    PCIE,
    POWER_LIMIT,
    SM_CLOCK,
    THROTTLE,
    WINDOWS,
    WORDS,
    WSL,
    words,
)
from gpud.agent.regression.detector import ChangeKind
from gpud.core.advice import Platform
from gpud.core.alerts import FUNCTION_LOST, SHORT, UNWELL, Alert, Cause, Evidence, Severity
from gpud.core.stats import human
from gpud.core.text import escaped
from gpud.show.probewords import figure_of, rank

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpud.agent.alerts.functions import Lost
    from gpud.agent.alerts.slowdowns import Finding, Incident
    from gpud.core.health import Health
    from gpud.core.stream_key import StreamKey

SUMMARY_LIMIT: Final = 280
"""Characters of a summary: what the shell shows fits in a few lines of a terminal."""
FOREIGN_LIMIT: Final = 200
"""Characters that are kept of a foreign string."""
CRITICAL_FROM: Final = 1.5
"""A slowdown from which on somebody should look now; noise has never been so slow."""
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
    "probe": "the probe {probe}{where}",
    "nvml": "NVML, the GPU's telemetry,",
    "container": "the GPU in containers",
}

ACCEPT: Final = "to accept the new speed: `gpud baseline accept {alert}`"
COMPARE: Final = "`gpud history` shows what it was like before and since"
IN_WSL: Final = frozenset({Platform.WSL2, Platform.WSL1})
_ROLL_BACK: Final = (
    "to go back to {driver} in Windows: Device Manager, Display adapters, the GPU, Driver, "
    "Roll Back Driver{or_install}; then `wsl --shutdown`"
)
_REINSTALL: Final = "to go back, install the driver's packages of {driver} and reboot"
_FIXES_WSL: Final = {
    KERNEL: "`wsl --version` in Windows names the kernel; `wsl --update` may bring a newer one",
    WSL: "`wsl --update` in Windows may bring a newer WSL, or --web-download an earlier one",
    WINDOWS: "Windows' Update history can take its last update back",
}
_FIXES: Final = {
    POWER_LIMIT: "look at the laptop's performance mode and charger, or at who set the power limit",
    PCIE: "put the card in its slot anew, or look at the link's setting in the BIOS and the riser",
    THROTTLE: "look at fans, dust, what else warms the machine, and the power supply",
    SM_CLOCK: "look at the power mode of Windows and of the laptop, and at who set the clocks",
    MEMORY_CLOCK: "look at the power mode of Windows and of the laptop, and at who set the clocks",
    BATTERY: "plug the machine in",
    MEMORY: "close programs that use GPU memory, in Windows too",
    CPU_LOAD: "look with `top`, and in Windows' Task Manager, at what keeps the CPU busy",
    CPU: "look at what else runs on the machine, its power mode and its temperature",
    DXG: "`wsl --shutdown` from Windows renews the channel to the GPU",
}


def slowdown(incident: Incident, gpus: Mapping[str, str], platform: Platform) -> Alert:
    """Write the alert of an incident. Shapes: ``gpus`` names GPUs by UUID."""
    findings = incident.open or incident.findings
    rows = sorted(map(evidence, _strongest(findings)), key=_least_certain)
    likely = _causes(findings)
    worst = max(one.slowdown for one in rows)
    return Alert(
        name=incident.name,
        severity=Severity.CRITICAL if worst >= CRITICAL_FROM else Severity.WARNING,
        labels=incident.labels,
        summary=_summary(incident, rows, gpus, likely),
        description=_description(incident, rows, gpus, likely),
        starts_s=incident.starts_s,
        updated_s=incident.updated_s,
        ends_s=incident.ends_s,
        evidence=tuple(rows),
        causes=tuple(likely),
        fix=fix(likely, platform, incident.fingerprint[:SHORT]),
        acknowledged_s=incident.acknowledged_s,
    )


def lost(function: Lost, gpus: Mapping[str, str], platform: Platform) -> Alert:
    """Write the alert of a function that worked and fails now."""
    subject, why = function.subject, function.why
    where = f" on {plain(gpus.get(subject.gpu, subject.gpu))}" if subject.gpu else ""
    what = FUNCTIONS[subject.kind].format(where=where, probe=plain(subject.probe))
    detail = plain(why.detail or why.reason)
    old, new = (None if one is None else plain(one) for one in (function.old, function.new))
    under = worked = ""
    steps = [] if why.fix is None else [plain(why.fix)]
    lines: list[str] = []
    replaced: tuple[Cause, ...] = ()
    if old is not None:
        worked = f" under driver {old}"
        under = worked if new is not None else f", last{worked}"
    if old is not None and new is not None and function.old != function.new:
        under = f" since driver {old} -> {new}"
        lines = [f"The driver was replaced: {old} -> {new}."]
        steps.append(_going_back(old, platform))
        replaced = (Cause(DRIVER, old, new),)
    labels = {"kind": subject.kind, "uuid": subject.gpu, "probe": subject.probe}
    labels |= {"old": function.old or "", "new": function.new or ""}
    return Alert(
        name=FUNCTION_LOST,
        severity=Severity.CRITICAL,
        labels={name: plain(text) for name, text in labels.items() if text},
        summary=_one_line(f"{what} no longer works{under}: {detail}"),
        description="\n".join([f"{what} worked{worked} and fails now: {detail}", *lines]),
        starts_s=function.at_s,
        updated_s=function.at_s,
        causes=replaced,
        fix="; ".join(steps) or None,
    )


def unwell(component: str, health: Health, now_s: float) -> Alert:
    """Write the alert of a component that stays failed."""
    detail = plain(health.detail or health.reason or "it does not say why")
    return Alert(
        name=UNWELL,
        severity=Severity.WARNING,
        labels={"component": plain(component)},
        summary=_one_line(f"{component} has failed: {detail}"),
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
    machine = _FIXES[CPU]
    first = f"first {machine}; {steps[0]}" if machine in steps[1:] else steps[0]
    return f"{first}; {accept}"


def _step(cause: Cause, platform: Platform) -> str | None:
    if cause.kind in OF_THE_DRIVER:
        return _going_back(cause.old if cause.kind == DRIVER else None, platform)
    in_wsl = _FIXES_WSL.get(cause.kind) if platform in IN_WSL else None
    return in_wsl or _FIXES.get(cause.kind)


def _going_back(driver: str | None, platform: Platform) -> str:
    """Write how to get an earlier driver back, None: one whose version is not known."""
    if platform not in IN_WSL:
        return _REINSTALL.format(driver=driver or "before")
    if driver is None:
        return _ROLL_BACK.format(driver="the driver of before", or_install="")
    or_install = f", or install {driver} from nvidia.com/drivers"
    return _ROLL_BACK.format(driver=f"driver {driver}", or_install=or_install)


def plain(text: str) -> str:
    """Cut a foreign string, escape it and make it encodable."""
    whole = text if len(text) <= FOREIGN_LIMIT else f"{text[: FOREIGN_LIMIT - 3]}..."
    return escaped(whole.encode(errors="replace").decode())


def moment(at_s: float, form: str = "%Y-%m-%d %H:%M UTC") -> str:
    """Write Unix time; whatever a clock says, the calendar here ends with the year 9999."""
    return datetime.fromtimestamp(min(max(at_s, 0.0), 2.0**37), UTC).strftime(form)


def evidence(finding: Finding) -> Evidence:
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


def _strongest(findings: Sequence[Finding]) -> list[Finding]:
    """Keep one finding of each stream: what came on top of another is no second figure."""
    best: dict[StreamKey, Finding] = {}
    for one in findings:
        if one.key not in best or one.slowdown > best[one.key].slowdown:
            best[one.key] = one
    return list(best.values())


def _certain(row: Evidence) -> bool:
    return row.high - row.low <= WIDEST * (row.slowdown - 1)


def _least_certain(row: Evidence) -> tuple[bool, float, str]:
    """Order rows by certainty: wide intervals last, then the highest lower end first."""
    return not _certain(row), -row.low, str(row.stream)


def _causes(findings: Sequence[Finding]) -> list[Cause]:
    """Merge what the streams name: each cause once, the first of its kind."""
    merged: dict[tuple[str, str | None], Cause] = {}
    for one in sorted(findings, key=lambda one: (one.alarm.at_s, str(one.key))):
        for cause in causes.ordered((*one.changed, *one.causes)):
            # What was measured differs by a little from stream to stream, and is one cause.
            version = cause.new if cause.kind in OF_CHANGES.values() else None
            texts = (
                text if text is None else plain(text)
                for text in (cause.old, cause.new, cause.detail)
            )
            merged.setdefault((cause.kind, version), Cause(plain(cause.kind), *texts))
    every = list(causes.ordered(merged.values()))
    return [cause for cause in every if cause.kind != NOTHING] or every


def _summary(
    incident: Incident, rows: Sequence[Evidence], gpus: Mapping[str, str], likely: Sequence[Cause]
) -> str:
    """Write what moved, how much, since when and where; what does not fit goes from the end."""
    first, *others = _simplest_first(rows)
    moved = f"{figure_of(first.stream)} {_change(first)} ({_levels(first)})"
    named = list(dict.fromkeys(f"{figure_of(one.stream)} {_change(one)}" for one in others))
    beside = "".join(f", {text}" for text in named[: NAMED - 1])
    if len(named) >= NAMED:
        beside += f" and {len(named) - NAMED + 1} more"
    since = _since(incident)
    where = f" on {', '.join(sorted({_place(row.stream, gpus) for row in rows}))}"
    because = ""
    if not incident.of_update and likely and likely[0].kind != NOTHING:
        because = f"; {words(likely[0])}"
    for text in (
        f"{moved}{beside}{since}{where}{because}",
        f"{moved}{beside}{since}{where}",
        f"{moved}{since}{where}",
    ):
        if len(_one_line(text)) < SUMMARY_LIMIT:
            return _one_line(text)
    return _one_line(f"{moved}{since}")


def _one_line(text: str) -> str:
    """Write a summary: ASCII and the micro sign, on one line, cut."""
    ascii_parts = (part.encode("ascii", "backslashreplace").decode() for part in text.split(MICRO))
    line = escaped(MICRO.join(ascii_parts))
    return line if len(line) <= SUMMARY_LIMIT else f"{line[: SUMMARY_LIMIT - 3]}..."


def _simplest_first(rows: Sequence[Evidence]) -> list[Evidence]:
    """Put the simplest figure first, of those that cannot be told from the most certain one."""
    first = rows[0]
    alike = [one for one in rows if _certain(one) == _certain(first) and one.high >= first.slowdown]
    others = [one for one in rows if one not in alike]
    return [*sorted(alike, key=lambda one: rank(one.stream)), *others]


def _since(incident: Incident) -> str:
    if incident.of_update:
        kind, old, new = (incident.labels[name] for name in ("kind", "old", "new"))
        return f" since {WORDS.get(kind, kind)} {old} -> {new}"
    manner = MANNER.get(ChangeKind(incident.labels["kind"]), "")
    drivers = (one.alarm.new_driver for one in incident.findings if one.key.gpu is not None)
    driver = plain(next(drivers, ""))
    under = f", {'driver ' * driver[:1].isdigit()}{driver}" if driver else ""
    return f" since {moment(incident.since_s)}, {manner}{under}"


def _description(
    incident: Incident, rows: Sequence[Evidence], gpus: Mapping[str, str], likely: Sequence[Cause]
) -> str:
    lines = [f"Slower{_since(incident)}:"]
    lines += [
        f"- {_place(one.stream, gpus)}: {figure_of(one.stream)} {_levels(one)}, {_change(one)} "
        f"({_interval(one)}), {one.samples} samples against {one.reference} before"
        for one in rows
    ]
    if incident.firing and (over := len(incident.over)):
        lines.append(f"{over} more {'was' if over == 1 else 'were'} slower and came back.")
    changes = [f"- {words(cause)}" for cause in likely if cause.kind != NOTHING]
    if changes:
        lines += ["What became another at that time:", *changes]
    else:
        lines.append("Nothing that gpud records changed at that time.")
    return "\n".join(lines)


def _place(key: StreamKey, gpus: Mapping[str, str]) -> str:
    """Name what a stream runs on: "GPU 0 (NVIDIA GeForce RTX 4070)", "the CPU"."""
    name = plain("the CPU" if key.gpu is None else gpus.get(key.gpu, key.gpu))
    return f"{name} on battery" if key.on_battery else name


def _change(row: Evidence) -> str:
    """Write the change in the stream's own sense: a latency +12 %, a rate -11 %."""
    return f"{100 * (row.after / row.before - 1):+.0f} %"


def _levels(row: Evidence) -> str:
    """Write both levels, a common unit once: "12.4 -> 13.9 µs"."""
    before, after = (human(value, row.unit) for value in (row.before, row.after))
    figure, _, unit = before.partition(" ")
    return f"{figure} -> {after}" if after.partition(" ")[2] == unit else f"{before} -> {after}"


def _interval(row: Evidence) -> str:
    """Write what holds the change nine times in ten: "+10.1 to +13.9 %"."""
    ends = (row.low, row.high) if row.after >= row.before else (1 / row.low, 1 / row.high)
    low, high = (100 * (end - 1) for end in ends)
    return f"{low:+.1f} to {high:+.1f} %"
