"""The catalogue: each entry is whole, and it is about its machine and its line, not the next."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from gpud import discovery
from gpud.child import probes
from gpud.known_issues.catalogue import (
    VERSIONS,
    IssueEffect,
    KnownIssue,
    Range,
    ReportWhen,
    TextOrigin,
    catalogue,
)
from gpud.known_issues.matching import MachineFacts, Relation, explains, matches, patterns, relation
from tests.deploy.installing import loaded
from tests.known_issues.frames import BOOT, HEALTHY

known_issues = loaded("known_issues")
XID = "NVRM: Xid (PCI:0000:01:00): {}, pid=1234, name=python3"
DXGK = "misc dxg: dxgk: {}"
LINES = {
    TextOrigin.KERNEL_LOG: [
        ("Kernel panic - not syncing: Fatal exception", "Kernel: not syncing"),
        (
            DXGK.format("dxgvmb_send_create_process: create_process failed -75"),
            DXGK.format("dxgvmb_send_create_process: create_process failed -12"),
        ),
        (
            DXGK.format("dxgkio_reserve_gpu_va: Ioctl failed: -75"),
            DXGK.format("dxgkio_reserve_gpu_va: Ioctl failed: -12"),
        ),
        (
            DXGK.format("dxgkio_make_resident: Ioctl failed: -12"),
            DXGK.format("dxgkio_make_resident: Ioctl failed: -2"),
        ),
        ("RIP: 0010:hmgrtable_free_handle+0x7c/0x130", "RIP: 0010:hmgrtable_alloc_handle+0x7c"),
        ("dxgk:err: did not find packet to complete", "dxgk:err: found packet to complete"),
        ("Workqueue: process_completion_packet", "Workqueue: process_one_work"),
        ("dxgk: adapter_by_handle failed", "dxgk: process_adapter_by_handle done"),
        *((XID.format(code), XID.format(f"{code}0")) for code in (8, 79, 109, 119, 154, 175)),
        ("NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.", "NVRM: GPU is on the bus"),
        ("NVRM: _kgspIsHeartbeatTimedOut: Heartbeat timed out", "NVRM: GSP RM heartbeat"),
        ("BUG: nvidia_uvm: Oops: 0002", "Oops: 0002 Modules linked in: nvidia_uvm(OE)"),
        ("nvidia-uvm: request_free_mem_region() err -34", "request_free_mem_region() err -12"),
        (
            "NVRM: The GPU is supported through the NVIDIA 580.xx Legacy drivers.",
            "NVRM: The GPU is supported through the NVIDIA 470.xx Legacy drivers.",
        ),
        ("python3[99]: segfault at 18 ip 00007f3a", "python3[99]: trap divide error ip:00007f3a"),
    ],
    TextOrigin.CUDA: [
        ("CUDA driver error: device not ready", "CUDA driver error: device ready"),
        ("CUDA error: unknown error", "CUDA error: out of resources"),
        ("cudaErrorUnknown", "cudaErrorInvalidDevice"),
        ("cudaErrorStreamCaptureInvalidated", "cudaErrorStreamCaptureIsolation"),
        ("cuMemSetAccess returned 801", "cuMemAlloc returned 2"),
        ("cuMemAddressReserve: out of memory", "cuMemAlloc"),
        ("cuMemHostAlloc: (2): out of memory", "cuMemAlloc_v2: (2): out of memory"),
        ("torch.OutOfMemoryError: CUDA", "torch_OutOfMemoryError"),
        ("code=46(cudaErrorDevicesUnavailable)", "code=4"),
        ("code=35(cudaErrorInsufficientDriver)", "code=3"),
        ("error 901", "error 9010"),
        ("CUDA_ERROR_UNKNOWN 999", "error 9990"),
        ("error 46: busy or unavailable", "error 460"),
    ],
    TextOrigin.NVML: [
        (
            "Failed to initialize NVML: GPU access blocked by the operating system",
            "Failed to initialize NVML: Driver Not Loaded",
        ),
        ("Failed to initialize NVML: Unknown Error", "Failed to initialize NVML: Timeout"),
        ("Unable to determine the device handle for GPU0000:01:00.0", "device handle for GPU"),
        ("Not Supported", "Supported"),
        ("| ERR!  |", "| ERROR |"),
    ],
}
PATTERNS = sorted({(entry.where, entry.regex) for each in catalogue() for entry in each.patterns})


def test_every_entry_has_one_name_sources_and_something_to_go_by() -> None:
    entries = catalogue()
    assert len({entry.id for entry in entries}) == len(entries)
    for entry in entries:
        assert entry.sources, entry.id
        assert all(urlsplit(source.url).scheme == "https" for source in entry.sources), entry.id
        assert entry.workaround or entry.effect is IssueEffect.NONE, entry.id


def test_what_to_do_about_a_fault_that_was_seen_helps_now() -> None:
    prevents = re.compile(r"before|[Dd]o not|[Aa]void|[Kk]eep|never|None|treat|detect|measure,")
    seen = [entry for entry in catalogue() if entry.patterns]
    assert [e.id for e in seen if prevents.match(e.workaround or "")] == []
    fixes = {entry.id: entry.workaround or "" for entry in seen}
    hangs = [e.id for e in seen if e.applies.platform == "wsl2" and e.effect is IssueEffect.HANG]
    for name in ("wsl-41176-va-75", "wsl-41062-create-process-75", *hangs):
        assert fixes[name].startswith("Run `wsl --shutdown` in Windows"), name


def test_every_version_has_numbers_and_every_mode_left_out_is_one_of_a_probe() -> None:
    usable, _ = discovery.modules(probes, ("SPEC", "run"))
    modes = {mode for module in usable.values() for mode in module.SPEC.modes}
    for entry in catalogue():
        spans = [span for name in VERSIONS if (span := getattr(entry.applies, name)) is not None]
        for span in spans:
            versions = [*filter(None, (span.min, span.max, span.fixed)), *span.observed]
            assert versions, entry.id
            assert all(version[0].isdigit() for version in versions), entry.id
        assert set(entry.leave_out) <= modes, entry.id
        assert 0 <= entry.boot_grace_s <= 300, entry.id


@pytest.mark.parametrize(("where", "regex"), PATTERNS)
def test_a_pattern_matches_a_line_of_its_source_and_not_its_neighbour(
    where: TextOrigin, regex: str
) -> None:
    pattern = re.compile(regex)
    matched = [pair for pair in LINES[where] if pattern.search(pair[0])]
    assert matched, "no line in LINES is matched"
    assert any(not pattern.search(neighbour) for _, neighbour in matched)


@pytest.mark.parametrize(("where", "regex"), PATTERNS)
def test_a_pattern_takes_time_in_proportion_to_the_text(where: TextOrigin, regex: str) -> None:
    assert regex.startswith("^") or not re.search(r"\.[*+]", regex), "tried again at each character"
    assert not re.search(r"[*+}]\)[*+{]", regex), "a repeat within a repeat"


@pytest.mark.parametrize("where", TextOrigin)
def test_every_line_is_matched_by_a_pattern(where: TextOrigin) -> None:
    patterns = [re.compile(regex) for place, regex in PATTERNS if place is where]
    for line, _ in LINES[where]:
        assert any(pattern.search(line) for pattern in patterns), line


def test_the_page_is_made_of_the_catalogue() -> None:
    page = known_issues.PAGE.read_text()
    assert page == known_issues.page(), "run .venv/bin/python deploy/known_issues.py"


def test_log_of_a_healthy_wsl2_shows_no_fault() -> None:
    regexes = patterns(TextOrigin.KERNEL_LOG)
    for line in (*BOOT, *HEALTHY, " ".join(HEALTHY)):
        assert not [name for name, those in regexes.items() if matches(those, line)], line


ENTRIES = {entry.id: entry for entry in catalogue()}
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
        others = [getattr(applies, other) for other in VERSIONS]
        if span.observed and not any(other and other.bounded for other in others):
            machines.append(changed(facts, **{field: "999.0"}))
    return machines


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_a_machine_of_the_entry_matches_and_one_next_to_it_does_not(name: str) -> None:
    entry = ENTRIES[name]
    assert relation(readable(entry), matching(entry)) in MATCHES
    if entry.applies.needs:
        assert relation(entry, matching(entry)) is Relation.UNKNOWN
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
