"""Writes docs/known-issues.md from the catalogue of known faults.

.venv/bin/python deploy/known_issues.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpud.known_issues.catalogue import (
    Applies,
    Confidence,
    IssueEffect,
    KnownIssue,
    Range,
    ReportWhen,
    catalogue,
)
from gpud.known_issues.matching import WINDOWS_BUILD_NUMBERS

PAGE = Path(__file__).resolve().parent.parent / "docs/known-issues.md"
HEAD = """# Known faults of GPU work in WSL2 and on Linux

Made by `deploy/known_issues.py` from `gpud/known_issues/catalogue.json`: edit that file. Sources
are public threads, long ones not read in full. Newest first; \\*: a single report.

**On**: WSL2 unless said; CC: compute capability. *from*, *to*, *fixed in* are bounds. Other
versions are of reports and say nothing of the rest; faults known by symptom alone have none here.

gpud calls a fault *applies* (within the bounds), *reported* (on these versions), or *seen* (its
trace was found here).
"""
TABLE = """
## {}

| Fault | On | What to do |
|---|---|---|
"""
EFFECTS = {
    "Windows stops": [IssueEffect.WINDOWS_BUGCHECK],
    "Hang": [IssueEffect.HANG],
    "Crash": [IssueEffect.CRASH],
    "No GPU or no NVML": [IssueEffect.NO_GPU, IssueEffect.NO_NVML],
    "Slow or wrong": [IssueEffect.SLOW, IssueEffect.WRONG_RESULT],
    "Harmless": [IssueEffect.NONE],
}
NAMES = {"wsl_version": "WSL", "kernel": "kernel", "windows_build": "Windows", "driver": "driver"}
PLATFORMS = {"wsl2": "", "linux": "Linux", "windows": "Windows", "any": "any"}


def page() -> str:
    """Return the page: a table for each kind of effect, a row for each entry, newest first."""
    entries = sorted(catalogue(), key=lambda entry: (entry.newest, entry.id), reverse=True)
    tables = (
        TABLE.format(name) + "".join(_row(entry) for entry in entries if entry.effect in effects)
        for name, effects in EFFECTS.items()
    )
    return HEAD + "".join(tables)


def _row(entry: KnownIssue) -> str:
    source = entry.sources[0]
    single = "\\*" if entry.confidence is Confidence.SINGLE else ""
    cells = (
        f"[`{entry.id}`]({source.url}){single} {entry.title}",
        _machines(entry.applies, reported=entry.report_when is not ReportWhen.SYMPTOM),
        (entry.workaround or "none is known") + _care(entry),
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _care(entry: KnownIssue) -> str:
    """Say what gpud itself does so that it does not set the fault off."""
    grace_s, modes = entry.boot_grace_s, ", ".join(entry.leave_out)
    grace = f". gpud leaves the GPU alone until WSL is {grace_s:g} s old" if grace_s else ""
    return grace + (f". gpud does not measure {modes}" if modes else "")


def _machines(applies: Applies, *, reported: bool) -> str:
    """Say on which machines; the versions of reports where gpud goes by them."""
    parts = [PLATFORMS[applies.platform]]
    for field, name in NAMES.items():
        span: Range | None = getattr(applies, field)
        if span is not None and (reported or span.bounded):
            numbers = WINDOWS_BUILD_NUMBERS if field == "windows_build" else None
            parts.append(f"{name} {_range(span, numbers)}")
    if applies.compute_capability:
        parts.append(f"CC {', '.join(applies.compute_capability)}")
    return "; ".join(filter(None, [*parts, applies.needs]))


def _range(span: Range, numbers: int | None) -> str:
    if span.min is not None and span.min == span.max:
        words = [span.min]
    elif span.min or span.max or span.fixed:
        last = None if span.fixed else span.max
        words = [f"{word} {bound}" for word, bound in (("from", span.min), ("to", last)) if bound]
    else:
        cut = (".".join(version.split(".")[:numbers]) for version in span.observed)
        words = [", ".join(dict.fromkeys(cut))]
    if span.fixed:
        words.append(f"fixed in {span.fixed}")
    return ", ".join(words)


if __name__ == "__main__":
    PAGE.write_text(page())
