"""Machines and the catalogue: for each entry one that it is about, and one next to it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpud.known_issues.catalogue import (
    VERSIONS,
    IssueEffect,
    KnownIssue,
    Range,
    ReportWhen,
    TextOrigin,
    catalogue,
)
from gpud.known_issues.matching import (
    MachineFacts,
    Relation,
    by_version,
    common_regexes,
    explains,
    patterns,
    relation,
)

ENTRIES = {entry.id: entry for entry in catalogue()}
ALL = sorted(ENTRIES)
READABLE = sorted(name for name, entry in ENTRIES.items() if entry.applies.needs is None)
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


@pytest.mark.parametrize("name", ALL)
def test_what_is_not_known_of_a_machine_matches_nothing(name: str) -> None:
    entry = ENTRIES[name]
    facts = matching(entry)
    spans = {field: getattr(entry.applies, field) for field in VERSIONS}
    bounded = {field for field, span in spans.items() if span and span.bounded}
    deciding = bounded or {field for field, span in spans.items() if span and span.observed}
    deciding |= {"compute_capability"} if entry.applies.compute_capability else set()
    for field in deciding:
        unknown = changed(facts, **{field: None})
        assert relation(readable(entry), unknown) is Relation.UNKNOWN
        assert relation(entry, unknown) is Relation.UNKNOWN


@pytest.mark.parametrize(
    "text", ["", "garbage", "-1", "9" * 5000, "\u0665\u0667\u0662.\u0661\u0666"]
)
def test_a_version_that_is_no_number_matches_nothing(text: str) -> None:
    facts = MachineFacts("wsl2", text, text, text, text, compute_capability="12.0")
    assert by_version(catalogue(), facts) == []


def test_a_condition_that_gpud_cannot_read_is_never_said_to_apply() -> None:
    needing = [entry for entry in ENTRIES.values() if entry.applies.needs]
    assert needing
    assert {relation(entry, matching(entry)) for entry in needing} == {Relation.UNKNOWN}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (MachineFacts("wsl2", kernel="6.6.84.1-microsoft-standard-WSL2"), {}),
        (
            MachineFacts("wsl2", kernel="6.6.75.3-microsoft-standard-WSL2"),
            {"wsl-12476-hmgrtable-panic": Relation.APPLIES},
        ),
        (
            MachineFacts(
                "wsl2", windows_build="10.0.20231.1005", kernel="6.6.87.2", driver="576.02"
            ),
            {"win-20226-no-cuda": Relation.APPLIES, "win-576.02-stale-temp": Relation.APPLIES},
        ),
        (
            MachineFacts(
                "wsl2",
                wsl_version="2.7.12",
                kernel="6.18.33.2-microsoft-standard-WSL2",
                windows_build="10.0.19045.6500",
                driver="582.70",
                compute_capability="8.6",
            ),
            {
                "wsl-41525-bsod-vidmm": Relation.REPORTED,
                "wslg-728-shutdown-freeze": Relation.APPLIES,
            },
        ),
        (MachineFacts("linux", driver="595.58.03", compute_capability="8.9"), {}),
    ],
)
def test_versions_alone_name_what_they_are_enough_for(
    facts: MachineFacts, expected: dict[str, Relation]
) -> None:
    named = {entry.id: kind for entry, kind in by_version(catalogue(), facts)}
    assert named == expected


@pytest.mark.parametrize("name", READABLE)
def test_a_trace_is_explained_by_its_entry_on_a_machine_of_it_and_on_no_other_platform(
    name: str,
) -> None:
    entry = ENTRIES[name]
    facts = matching(entry)
    assert explains(entry, facts)
    assert explains(entry, facts, common=True)
    elsewhere = "wsl2" if facts.platform == "linux" else "linux"
    assert entry.applies.platform == "any" or not explains(
        entry, changed(facts, platform=elsewhere)
    )


@pytest.mark.parametrize("name", sorted(set(ENTRIES) - set(READABLE)))
def test_a_condition_that_gpud_cannot_read_explains_no_trace(name: str) -> None:
    assert not explains(ENTRIES[name], matching(ENTRIES[name]))


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
    assert explains(SYNC_WAIT, changed(REPORTED_ON, **values), common=True) is (not values)


def test_build_and_symptom_on_versions_of_no_report_is_not_explained() -> None:
    others = MachineFacts("wsl2", "2.6.3", "6.6.87.2", "10.0.22631.1", "576.02", "8.9")
    assert not explains(SYNC_WAIT, others)
    unknown = MachineFacts("wsl2", compute_capability="8.9")
    assert not explains(SYNC_WAIT, unknown)


def test_symptom_is_enough_unless_a_bound_is_against_it() -> None:
    legacy = ENTRIES["linux-r590-drops-pascal"]
    assert explains(legacy, MachineFacts("linux"))
    assert explains(legacy, MachineFacts("linux", driver="595.58.03"))
    assert not explains(legacy, MachineFacts("linux", driver="580.95.05"))


def test_build_needs_its_versions_beside_a_trace_too() -> None:
    old = ENTRIES["nvml-wsl-old-driver"]
    assert explains(old, MachineFacts("wsl2", driver="510.06"))
    assert not explains(old, MachineFacts("wsl2"))
    assert not explains(old, MachineFacts("wsl2", driver="576.02"))


def test_harmless_entries_have_no_patterns_and_theirs_are_common() -> None:
    by_entry = {where: patterns(catalogue(), where) for where in TextOrigin}
    common = common_regexes(catalogue())
    assert common
    for entry in catalogue():
        harmless = entry.effect is IssueEffect.NONE
        for where in TextOrigin:
            own = {pattern.regex for pattern in entry.patterns if pattern.where is where}
            used = {pattern.pattern for pattern in by_entry[where].get(entry.id, ())}
            assert used == (set() if harmless else own - common or own)
