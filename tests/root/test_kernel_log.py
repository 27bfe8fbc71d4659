"""The kernel's log, read record by record as /dev/kmsg gives it, and what is known by its lines."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.core.report import RECENT_S, DxgKind, KernelLogReport
from gpud.known_issues.matching import LONGEST_TEXT
from gpud.root.dxg import FRAME_S, LONGEST_FRAME, LONGEST_WORDS, MOST_TROUBLES
from gpud.root.kernel_log import LOOK_EVERY_S, MOST_RECORDS, OPEN_AGAIN_S, KernelLog
from tests.kmsg import Kernel
from tests.known_issues.frames import BOOT, CUT, FIELD_SPANNING, HANDLE_TABLE, HEALTHY, UVM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.root.conftest import Supervised

PREFIX = "misc dxg: dxgk: "
LOST = f"{PREFIX}dxgvmb_send_create_process: create_process failed -75"
STRANGE = f"{PREFIX}dxgkio_lock2: Ioctl failed: -11"
VA = f"{PREFIX}dxgkio_reserve_gpu_va: Ioctl failed: -75"
WARNING = (CUT, *HANDLE_TABLE[3:])
"""A warning with the function of a known fault among its records."""
LOST_TRACE, VA_TRACE = "wsl-41062-create-process-75", "wsl-41176-va-75"
TABLE_TRACE, UVM_TRACE = "wsl-12476-hmgrtable-panic", "ublue-1895-uvm"
EMPTY = BlockingIOError(errno.EAGAIN, "nothing more")


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    made = Kernel(tmp_path / "sysroot")
    yield made
    made.close()


@contextlib.contextmanager
def log_of(
    kernel: Kernel, *answers: OSError | str, boot_s: Callable[[], float] = lambda: 65.0
) -> Iterator[KernelLog]:
    """The log of a kernel, or one whose reads give these answers."""
    left = list(answers)

    def read(_: int, __: int) -> bytes:
        answer = left.pop(0) if left else EMPTY
        if isinstance(answer, OSError):
            raise answer
        return answer.encode()

    log = KernelLog(str(kernel.sysroot), read=read if answers else os.read, boot_s=boot_s)
    yield log
    log.close()


def told(kernel: Kernel, *lines: str) -> KernelLogReport:
    """What is reported of these lines, written five seconds ago."""
    for line in lines:
        kernel.says(line, at_s=60.0)
    with log_of(kernel) as log:
        log.step(100.0)
        report = log.report()
        assert log.report() == report  # the same until there is news
    return report


LINES = {
    DxgKind.NOISE: BOOT,
    DxgKind.MESSAGE_LOST: (
        LOST,
        f"{PREFIX}dxgkio_create_allocation: Ioctl failed: -75",
        f"{PREFIX}dxgkio_query_adapter_info: Ioctl failed: -75",
        f"{PREFIX}dxgvmb_send_create_allocation: send_create_allocation failed ffffffb5",
    ),
    DxgKind.NOT_RESIDENT: (f"{PREFIX}dxgkio_make_resident: Ioctl failed: -12",),
    DxgKind.UNKNOWN: (
        f"{PREFIX}dxgkio_query_adapter_info: Ioctl failed: -11",
        f"{PREFIX}dxgkio_is_feature_enabled: Ioctl failed: -2",
        f"{PREFIX}dxgkio_lock2: Ioctl failed: -22",
        f"{PREFIX}dxgkio_create_allocation: Ioctl failed: -12",
        f"{PREFIX}dxgvmb_send_sync_msg: vmbus_sendpacket failed: fffffff5",
        f"{PREFIX}dxgkio_make_resident: paging queue is full",
    ),
    DxgKind.FIELD_SPANNING: (FIELD_SPANNING,) * 21,
    None: (
        "hv_vmbus: registering driver dxgkrnl",
        f"systemd[1]: {LOST}",
        PREFIX,
        f"{PREFIX}no function here",
        f" {LOST}",
        FIELD_SPANNING.replace("hv/dxgkrnl/dxgvmbus.c", "net/wireless/nl80211.c"),
    ),
}


@pytest.mark.parametrize("kind", LINES, ids=lambda kind: kind or "other drivers")
def test_line_counts_for_what_it_says_and_only_known_trouble_is_news(
    kernel: Kernel, kind: DxgKind | None
) -> None:
    lines = LINES[kind]
    report = told(kernel, *lines)
    counted = {} if kind is None else {kind: len(lines)}
    assert report.counts == dict.fromkeys(DxgKind, 0) | counted
    if kind in {DxgKind.MESSAGE_LOST, DxgKind.NOT_RESIDENT}:
        assert report.recent == counted
        assert report.last is not None
        assert report.last.words == lines[-1].removeprefix(PREFIX)
        assert report.last.at_s == pytest.approx(time.time() - 5, abs=60)
    else:
        assert (report.last, report.recent) == (None, {})


@pytest.mark.parametrize("begin_s", [5.0, 1e6], ids=["at boot", "after days"])
def test_trouble_is_news_for_a_while_and_stays_counted(kernel: Kernel, begin_s: float) -> None:
    now_s = begin_s
    with log_of(kernel, boot_s=lambda: now_s) as log:
        for _ in range(2):
            kernel.says(LOST, at_s=begin_s)
        log.step(now_s)
        now_s = begin_s + RECENT_S - 1
        assert log.report().recent == {"message_lost": 2}
        now_s = begin_s + RECENT_S
        assert log.report().recent == {}
        assert log.report().counts["message_lost"] == 2


@pytest.mark.parametrize(
    "raw",
    [
        "garbage",
        " SUBSYSTEM=misc",
        f"11,1234,41182660,-;{LOST}",  # facility 1: a program wrote it
        f"3,x,41182660,-;{LOST}",
        f"-3,1,2,-;{LOST}",
        LOST,
    ],
)
def test_what_the_kernel_did_not_write_is_not_believed(kernel: Kernel, raw: str) -> None:
    with log_of(kernel, raw) as log:
        log.step(0.0)
        assert sum(log.report().counts.values()) == 0
        assert log.report().traces == {}


FILLER = ("R08: " + "0" * 95,) * (LONGEST_FRAME // 100 + 1)
FRAMES: dict[str, tuple[tuple[str, ...], dict[str, tuple[int, str]]]] = {
    "lines": (("EXT4-fs: mounted", VA, VA, LOST), {VA_TRACE: (2, VA), LOST_TRACE: (1, LOST)}),
    "each frame of a flood": (WARNING * 25, {TABLE_TRACE: (25, HANDLE_TABLE[4])}),
    "an Oops": (HANDLE_TABLE, {TABLE_TRACE: (1, HANDLE_TABLE[4])}),
    "a pattern over two records": (UVM, {UVM_TRACE: (1, UVM[0])}),
    "half of that pattern": (
        tuple(line.replace(" [nvidia_uvm]", " [snd_hda_codec]") for line in UVM),
        {},
    ),
    "lines after a frame": ((*HEALTHY, VA, VA), {VA_TRACE: (2, VA)}),
    "lines within a frame": ((*HEALTHY[:4], VA, VA, HEALTHY[-1]), {VA_TRACE: (1, VA)}),
    "a frame within another": ((*WARNING[:-1], *WARNING), {TABLE_TRACE: (2, HANDLE_TABLE[4])}),
    "an Oops within a warning": (
        (*HEALTHY[:4], *HANDLE_TABLE),
        {TABLE_TRACE: (1, HANDLE_TABLE[4])},
    ),
    "a long frame up to its longest": (
        (CUT, HANDLE_TABLE[4], *FILLER, HANDLE_TABLE[-1]),
        {TABLE_TRACE: (1, HANDLE_TABLE[4])},
    ),
    "nothing beyond its longest": ((CUT, *FILLER, HANDLE_TABLE[4], HANDLE_TABLE[-1]), {}),
    "nothing": (("x" * LONGEST_TEXT + VA, CUT, HEALTHY[-1], "BUG", ""), {}),
}


@pytest.mark.parametrize("what", FRAMES)
def test_traces_of_known_faults_are_counted_by_line_and_by_frame(kernel: Kernel, what: str) -> None:
    lines, expected = FRAMES[what]
    traces = told(kernel, *lines).traces
    assert {entry: (trace.count, trace.words) for entry, trace in traces.items()} == expected
    for trace in traces.values():
        assert trace.at_s == pytest.approx(time.time() - 5, abs=60)


def test_frame_may_be_written_over_two_looks_and_without_its_end_is_over_after_a_while(
    kernel: Kernel,
) -> None:
    now_s = 60.5

    def traced(*lines: str, at_s: float) -> dict[str, int]:
        for line in lines:
            kernel.says(line, at_s=at_s)
        log.step(now_s)
        return {entry: trace.count for entry, trace in log.report().traces.items()}

    with log_of(kernel, boot_s=lambda: now_s) as log:
        assert traced(*HANDLE_TABLE[:-1], at_s=60.0) == {}
        now_s = 60.0 + FRAME_S
        assert traced(HANDLE_TABLE[-1], at_s=60.0) == {TABLE_TRACE: 1}
        assert traced(*WARNING[:-1], at_s=now_s) == {TABLE_TRACE: 1}
        now_s += FRAME_S + LOOK_EVERY_S
        assert traced(at_s=now_s) == {TABLE_TRACE: 2}
        now_s += LOOK_EVERY_S
        late_s = now_s + FRAME_S + 0.1
        assert traced(*WARNING[:-1], at_s=now_s) == {TABLE_TRACE: 2}
        now_s = late_s
        assert traced(VA, at_s=late_s) == {TABLE_TRACE: 3, VA_TRACE: 1}


def test_words_from_the_kernel_are_harmless_and_short(kernel: Kernel) -> None:
    odd = f"\x1b[31m\u202e{'y' * 300}"
    report = told(kernel, f"{PREFIX}dxgkio_x: {odd} failed -75", f"\x1b\u202e{VA}{odd}")
    assert report.last is not None
    for words in (report.last.words, report.traces[VA_TRACE].words):
        assert not {"\x1b", "\u202e"} & set(words)
        assert len(words) == LONGEST_WORDS


def test_flood_is_taken_in_portions_once_a_second(kernel: Kernel) -> None:
    records = (f"3,{number},5000000,-;{BOOT[0]}" for number in count())
    with log_of(kernel, *(next(records) for _ in range(3 * MOST_RECORDS))) as log:
        for now_s, portions in ((0.0, 1), (LOOK_EVERY_S / 2, 1), (LOOK_EVERY_S, 2)):
            log.step(now_s)
            assert log.report().counts["noise"] == portions * MOST_RECORDS


@pytest.fixture(scope="module")
def anywhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    made = Kernel(tmp_path_factory.mktemp("anywhere"))
    yield made
    made.close()


KNOWN = st.sampled_from([LOST, *BOOT[:4], *HEALTHY, *UVM, VA, STRANGE])


@given(lines=st.lists(st.text(max_size=80) | st.text(max_size=80).map(PREFIX.__add__) | KNOWN))
def test_no_order_of_lines_is_too_strange_and_memory_is_bounded(
    anywhere: Kernel, lines: list[str]
) -> None:
    records = [f"3,{number},1,-;{line}" for number, line in enumerate(lines)]
    with log_of(anywhere, *records, *lines, EMPTY) as log:
        log.step(0.0)
        report = log.report()
        lost = lines.count(LOST) + lines.count(VA)
        assert report.counts["message_lost"] >= lost
        assert report.counts["noise"] >= sum(line in BOOT for line in lines)
        assert min(lost, MOST_TROUBLES) <= sum(report.recent.values()) <= MOST_TROUBLES
        assert sum(trace.count for trace in report.traces.values()) <= len(lines)


@given(lines=st.lists(st.sampled_from([LOST, BOOT[0], STRANGE, "other"]), max_size=400))
def test_counts_are_those_of_the_lines(anywhere: Kernel, lines: list[str]) -> None:
    with log_of(anywhere, *(f"3,{n},1,-;{line}" for n, line in enumerate(lines)), EMPTY) as log:
        log.step(0.0)
        counts = log.report().counts
    assert sum(counts.values()) == len(lines) - lines.count("other")
    assert (counts["message_lost"], counts["unknown"]) == (lines.count(LOST), lines.count(STRANGE))


def test_log_that_overtook_its_reader_is_reported_and_read_on(kernel: Kernel) -> None:
    with log_of(kernel, OSError(errno.EPIPE, "Broken pipe"), f"3,9,5000000,-;{LOST}\n") as log:
        log.step(0.0)
        report = log.report()
        assert (report.overruns, report.counts["message_lost"]) == (1, 1)


def test_no_log_is_a_reason_and_is_looked_for_again(tmp_path: Path) -> None:
    log = KernelLog(str(tmp_path))
    log.step(0.0)
    report = log.report()
    assert (report.unreadable, report.counts) == ("absent", {})
    assert str(tmp_path) in (report.detail or "")
    appeared = Kernel(tmp_path / "late")
    (tmp_path / "late/dev").rename(tmp_path / "dev")
    appeared.says(BOOT[0])
    log.step(OPEN_AGAIN_S - 1)
    assert log.report().unreadable == "absent"
    log.step(OPEN_AGAIN_S)
    assert (log.report().unreadable, log.report().counts["noise"]) == (None, 1)
    log.close()
    appeared.close()


@pytest.mark.parametrize(
    ("code", "reason"), [(errno.EPERM, "refused"), (errno.EACCES, "refused"), (errno.EIO, "failed")]
)
def test_traces_outlast_a_read_that_failed_and_no_line_is_counted_twice(
    kernel: Kernel, code: int, reason: str
) -> None:
    oldest, newest = (f"3,{number},5000000,-;{LOST}\n" for number in (1, 2))
    with log_of(kernel, oldest, OSError(code, os.strerror(code)), oldest, newest) as log:
        log.step(0.0)
        failed = log.report()
        assert (failed.unreadable, failed.counts) == (reason, {})
        assert failed.detail
        assert failed.traces[LOST_TRACE].count == 1
        log.step(OPEN_AGAIN_S)
        again = log.report()
        assert (again.counts["message_lost"], again.traces[LOST_TRACE].count) == (2, 2)


class Clocks:
    """Clocks of a machine in WSL2: while Windows pauses it, all but the wall's stand."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.boot_s, self.wall_s = 1000.0, 1.7e9
        patch.setattr(time, "time", lambda: self.wall_s)

    def pass_by(self, for_s: float, paused_s: float = 0.0) -> None:
        self.boot_s += for_s
        self.wall_s += for_s + paused_s

    def moment(self, log: KernelLog) -> float | None:
        """When the last line was written, by a look at it now."""
        log.step(self.boot_s)
        report = log.report()
        assert report.last is not None
        assert [trace.at_s for trace in report.traces.values()] == [report.last.at_s]
        return report.last.at_s


