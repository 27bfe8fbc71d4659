"""Machines and the catalogue: for each entry one that it is about, and one next to it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpud.known_issues.catalogue import (
    VERSIONS,
    KnownIssue,
    Range,
    ReportWhen,
    catalogue,
)
from gpud.known_issues.matching import (
    MachineFacts,
    Relation,
    explains,
    relation,
)

ENTRIES = {entry.id: entry for entry in catalogue()}
ALL = sorted(ENTRIES)
MATCHES = {Relation.APPLIES, Relation.REPORTED}


def matching(entry: KnownIssue) -> MachineFacts:
    """A machine within every bound of the entry, else of the versions of a report."""
    applies = entry.applies
    spans = {name: getattr(applies, name) for name in VERSIONS}
    versions = {name: version(span) for name, span in spans.items() if span is not None}
    capability = next(iter(applies.compute_capability), None)
    return MachineFacts(
        platform={"any": "linux", "windows": "wsl2"}.get(applies.platform, applies.platform),
        compute_capability=capability.replace("x", "2") if capability else None,
        **versions,
    )


def readable(entry: KnownIssue) -> KnownIssue:
    """The entry without its condition that gpud cannot read."""
    applies = msgspec.structs.replace(entry.applies, needs=None)
    return msgspec.structs.replace(entry, applies=applies)


def version(span: Range) -> str | None:
    before = below(span.fixed) if span.fixed else None
    return span.max or span.min or before or next(iter(span.observed), None)


def changed(facts: MachineFacts, **values: Any) -> MachineFacts:
    return msgspec.structs.replace(facts, **values)


def below(version: str) -> str:
    *head, last = map(int, version.split("."))
    return ".".join(map(str, [*head, last - 1] if last else [*head[:-1], head[-1] - 1, 9999]))


def above(version: str) -> str:
    *head, last = map(int, version.split("."))
    return ".".join(map(str, [*head, last + 1]))


@pytest.mark.parametrize("name", ALL)
def test_a_machine_of_the_entry_matches(name: str) -> None:
    entry = ENTRIES[name]
    assert relation(readable(entry), matching(entry)) in MATCHES
    if entry.applies.needs:
        assert relation(entry, matching(entry)) is Relation.UNKNOWN


def neighbours(entry: KnownIssue) -> list[MachineFacts]:
    """Machines that differ from one of the entry in one fact, by as little as possible."""
    applies, facts = entry.applies, matching(entry)
    machines = []
    if applies.platform != "any":
        machines.append(changed(facts, platform="wsl2" if facts.platform == "linux" else "linux"))
    if applies.compute_capability:
        machines.append(changed(facts, compute_capability="1.0"))
    for field in VERSIONS:
        span: Range | None = getattr(applies, field)
        if span is None:
            continue
        machines += [changed(facts, **{field: below(span.min)})] if span.min else []
        machines += [changed(facts, **{field: above(span.max)})] if span.max else []
        machines += [changed(facts, **{field: span.fixed})] if span.fixed else []
        unbounded = not any(
            getattr(applies, other) and getattr(applies, other).bounded for other in VERSIONS
        )
        if span.observed and unbounded:
            machines.append(changed(facts, **{field: "999.0"}))
    return machines


@pytest.mark.parametrize("name", ALL)
def test_a_machine_next_to_the_entry_does_not_match(name: str) -> None:
    entry = ENTRIES[name]
    machines = neighbours(entry)
    assert {relation(readable(entry), machine) for machine in machines} == {Relation.OTHER}
    assert not {relation(entry, machine) for machine in machines} & MATCHES


SYNC_WAIT = ENTRIES["wsl-41017-sync-wait-hang"]
REPORTED_ON = MachineFacts("wsl2", "2.7.12", "6.18.33.2", "10.0.26200.8737", "610.88", "8.9")


@pytest.mark.parametrize(
    ("values", "explained"),
    [
        ({}, True),
        ({"driver": "616.56"}, True),
        ({"wsl_version": None, "windows_build": None, "driver": None}, True),
        ({"compute_capability": "12.0"}, False),
        ({"compute_capability": None}, False),
    ],
)
def test_build_and_symptom_needs_one_version_of_a_report_and_nothing_against_it(
    values: dict[str, Any],
    explained: bool,  # noqa: FBT001  # a parameter of the test
) -> None:
    assert SYNC_WAIT.report_when is ReportWhen.BUILD_AND_SYMPTOM
    assert explains(SYNC_WAIT, changed(REPORTED_ON, **values)) is explained


def test_symptom_is_enough_unless_a_bound_is_against_it() -> None:
    legacy = ENTRIES["linux-r590-drops-pascal"]
    assert explains(legacy, MachineFacts("linux"))
    assert explains(legacy, MachineFacts("linux", driver="595.58.03"))
    assert not explains(legacy, MachineFacts("linux", driver="580.95.05"))
