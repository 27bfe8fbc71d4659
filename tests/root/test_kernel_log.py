"""The kernel's log, read record by record as /dev/kmsg gives it."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from itertools import count
from typing import TYPE_CHECKING

import pytest

from gpud.root.kernel_log import LOOK_EVERY_S, MOST_RECORDS, OPEN_AGAIN_S, KernelLog
from tests.kmsg import Kernel
from tests.known_issues.frames import HANDLE_TABLE, HEALTHY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.root.conftest import Supervised

LOST = "misc dxg: dxgk: dxgvmb_send_create_process: create_process failed -75"
NOISE = "misc dxg: dxgk: dxgkio_query_adapter_info: Ioctl failed: -22"


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    made = Kernel(tmp_path / "sysroot")
    yield made
    made.close()


def test_lines_from_before_and_lines_from_since_are_counted(kernel: Kernel) -> None:
    kernel.says(NOISE)
    kernel.says("EXT4-fs: mounted")
    log = KernelLog(str(kernel.sysroot), boot_s=lambda: 65.0)
    log.step(100.0)
    first = log.report()
    assert first.counts == {
        "noise": 1,
        "message_lost": 0,
        "not_resident": 0,
        "field_spanning": 0,
        "unknown": 0,
    }
    assert first.last is None
    kernel.says(LOST, at_s=60.0)
    log.step(100.0 + LOOK_EVERY_S)
    second = log.report()
    assert second.counts["message_lost"] == 1
    assert second.recent == {"message_lost": 1}
    assert second.last is not None
    assert second.last.words == LOST.partition("dxgk: ")[2]
    assert second.last.at_s == pytest.approx(time.time() - 5, abs=60)
    assert log.report() == second  # the same until there is news
    log.close()


def test_a_program_that_writes_what_a_driver_would_is_not_believed(kernel: Kernel) -> None:
    kernel.says(LOST, priority=1 << 3 | 3)
    log = KernelLog(str(kernel.sysroot))
    log.step(0.0)
    assert sum(log.report().counts.values()) == 0
    log.close()


def test_flood_is_taken_in_portions_once_a_second(kernel: Kernel) -> None:
    number = count()

    def record(_: int, __: int) -> bytes:
        return f"3,{next(number)},5000000,-;{NOISE}\n".encode()

    log = KernelLog(str(kernel.sysroot), read=record)
    log.step(0.0)
    log.step(LOOK_EVERY_S / 2)
    assert log.report().counts["noise"] == MOST_RECORDS
    log.close()


def test_traces_of_known_faults_are_counted_from_records_and_frames_of_records(
    kernel: Kernel,
) -> None:
    for line in (LOST, *HANDLE_TABLE, *HEALTHY):
        kernel.says(line, at_s=60.0)
    log = KernelLog(str(kernel.sysroot), boot_s=lambda: 65.0)
    log.step(100.0)
    report = log.report()
    assert {entry: trace.count for entry, trace in report.traces.items()} == {
        "wsl-41062-create-process-75": 1,
        "wsl-12476-hmgrtable-panic": 1,
    }
    assert report.traces["wsl-41062-create-process-75"].words == LOST
    at_s = report.traces["wsl-12476-hmgrtable-panic"].at_s
    assert at_s == pytest.approx(time.time() - 5, abs=60)
    assert log.report() == report  # the same until there is news
    log.close()


def test_frame_that_is_written_over_two_looks_is_one_trace(kernel: Kernel) -> None:
    log = KernelLog(str(kernel.sysroot), boot_s=lambda: 60.5)
    for line in HANDLE_TABLE[:3]:
        kernel.says(line, at_s=60.0)
    log.step(100.0)
    assert log.report().traces == {}
    for line in HANDLE_TABLE[3:]:
        kernel.says(line, at_s=60.0)
    log.step(100.0 + LOOK_EVERY_S)
    assert log.report().traces["wsl-12476-hmgrtable-panic"].count == 1
    log.close()


def test_log_that_overtook_its_reader_is_reported_and_read_on(kernel: Kernel) -> None:
    answers: list[OSError | bytes] = [
        OSError(errno.EPIPE, "Broken pipe"),
        f"3,9,5000000,-;{LOST}\n".encode(),
        BlockingIOError(errno.EAGAIN, "nothing more"),
    ]

    def overtaken(_: int, __: int) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    log = KernelLog(str(kernel.sysroot), read=overtaken)
    log.step(0.0)
    report = log.report()
    assert (report.overruns, report.counts["message_lost"]) == (1, 1)
    log.close()


def test_no_log_is_a_reason_and_is_looked_for_again(tmp_path: Path) -> None:
    log = KernelLog(str(tmp_path))
    log.step(0.0)
    report = log.report()
    assert (report.unreadable, report.counts) == ("absent", {})
    assert str(tmp_path) in (report.detail or "")
    appeared = Kernel(tmp_path / "late")
    (tmp_path / "late/dev").rename(tmp_path / "dev")
    appeared.says(NOISE)
    log.step(OPEN_AGAIN_S - 1)
    assert log.report().unreadable == "absent"
    log.step(OPEN_AGAIN_S)
    assert (log.report().unreadable, log.report().counts["noise"]) == (None, 1)
    log.close()
    appeared.close()


@pytest.mark.parametrize(
    ("code", "reason"), [(errno.EPERM, "refused"), (errno.EACCES, "refused"), (errno.EIO, "failed")]
)
def test_a_log_that_may_not_be_read_is_a_reason(kernel: Kernel, code: int, reason: str) -> None:
    def refused(_: int, __: int) -> bytes:
        raise OSError(code, os.strerror(code))

    log = KernelLog(str(kernel.sysroot), read=refused)
    log.step(0.0)
    assert log.report().unreadable == reason
    assert log.report().detail


def test_traces_outlast_a_read_that_failed_and_no_line_is_counted_twice(kernel: Kernel) -> None:
    oldest, newest = (f"3,{number},5000000,-;{LOST}\n".encode() for number in (1, 2))
    empty = BlockingIOError(errno.EAGAIN, "nothing more")
    broken = OSError(errno.EIO, os.strerror(errno.EIO))
    answers: list[OSError | bytes] = [oldest, broken, oldest, newest, empty]

    def read(_: int, __: int) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    log = KernelLog(str(kernel.sysroot), read=read)
    log.step(0.0)
    entry = "wsl-41062-create-process-75"
    failed = log.report()
    assert (failed.unreadable, failed.counts) == ("failed", {})
    assert failed.traces[entry].count == 1
    log.step(OPEN_AGAIN_S)
    again = log.report()
    assert (again.counts["message_lost"], again.traces[entry].count) == (2, 2)
    log.close()


class Clocks:
    """Clocks of a machine in WSL2: while Windows pauses it, all but the wall's stand."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.boot_s, self.wall_s = 1000.0, 1.7e9
        patch.setattr(time, "time", lambda: self.wall_s)

    def pass_by(self, for_s: float, paused_s: float = 0.0) -> None:
        self.boot_s += for_s
        self.wall_s += for_s + paused_s

    def log(self, kernel: Kernel) -> KernelLog:
        return KernelLog(str(kernel.sysroot), boot_s=lambda: self.boot_s)


