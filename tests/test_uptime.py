"""When GPU work may begin, by the age of the machine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from gpud import regular_file
from gpud.uptime import boot_rest_s

if TYPE_CHECKING:
    from pathlib import Path

UNKNOWN = ["", "nan 1.00\n", "inf 1.00\n", "-5 1.00\n", "a while", None]


@pytest.mark.parametrize(
    ("uptime", "rest_s"),
    [
        ("10.00 1.00\n", 50.0),
        ("59.50 1.00\n", 0.5),
        ("60.00 1.00\n", 0.0),
        ("7200.00 1.00\n", 0.0),
        *((uptime, 0.0) for uptime in UNKNOWN),
    ],
)
def test_gpu_work_waits_for_the_age_of_the_virtual_machine(
    uptime: str | None, rest_s: float, tmp_path: Path
) -> None:
    (tmp_path / "proc").mkdir()
    if uptime is not None:
        (tmp_path / "proc/uptime").write_text(uptime)
    assert boot_rest_s(60.0, str(tmp_path)) == rest_s
    assert boot_rest_s(0.0, str(tmp_path)) == 0.0


@pytest.mark.parametrize("uptime", UNKNOWN)
def test_age_that_proc_does_not_give_is_that_of_the_boot_clock(
    uptime: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "clock_gettime", {time.CLOCK_BOOTTIME: 10.0}.__getitem__)
    monkeypatch.setattr(regular_file, "text", lambda _: uptime)
    assert boot_rest_s(60.0, "/") == 50.0
