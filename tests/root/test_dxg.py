"""Lines of the kernel's log, as machines with WSL2 wrote them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.core.report import RECENT_S, DxgKind
from gpud.root.dxg import LONGEST_WORDS, Line, Tally, Trouble, judged, record

PREFIX = "misc dxg: dxgk: "
LOST = f"{PREFIX}dxgvmb_send_create_process: create_process failed -75"
STRANGE = f"{PREFIX}dxgkio_lock2: Ioctl failed: -11"
BOOT = [
    f"{PREFIX}dxgkio_is_feature_enabled: Ioctl failed: -22",
    *[f"{PREFIX}dxgkio_query_adapter_info: Ioctl failed: -22"] * 14,
    *[f"{PREFIX}dxgkio_query_adapter_info: Ioctl failed: -2"] * 6,
]
"""What a working machine says when it starts."""


def tallied(*lines: tuple[float, str]) -> Tally:
    tally = Tally()
    for at_s, text in lines:
        tally = tally.with_line(Line(at_s, text))
    return tally


@pytest.mark.parametrize("line", sorted(set(BOOT)))
def test_what_working_machines_say_is_noise(line: str) -> None:
    assert judged(line) == DxgKind.NOISE


FIELD_SPANNING = (
    'memcpy: detected field-spanning write (size 48) of single field "command->object_handles"'
    " at drivers/hv/dxgkrnl/dxgvmbus.c:2891 (size 0)"
)


def test_field_spanning_write_of_the_gpu_bus_is_counted_and_no_trouble() -> None:
    tally = tallied(*[(120.0 + n, FIELD_SPANNING) for n in range(21)])
    assert tally.counts[DxgKind.FIELD_SPANNING] == 21
    assert sum(tally.counts.values()) == 21
    assert (tally.last, tally.recent(130.0)) == (None, {})
    elsewhere = FIELD_SPANNING.replace("hv/dxgkrnl/dxgvmbus.c", "net/wireless/nl80211.c")
    assert judged(elsewhere) is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("dxgvmb_send_create_process: create_process failed -75", DxgKind.MESSAGE_LOST),
        ("dxgkio_create_allocation: Ioctl failed: -75", DxgKind.MESSAGE_LOST),
        (
            "dxgvmb_send_create_allocation: send_create_allocation failed ffffffb5",
            DxgKind.MESSAGE_LOST,
        ),
        ("dxgkio_query_adapter_info: Ioctl failed: -75", DxgKind.MESSAGE_LOST),
        ("dxgkio_make_resident: Ioctl failed: -12", DxgKind.NOT_RESIDENT),
    ],
)
def test_what_only_broken_machines_say_is_trouble(text: str, kind: DxgKind) -> None:
    assert judged(PREFIX + text) == Trouble(kind, text)


@pytest.mark.parametrize(
    "text",
    [
        "dxgkio_query_adapter_info: Ioctl failed: -11",
        "dxgkio_is_feature_enabled: Ioctl failed: -2",
        "dxgkio_lock2: Ioctl failed: -22",
        "dxgkio_create_allocation: Ioctl failed: -12",
        "dxgvmb_send_sync_msg: vmbus_sendpacket failed: fffffff5",
        "dxgkio_make_resident: paging queue is full",
    ],
)
def test_what_nobody_has_explained_is_counted_as_unknown(text: str) -> None:
    assert judged(PREFIX + text) == DxgKind.UNKNOWN


@pytest.mark.parametrize(
    "line",
    [
        "",
        "hv_vmbus: registering driver dxgkrnl",
        "EXT4-fs (sdd): mounted filesystem",
        f"systemd[1]: {LOST}",
        "misc dxg: dxgk: ",
        "misc dxg: dxgk: no function here",
        f" {LOST}",
    ],
)
def test_other_drivers_are_none_of_our_business(line: str) -> None:
    assert judged(line) is None


def test_a_record_has_a_moment_and_a_text() -> None:
    assert record(f"3,1234,41182660,-;{LOST}\n SUBSYSTEM=misc\n") == Line(41.18266, LOST, 1234)


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "garbage",
        " SUBSYSTEM=misc",
        f"11,1234,41182660,-;{LOST}",  # facility 1: a program wrote it
        f"3,x,41182660,-;{LOST}",
        f"-3,1,2,-;{LOST}",
        LOST,
    ],
)
def test_what_the_kernel_did_not_write_is_no_record(raw: str) -> None:
    assert record(raw) is None


def test_words_from_the_kernel_are_harmless_and_short() -> None:
    meaning = judged(f"{PREFIX}dxgkio_x: \x1b[31m\u202e{'y' * 300} failed -75")
    assert isinstance(meaning, Trouble)
    assert "\x1b" not in meaning.words
    assert "\u202e" not in meaning.words
    assert len(meaning.words) == LONGEST_WORDS


def test_a_start_of_a_working_machine_is_counted_and_means_nothing() -> None:
    tally = tallied(*((2.0, line) for line in BOOT))
    assert tally.counts[DxgKind.NOISE] == len(BOOT)
    assert tally.recent(3.0) == {}
    assert tally.last is None


def test_trouble_is_news_for_a_while_and_stays_counted() -> None:
    tally = tallied((5.0, LOST), (6.0, LOST))
    assert tally.recent(7.0) == {DxgKind.MESSAGE_LOST: 2}
    assert tally.recent(6.0 + RECENT_S) == {}
    assert tally.counts[DxgKind.MESSAGE_LOST] == 2


def test_news_is_news_after_days_too() -> None:
    days_s = 1e6
    tally = tallied((days_s, LOST), (days_s, STRANGE))
    assert tally.recent(days_s + 1) == {DxgKind.MESSAGE_LOST: 1}
    assert tally.recent(days_s + 601) == {}


@given(st.text(max_size=300))
def test_no_text_is_too_strange(text: str) -> None:
    for shown in (text, PREFIX + text):
        judged(shown)
        record(shown)
        record(f"3,1,1,-;{shown}")


@given(st.lists(st.sampled_from([LOST, STRANGE, BOOT[0], "other"]), max_size=400))
def test_the_counts_are_those_of_the_lines_and_the_memory_is_bounded(lines: list[str]) -> None:
    tally = tallied(*((float(at), line) for at, line in enumerate(lines)))
    assert sum(tally.counts.values()) == sum(line != "other" for line in lines)
    assert len(tally.troubles) <= 64
