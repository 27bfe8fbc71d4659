"""Documents between processes: what the child writes is read as it was; all else is refused."""

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
from gpud.core.report import RootReport
from gpud.core.sample import Backend, Device, Failure, Missing, Reason, RunReport, Sample, Unit

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
figures = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
failures = st.builds(Failure, st.sampled_from(Reason), texts, st.none() | texts, st.none())
devices = st.builds(
    Device, st.integers(0, 9), texts, texts, texts, texts, st.just(1), st.just(1), st.just(1)
)
buckets = st.lists(figures, max_size=5).map(summary.bucketed).filter(lambda b: b.total < 1e300)
samples = st.builds(
    Sample,
    mode=texts,
    unit=st.sampled_from(Unit),
    n=st.integers(1, 10**6),
    **dict.fromkeys(("minimum", "p10", "median", "p90", "p99", "maximum"), figures),
    null_median=st.none() | figures,
    buckets=st.none() | buckets,
)
reports = st.builds(
    RunReport,
    probe=texts,
    backend=st.sampled_from(Backend),
    device=st.none() | devices,
    samples=st.lists(samples, max_size=3).map(tuple),
    missing=st.lists(st.builds(Missing, texts, st.sampled_from(Reason), texts), max_size=2).map(
        tuple
    ),
    failure=st.none() | failures,
    conditions=st.dictionaries(texts, st.none() | st.booleans() | texts, max_size=3),
    duration_s=figures,
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


@given(reports)
def test_what_the_child_writes_with_the_standard_library_reads_the_same(report: RunReport) -> None:
    text = json.dumps(dataclasses.asdict(report)).encode()
    assert wire.decode(text, RunReport) == wire.decode(wire.encode(report), RunReport) == report


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
        document().replace(b"1.0", b"1e999"),
        document(conditions={"a": {"b": 1}}),
        b'{"x":' + b"[" * 100_000,
    ],
)
def test_what_is_not_a_report_is_refused(text: bytes) -> None:
    with pytest.raises(WireError):
        wire.decode(text, RunReport)
    with pytest.raises(WireError):
        wire.decode(text, RootReport)


def test_a_refusal_never_quotes_a_whole_flood() -> None:
    with pytest.raises(WireError) as caught:
        wire.decode(b"garbage " * 100_000, RunReport)
    assert len(str(caught.value)) < 400
