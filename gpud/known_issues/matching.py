"""Relation of a machine to the catalogue: which entries are about its versions and its traces.

What is not known of a machine matches nothing, but where caution costs little (``left_out``,
``boot_grace_s``). A version on which a fault was once reported is not called affected by it. Pure.
"""

from __future__ import annotations

import re
from enum import StrEnum
from itertools import zip_longest
from typing import TYPE_CHECKING

import msgspec

from gpud.known_issues.catalogue import VERSIONS, KnownIssue, Range, ReportWhen, catalogue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpud.known_issues.catalogue import TextOrigin

WINDOWS_BUILD_NUMBERS = 3
"""10.0.26200: the fourth number changes with every monthly update."""
LONGEST_TEXT = 1024
"""Characters of a line that patterns are run on."""


class MachineFacts(msgspec.Struct, frozen=True):
    """What is known of a machine and one GPU of it; None for what is not."""

    platform: str  # "wsl2" or "linux"
    wsl_version: str | None = None  # "2.7.12"
    kernel: str | None = None  # "6.6.87.2-microsoft-standard-WSL2"
    windows_build: str | None = None  # "10.0.26200.8875"
    driver: str | None = None  # "576.02"
    compute_capability: str | None = None  # "8.9"


class Relation(StrEnum):
    """How sure it is that an entry is about a machine."""

    APPLIES = "applies"  # within the bounds that the evidence gives
    REPORTED = "reported"  # the fault was reported on these versions
    OTHER = "other"
    UNKNOWN = "unknown"  # a fact that decides is not known


def relation(entry: KnownIssue, facts: MachineFacts) -> Relation:
    """Return how an entry relates to a machine."""
    excluded = _excluded(entry, facts)
    if excluded is not None:
        return excluded
    versions = _versions(entry, facts)
    bounded = [have for _, have, span in versions if span.bounded]
    if bounded or not any(span.observed for _, _, span in versions):
        return Relation.UNKNOWN if None in bounded else Relation.APPLIES
    reports = [_reported(*version) for version in versions if version[2].observed]
    if False in reports:
        return Relation.OTHER
    return Relation.UNKNOWN if None in reports else Relation.REPORTED


def by_version(facts: MachineFacts) -> list[tuple[KnownIssue, Relation]]:
    """Return the entries of which the versions alone are reason enough to speak."""
    related = [(entry, relation(entry, facts)) for entry in catalogue()]
    return [
        (entry, kind)
        for entry, kind in related
        if entry.report_when is ReportWhen.BUILD and kind in {Relation.APPLIES, Relation.REPORTED}
    ]


def left_out(facts: MachineFacts) -> dict[str, str]:
    """Return the modes that may set off a fault of this machine, each with the reason.

    A version that is not known may be one of a report: what is not measured does no harm.
    """
    return {
        mode: f"known fault {entry.id}: {entry.title}"
        for entry in catalogue()
        if entry.leave_out and relation(entry, facts) is not Relation.OTHER
        for mode in entry.leave_out
    }


def boot_grace_s(facts: MachineFacts) -> float:
    """Return for how long after its start a machine's GPU is to be left alone, 0 for no entry.

    What is not known, the GPU too, may be what an entry is about: waiting does no harm.
    """
    related = (entry for entry in catalogue() if relation(entry, facts) is not Relation.OTHER)
    return max((entry.boot_grace_s for entry in related), default=0.0)


def explains(entry: KnownIssue, facts: MachineFacts) -> bool:
    """Return whether a trace of an entry may be taken for its fault on this machine.

    What is known must not contradict: platform, bounds, compute capability. An entry of
    "build+symptom" needs a version that is within the bounds or on which it was reported; one of
    "build" needs all of them.
    """
    if relation(entry, facts) in {Relation.APPLIES, Relation.REPORTED}:
        return True
    if entry.report_when is ReportWhen.BUILD or _excluded(entry, facts) is not None:
        return False
    if entry.report_when is ReportWhen.SYMPTOM:
        return True
    versions = _versions(entry, facts)
    reported = any(_reported(*version) for version in versions)
    return reported and not any(span.bounded for _, _, span in versions)


def patterns(origin: TextOrigin) -> Mapping[str, tuple[re.Pattern[str], ...]]:
    """Return the patterns that are looked for in texts of one origin, by entry."""
    regexes = {
        entry.id: tuple(re.compile(p.regex) for p in entry.patterns if p.where is origin)
        for entry in catalogue()
    }
    return {name: those for name, those in regexes.items() if those}


def matches(patterns: Iterable[re.Pattern[str]], text: str) -> bool:
    """Return whether a text, bounded by whoever gives it, matches one of the patterns."""
    return any(pattern.search(text) for pattern in patterns)


def _excluded(entry: KnownIssue, facts: MachineFacts) -> Relation | None:
    """Return why an entry is not about a machine, apart from the versions it was reported on."""
    applies = entry.applies
    platforms = {facts.platform, "any"} | ({"windows"} if facts.platform == "wsl2" else set())
    if applies.platform not in platforms or any(
        have is not None and _outside(have, span) for _, have, span in _versions(entry, facts)
    ):
        return Relation.OTHER
    if not _of_capability(applies.compute_capability, facts.compute_capability):
        return Relation.UNKNOWN if facts.compute_capability is None else Relation.OTHER
    return Relation.UNKNOWN if applies.needs else None


def _versions(entry: KnownIssue, facts: MachineFacts) -> list[tuple[str, str | None, Range]]:
    """Return the versions that an entry names: which, the machine's, the entry's."""
    spans = ((name, getattr(entry.applies, name)) for name in VERSIONS)
    return [(name, _readable(getattr(facts, name)), span) for name, span in spans if span]


def _readable(version: str | None) -> str | None:
    """Return a version that begins with numbers; None for any other text."""
    return version if version and _numbers(version) else None


def _outside(version: str, span: Range) -> bool:
    numbers = _numbers(version)
    if span.min is not None and numbers < _numbers(span.min):
        return True
    fixed = _numbers(span.fixed) if span.fixed is not None else ()
    if fixed and numbers + (0,) * (len(fixed) - len(numbers)) >= fixed:
        return True
    last = _numbers(span.max) if span.max is not None else ()
    return bool(last) and numbers[: len(last)] > last


def _reported(name: str, version: str | None, span: Range) -> bool | None:
    """Whether the fault was reported on this version; None if the version is not known."""
    if version is None:
        return None
    count = WINDOWS_BUILD_NUMBERS if name == "windows_build" else None
    numbers = _numbers(version)[:count]
    return any(_same(numbers, _numbers(observed)[:count]) for observed in span.observed)


def _same(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    """Whether two versions are equal; "2.7.12" and "2.7.12.0" are."""
    return all(a == b for a, b in zip_longest(left, right, fillvalue=0))


def _of_capability(named: tuple[str, ...], capability: str | None) -> bool:
    if not named:
        return True
    if capability is None:
        return False
    major = capability.partition(".")[0]
    return capability in named or f"{major}.x" in named


def _numbers(version: str) -> tuple[int, ...]:
    """Split the numbers off the beginning: "6.6.87.2-microsoft" gives (6, 6, 87, 2)."""
    match = re.match(r"[0-9]{1,9}(?:\.[0-9]{1,9})*(?![0-9])", version)
    return tuple(map(int, match[0].split("."))) if match else ()
