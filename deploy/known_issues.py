"""Writes docs/known-issues.md from the catalogue of known faults.

.venv/bin/python deploy/known_issues.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpud.known_issues.catalogue import VERSIONS, Applies, KnownIssue, Range, catalogue

PAGE = Path(__file__).resolve().parent.parent / "docs/known-issues.md"
HEAD = """# Known faults of GPU work in WSL2 and on Linux

Made from `gpud/known_issues/catalogue.json` by `deploy/known_issues.py`; edit that file.
Newest evidence first.

These are facts from public threads. Long threads were not read in full, and a single report is a
single report. **On** names the versions: *to*, *from* are bounds that the evidence gives;
*reported on* are versions on which somebody saw it, and says nothing of others. **Said when**:
gpud speaks of an entry for the versions alone (*build*), for the versions and a symptom together
(*build+symptom*), or for the symptom (*symptom*).

`gpud doctor`, `gpud status` and the page name what concerns a machine: *applies*, the versions are
within the bounds; *reported*, somebody saw it on these versions; *seen*, its trace was found here.
What was seen when GPU calls began to fail is named in the alert about those
([alerts.md](alerts.md)); `gpud_known_issue_info` has all of it ([metrics.md](metrics.md)).

| Fault | On | Effect | What to do | Fixed in | Said when | Evidence |
|---|---|---|---|---|---|---|
"""
NAMES = {"wsl_version": "WSL", "kernel": "kernel", "windows_build": "Windows", "driver": "driver"}


def page() -> str:
    """Return the page, a table with a row for each entry."""
    entries = sorted(catalogue(), key=lambda entry: (entry.newest, entry.id), reverse=True)
    return HEAD + "".join(map(_row, entries))


def _row(entry: KnownIssue) -> str:
    sources = ", ".join(f"[{source.date or 'undated'}]({source.url})" for source in entry.sources)
    cells = (
        f"`{entry.id}` {entry.title}",
        _machines(entry.applies),
        entry.effect.replace("_", " "),
        (entry.workaround or "none is known") + _care(entry),
        entry.fixed_in or "",
        entry.report_when,
        f"{entry.confidence.replace('_', ' ')}: {sources}",
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _care(entry: KnownIssue) -> str:
    """Say what gpud itself does so that it does not set the fault off."""
    grace_s, modes = entry.boot_grace_s, ", ".join(entry.leave_out)
    grace = f". gpud leaves the GPU alone until WSL is {grace_s:g} s old" if grace_s else ""
    return grace + (f". gpud does not measure {modes}" if modes else "")


def _machines(applies: Applies) -> str:
    ranges = ((NAMES[name], getattr(applies, name)) for name in VERSIONS)
    parts = [applies.platform, *(f"{name} {_range(span)}" for name, span in ranges if span)]
    if applies.compute_capability:
        parts.append(f"compute capability {', '.join(applies.compute_capability)}")
    return "; ".join(filter(None, [*parts, applies.needs]))


def _range(span: Range) -> str:
    bounds = ((f"from {span.min}", span.min), (f"to {span.max}", span.max))
    words = [text for text, bound in bounds if bound is not None]
    if not words and span.observed:
        words = [f"reported on {', '.join(span.observed)}"]
    if span.fixed is not None:
        words.append(f"fixed in {span.fixed}")
    return ", ".join(words)


if __name__ == "__main__":
    PAGE.write_text(page())