def test_moment_of_a_line_from_before_a_pause_is_not_known_and_that_of_a_new_one_is(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = Clocks(monkeypatch)
    with log_of(kernel, boot_s=lambda: clocks.boot_s) as log:
        log.step(clocks.boot_s)
        kernel.says(LOST, at_s=clocks.boot_s)
        clocks.pass_by(2.0, paused_s=8 * 3600.0)
        assert clocks.moment(log) is None
        kernel.says(LOST, at_s=clocks.boot_s)
        clocks.pass_by(1.0)
        assert clocks.moment(log) == pytest.approx(clocks.wall_s)


@pytest.mark.parametrize(("ago_s", "moment_s"), [(30.0, 1.7e9 - 30.0), (600.0, None)])
def test_at_the_first_look_only_a_new_line_has_a_moment(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, ago_s: float, moment_s: float | None
) -> None:
    """Whether Windows has paused the machine since the line was written cannot be known."""
    clocks = Clocks(monkeypatch)
    kernel.says(LOST, at_s=clocks.boot_s - ago_s)
    with log_of(kernel, boot_s=lambda: clocks.boot_s) as log:
        assert clocks.moment(log) == pytest.approx(moment_s)


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="needs a kernel log to read")
def test_the_real_log_can_be_read_twice_and_loses_nothing() -> None:
    def sequence() -> list[int]:
        fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        result: list[int] = []
        try:
            while True:
                with contextlib.suppress(BrokenPipeError):  # overwritten meanwhile: it goes on
                    result.append(int(os.read(fd, 8192).split(b",")[1]))
        except BlockingIOError:
            return result
        finally:
            os.close(fd)

    before = sequence()
    log = KernelLog("/")
    log.step(0.0)
    assert log.report().unreadable is None
    after = sequence()
    assert {number for number in before if number >= after[0]} <= set(after)
    assert after[-1] >= before[-1]
    log.close()


def test_root_tells_it_in_its_report(supervised: Supervised) -> None:
    kernel = Kernel(supervised.home / "sysroot")
    kernel.says(LOST, at_s=time.monotonic())
    supervised.settings["sysroot"] = str(kernel.sysroot)
    supervised.start()
    status = supervised.when(lambda r: r["kernel_log"]["last"], "the kernel's words")["kernel_log"]
    assert status["counts"]["message_lost"] == 1
    assert status["recent"] == {"message_lost": 1}
    kernel.close()
