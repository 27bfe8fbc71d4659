from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.child import summary
from gpud.core import wire
from gpud.core.errors import WireError
from gpud.core.report import AgentReport, DockerdReport, ProcessRef, RootReport
from gpud.core.sample import (
    Backend,
    Device,
    Failure,
    Inventory,
    Missing,
    Reason,
    RunReport,
    Sample,
    Unit,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
figures = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
failures = st.builds(Failure, st.sampled_from(Reason), texts, st.none() | texts, st.none())
devices = st.builds(
    Device, st.integers(0, 9), texts, texts, texts, texts, st.just(1), st.just(1), st.just(1)
)
buckets = st.lists(figures, max_size=5).map(summary.bucketed).filter(lambda b: b.total < 1e300)
QUANTILES = ("minimum", "p10", "median", "p90", "p99", "maximum")


def with_quantiles(sample: Sample, values: list[float]) -> Sample:
    ordered: dict[str, Any] = dict(zip(QUANTILES, sorted(values), strict=True))
    return dataclasses.replace(sample, **ordered)


bare_samples = st.builds(
    Sample,
    mode=texts,
    unit=st.sampled_from(Unit),
    n=st.integers(1, 10**6),
    **dict.fromkeys(QUANTILES, st.just(0.0)),
    null_median=st.none() | figures,
    null_p99=st.none() | figures,
    buckets=st.none() | buckets,
)
samples = st.builds(with_quantiles, bare_samples, st.lists(figures, min_size=6, max_size=6))
good_reports = st.builds(
    RunReport,
    probe=texts,
    backend=st.sampled_from(Backend),
    device=st.none() | devices,
    samples=st.lists(samples, max_size=3, unique_by=lambda sample: sample.mode).map(tuple),
    missing=st.lists(st.builds(Missing, texts, st.sampled_from(Reason), texts), max_size=2).map(
        tuple
    ),
    conditions=st.dictionaries(texts, st.none() | st.booleans() | texts, max_size=3),
    duration_s=figures,
    gpu_seconds=figures,
)
bad_reports = st.builds(
    RunReport, probe=texts, backend=st.sampled_from(Backend), failure=failures, duration_s=figures
)
inventories = st.builds(
    Inventory, st.lists(devices, max_size=3).map(tuple), st.none() | texts, st.none() | texts
)

SAMPLE: dict[str, Any] = {
    **dict.fromkeys(("median", "p10", "p90", "p99", "minimum", "maximum"), 1.0),
    "mode": "submit",
    "unit": "seconds",
    "n": 3,
}
REPORT: dict[str, Any] = {"probe": "launch", "backend": "cuda", "samples": [SAMPLE]}


def document(**changes: object) -> bytes:
    return json.dumps({**REPORT, **changes}).encode()


@given(good_reports | bad_reports)
def test_a_run_report_arrives_as_it_was_sent(report: RunReport) -> None:
    assert wire.decode(wire.encode(report), RunReport) == report


@given(inventories)
def test_an_inventory_arrives_as_it_was_sent(inventory: Inventory) -> None:
    assert wire.decode(wire.encode(inventory), Inventory) == inventory


@given(good_reports)
def test_what_the_child_writes_with_the_standard_library_reads_the_same(report: RunReport) -> None:
    text = json.dumps(dataclasses.asdict(report)).encode()
    assert wire.decode(text, RunReport) == report


def test_a_root_report_arrives_as_it_was_sent() -> None:
    report = RootReport(
        gpud_version="1",
        process=ProcessRef(1, 2),
        privileged=True,
        boot_id="b",
        started_s=1.0,
        written_s=2.0,
        beat_s=3.0,
        dockerd=DockerdReport(state="up", policy="auto", up=True),
        agent=AgentReport(state="running"),
    )
    assert wire.decode(wire.encode(report), RootReport) == report


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        document()[:-1],
        document() + b"{}",
        document(schema_version=2),
        document(backend="tpu"),
        document(duration_s=float("nan")),
        document(duration_s=float("inf")),
        document().replace(b"1.0", b"1e999"),
        document(conditions={"a": {"b": 1}}),
        b'{"x":' + b"[" * 100_000,
    ],
    ids=[
        "nothing",
        "null",
        "a list",
        "not UTF-8",
        "cut short",
        "two documents",
        "another schema",
        "an unknown backend",
        "NaN",
        "infinity",
        "an overflowing number",
        "a nested condition",
        "nested without end",
    ],
)
def test_what_is_not_a_report_is_refused(text: bytes) -> None:
    with pytest.raises(WireError):
        wire.decode(text, RunReport)


def test_a_refusal_never_quotes_a_whole_flood() -> None:
    with pytest.raises(WireError) as caught:
        wire.decode(b"garbage " * 100_000, RunReport)
    assert len(str(caught.value)) < 400


@given(st.binary(max_size=80))
def test_no_bytes_end_in_anything_but_a_document_or_a_refusal(text: bytes) -> None:
    with pytest.raises(WireError):
        wire.decode(text, RunReport)
    with pytest.raises(WireError):
        wire.decode(text, RootReport)
