"""The grace of a boot, by the age of the machine and by what the history knows of its GPU."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from gpud import regular_file
from gpud.agent.history import records
from gpud.agent.history.records import Entry
from gpud.agent.measure import grace
from gpud.core.clock import Instant
from gpud.core.sections import GateSettings, PathSettings
from gpud.core.settings import Settings
from tests.histories import opened

if TYPE_CHECKING:
    from pathlib import Path

UNKNOWN = ["", "nan 1.00\n", "inf 1.00\n", "-5 1.00\n", "a while", None]
WSL2 = "5.15.167.4-microsoft-standard-WSL2"
NOW, LONGEST = Instant(1000.0, 100.0), Instant(1080.0, 180.0)
SEEN = {"uuid": "GPU-1", "name": "NVIDIA GeForce RTX 5090"}
BLACKWELL, ADA = SEEN | {"compute_capability": "12.0"}, SEEN | {"compute_capability": "8.9"}


def begins(folder: Path, uptime: str | None, kernel: str = WSL2, **gate: Any) -> Instant | None:
    """Give when GPU work begins on a machine with such a /proc/uptime."""
    if uptime is not None:
        (folder / "proc").mkdir()
        (folder / "proc/uptime").write_text(uptime)
    settings = Settings(
        sysroot=str(folder), gate=GateSettings(**gate), paths=PathSettings(state=str(folder))
    )
    return grace.gpu_from(settings, {"kernel": kernel}, NOW)


@pytest.mark.parametrize(
    ("kernel", "uptime", "expected"),
    [
        (WSL2, "10.00 1.00\n", LONGEST),
        (WSL2, "60.00 1.00\n", Instant(1030.0, 130.0)),
        (WSL2, "90.00 1.00\n", None),
        *((WSL2, unknown, None) for unknown in UNKNOWN),
        ("6.1.0-13-amd64", "10.00 1.00\n", None),
    ],
)
@pytest.mark.parametrize("history", [None, b"no database at all" * 100], ids=["none", "damaged"])
def test_gpu_that_is_not_known_yet_is_left_alone_for_the_longest_in_wsl2_and_not_elsewhere(
    kernel: str,
    uptime: str | None,
    expected: Instant | None,
    history: bytes | None,
    tmp_path: Path,
) -> None:
    if history is not None:
        (tmp_path / "gpud.db").write_bytes(history)
    assert begins(tmp_path, uptime, kernel) == expected
    assert not (tmp_path / "gpud.db-wal").exists()


@pytest.mark.parametrize(
    ("events", "gate", "after_s"),
    [
        ([("gpu_seen", BLACKWELL)], {}, 80.0),
        ([("gpu_seen", ADA)], {}, 50.0),
        ([("gpu_seen", ADA), ("gpu_seen", BLACKWELL | {"uuid": "GPU-2"})], {}, 80.0),
        ([("gpu_seen", SEEN)], {}, 80.0),  # an older gpud did not note what it is
        ([("gpu_seen", ADA), ("gpu_seen", SEEN | {"uuid": "GPU-2"})], {}, 80.0),
        ([("gpu_seen", ADA), ("gpu_forgotten", SEEN)], {}, 80.0),
        ([("gpu_seen", ADA), ("gpus", {"old": "GPU-1", "new": "GPU-9"})], {}, 80.0),
        ([("gpu_seen", BLACKWELL)], {"boot_grace_s": 300.0}, 290.0),
        ([("gpu_seen", BLACKWELL)], {"boot_grace_s": 0.0}, None),
    ],
)
def test_gpu_that_the_catalogue_names_is_left_alone_for_longer(
    events: list[tuple[str, dict[str, Any]]],
    gate: dict[str, Any],
    after_s: float | None,
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as store:
        entries = [Entry(float(at_s), kind, body) for at_s, (kind, body) in enumerate(events)]
        store.write(records.write_events, entries)
    expected = None if after_s is None else Instant(1000.0 + after_s, 100.0 + after_s)
    assert begins(tmp_path, "10.00 1.00\n", **gate) == expected


@pytest.mark.parametrize("uptime", UNKNOWN)
def test_age_that_proc_does_not_give_is_that_of_the_boot_clock(
    uptime: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "clock_gettime", {time.CLOCK_BOOTTIME: 10.0}.__getitem__)
    monkeypatch.setattr(regular_file, "text", lambda _: uptime)
    assert grace.boot_rest_s(60.0, "/") == 50.0
