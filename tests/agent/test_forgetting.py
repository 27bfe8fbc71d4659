"""Forgetting GPUs by hand: only what is named, and only what is expected."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gpud.agent.eventrows import Entry
from gpud.agent.forgetting import forget
from gpud.agent.store import FILE, Store
from gpud.core.errors import GpudError
from gpud.core.presence import GPU_SEEN, Expected, remembered

if TYPE_CHECKING:
    from pathlib import Path


def seen(folder: Path, *uuids: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    store = Store(folder, now=str)
    store.append_events(
        [Entry(1.0, GPU_SEEN, {"uuid": uuid, "name": f"card {uuid}"}) for uuid in uuids]
    )
    store.close()


def expected(folder: Path) -> set[str]:
    store = Store(folder, now=str)
    found = remembered((entry.at_s, entry.kind, entry.body) for entry in store.gpu_events())
    store.close()
    return set(found)


def test_a_gpu_is_forgotten_by_its_name_and_the_others_are_not(tmp_path: Path) -> None:
    seen(tmp_path, "GPU-a", "GPU-b")
    assert forget(tmp_path, ["gpu-A"], now_s=2.0) == {"GPU-a": Expected("card GPU-a")}
    assert expected(tmp_path) == {"GPU-b"}


def test_all_of_them_can_be_forgotten_and_that_twice(tmp_path: Path) -> None:
    seen(tmp_path, "GPU-a", "GPU-b")
    assert forget(tmp_path, ["all"], now_s=2.0).keys() == {"GPU-a", "GPU-b"}
    assert forget(tmp_path, ["all"], now_s=3.0) == {}
    assert expected(tmp_path) == set()


def test_a_gpu_that_is_not_expected_is_refused_and_nothing_is_forgotten(tmp_path: Path) -> None:
    seen(tmp_path, "GPU-a", "GPU-b")
    with pytest.raises(GpudError, match="GPU-c") as caught:
        forget(tmp_path, ["GPU-a", "GPU-c"], now_s=2.0)
    assert "GPU-a (card GPU-a); GPU-b" in (caught.value.fix or "")
    assert expected(tmp_path) == {"GPU-a", "GPU-b"}


def test_without_a_history_none_is_made(tmp_path: Path) -> None:
    with pytest.raises(GpudError, match="no GPU to forget"):
        forget(tmp_path, ["all"], now_s=2.0)
    assert not (tmp_path / FILE).exists()


def asked(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-m", "gpud", "--home", str(home), "gpus", *words],
        capture_output=True,
        text=True,
        check=False,
        env={k: v for k, v in os.environ.items() if not k.startswith("GPUD_")},
    )


def test_the_command_says_what_it_did_and_what_it_cannot_do(tmp_path: Path) -> None:
    state = tmp_path / "var/lib/gpud"
    seen(state, "GPU-a", "GPU-b")
    refused = asked(tmp_path, "forget", "GPU-x")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "fix: one of: GPU-a (card GPU-a)" in refused.stderr
    done = asked(tmp_path, "forget", "GPU-b")
    assert done.returncode == 0
    assert done.stdout.startswith("card GPU-b (GPU-b) is forgotten\n")
    assert expected(state) == {"GPU-a"}
    assert asked(tmp_path, "forget").returncode == 2
