"""Machines and the catalogue: for each entry one that it is about, and one next to it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpud.known_issues.catalogue import VERSIONS, KnownIssue, Range, catalogue
from gpud.known_issues.matching import MachineFacts, Relation, by_version, relation

ENTRIES = {entry.id: entry for entry in catalogue()}
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


@pytest.mark.parametrize("name", READABLE)
def test_a_machine_of_the_entry_matches(name: str) -> None:
    entry = ENTRIES[name]
    assert relation(entry, matching(entry)) in MATCHES


@pytest.mark.parametrize("name", READABLE)
def test_a_machine_next_to_the_entry_does_not_match(name: str) -> None:
    entry = ENTRIES[name]
    applies, facts = entry.applies, matching(entry)
    neighbours = []
    if applies.platform != "any":
        neighbours.append(changed(facts, platform="wsl2" if facts.platform == "linux" else "linux"))
    if applies.compute_capability:
        neighbours.append(changed(facts, compute_capability="1.0"))
    for field in VERSIONS:
        span: Range | None = getattr(applies, field)
        if span is None:
            continue
        neighbours += [changed(facts, **{field: below(span.min)})] if span.min else []
        neighbours += [changed(facts, **{field: above(span.max)})] if span.max else []
        neighbours += [changed(facts, **{field: span.fixed})] if span.fixed else []
        unbounded = not any(
            getattr(applies, other) and getattr(applies, other).bounded for other in VERSIONS
        )
        if span.observed and unbounded:
            neighbours.append(changed(facts, **{field: "999.0"}))
    assert {relation(entry, machine) for machine in neighbours} == {Relation.OTHER}


@pytest.mark.parametrize("name", READABLE)
def test_what_is_not_known_of_a_machine_matches_nothing(name: str) -> None:
    entry = ENTRIES[name]
    facts = matching(entry)
    spans = {field: getattr(entry.applies, field) for field in VERSIONS}
    bounded = {field for field, span in spans.items() if span and span.bounded}
    deciding = bounded or {field for field, span in spans.items() if span and span.observed}
    deciding |= {"compute_capability"} if entry.applies.compute_capability else set()
    for field in deciding:
        assert relation(entry, changed(facts, **{field: None})) is Relation.UNKNOWN


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
        (
            MachineFacts("linux", driver="595.58.03", compute_capability="6.1"),
            {"linux-r590-drops-pascal": Relation.APPLIES},
        ),
        (MachineFacts("linux", driver="580.95.05", compute_capability="6.1"), {}),
    ],
)
def test_versions_alone_name_what_they_are_enough_for(
    facts: MachineFacts, expected: dict[str, Relation]
) -> None:
    named = {entry.id: kind for entry, kind in by_version(catalogue(), facts)}
    assert named == expected
