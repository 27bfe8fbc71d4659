"""Xids are counted on where a helper left off, for each GPU by its UUID."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.core import xid, xids
from gpud.core.sample import Absent, Reading
from gpud.core.xids import Seen

counts = st.dictionaries(st.integers(1, xids.HIGHEST), st.integers(1, 10**6), max_size=8)


def said(gpu: int, uuid: str, text: str | Absent, last: float | Absent) -> tuple[Reading, ...]:
    values = {"uuid": uuid, "xids": text, "xid_last": last, "power_watts": 3.0}
    return tuple(Reading(gpu, field, value, "nvml") for field, value in values.items())


def fields(readings: tuple[Reading, ...], gpu: int = 0) -> dict[str, object]:
    return {reading.field: reading.value for reading in readings if reading.gpu == gpu}


def test_what_one_helper_counted_is_added_to_what_the_next_one_counts() -> None:
    earlier = xids.seen(said(0, "GPU-a", "31:2", 31.0))
    after = fields(xids.carried(earlier, said(0, "GPU-a", "31:1,79:1", 79.0)))
    assert (after["xids"], after["xid_last"], after["power_watts"]) == ("31:3,79:1", 79.0, 3.0)


def test_the_last_xid_stays_the_last_until_there_is_another() -> None:
    earlier = xids.seen(said(0, "GPU-a", "79:1", 79.0))
    after = fields(xids.carried(earlier, said(0, "GPU-a", "none", 0.0)))
    assert (after["xids"], after["xid_last"]) == ("79:1", 79.0)


def test_a_gpu_is_known_by_its_uuid_and_not_by_its_number() -> None:
    earlier = xids.seen(said(0, "GPU-a", "79:1", 79.0) + said(1, "GPU-b", "13:4", 13.0))
    after = xids.carried(earlier, said(0, "GPU-b", "none", 0.0))
    assert fields(after)["xids"] == "13:4"
    whole = xids.together(earlier, xids.seen(after))
    assert whole["GPU-a"] == Seen({79: 1}, 79.0)


def test_a_reason_stays_a_reason() -> None:
    earlier = xids.seen(said(0, "GPU-a", "79:1", 79.0))
    unsupported = said(0, "GPU-a", Absent.UNSUPPORTED, Absent.UNSUPPORTED)
    assert xids.carried(earlier, unsupported) == unsupported
    assert xids.seen(unsupported) == {}


@given(first=counts, second=counts, third=counts)
def test_nothing_is_lost_or_counted_twice_however_often_a_helper_gives_way(
    first: dict[int, int], second: dict[int, int], third: dict[int, int]
) -> None:
    before: dict[str, Seen] = {}
    for counted in (first, second, third):
        told = said(0, "GPU-a", xids.told(counted), float(max(counted, default=0)))
        before = xids.together(before, xids.seen(told))
    whole = {
        code: first.get(code, 0) + second.get(code, 0) + third.get(code, 0)
        for code in {*first, *second, *third}
    }
    assert before["GPU-a"].counts == whole


@given(text=st.text() | st.from_regex(r"[0-9:,x]{0,40}", fullmatch=True))
def test_no_text_breaks_the_count(text: str) -> None:
    for one in xids.seen(said(0, "GPU-a", text, 0.0)).values():
        assert all(count >= 0 for count in one.counts.values())


@given(st.lists(st.text(min_size=1, max_size=5), max_size=200, unique=True))
def test_a_driver_with_new_uuids_all_the_time_does_not_grow_us(uuids: list[str]) -> None:
    before: dict[str, Seen] = {}
    for uuid in uuids:
        before = xids.together(before, {uuid: Seen({79: 1}, 79.0)})
    assert len(before) <= 64
    assert set(before) == set(uuids[-64:])


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "No Error"),
        (79, "GPU has fallen off the bus"),
        (143, "GPU Initialization Failure"),
        (154, "GPU Recovery Action Changed"),  # follows most others with today's drivers
        (172, "Uncorrectable SRAM Error"),
        (999, "Unknown Error"),
    ],
)
def test_an_xid_is_told_in_words_and_a_foreign_one_is_called_so(code: int, words: str) -> None:
    assert xid.meaning(code) == words