def moment_of_last(log: KernelLog) -> float | None:
    last = log.report().last
    assert last is not None
    return last.at_s


def test_moment_of_a_line_from_before_a_pause_is_not_known_and_that_of_a_new_one_is(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = Clocks(monkeypatch)
    log = clocks.log(kernel)
    log.step(clocks.boot_s)
    kernel.says(LOST, at_s=clocks.boot_s)
    clocks.pass_by(2.0, paused_s=8 * 3600.0)
    log.step(clocks.boot_s)
    assert moment_of_last(log) is None
    assert [trace.at_s for trace in log.report().traces.values()] == [None]
    kernel.says(LOST, at_s=clocks.boot_s)
    clocks.pass_by(1.0)
    log.step(clocks.boot_s)
    assert moment_of_last(log) == pytest.approx(clocks.wall_s)
    assert [trace.at_s for trace in log.report().traces.values()] == [moment_of_last(log)]
    log.close()


@pytest.mark.parametrize(("ago_s", "is_known"), [(30.0, True), (600.0, False)])
def test_at_the_first_look_only_a_new_line_has_a_moment(
    kernel: Kernel,
    monkeypatch: pytest.MonkeyPatch,
    ago_s: float,
    is_known: bool,  # noqa: FBT001  # a table
) -> None:
    """Whether Windows has paused the machine since the line was written cannot be known."""
    clocks = Clocks(monkeypatch)
    kernel.says(LOST, at_s=clocks.boot_s - ago_s)
    log = clocks.log(kernel)
    log.step(clocks.boot_s)
    assert moment_of_last(log) == (pytest.approx(1.7e9 - ago_s) if is_known else None)
    log.close()


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
