"""The count of GPU contexts, kept for one boot."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from gpud.agent.measure.gpu_contexts import NAME, GpuContexts

if TYPE_CHECKING:
    from pathlib import Path

BOOT = "0e6a4f1c-5b8e-4f55-9d7e-6d7f0c9b1a2b"


def counted(folder: Path, made: int = 3, rounds: int = 2, boot: str = BOOT) -> GpuContexts:
    contexts = GpuContexts(folder, boot, 250)
    for _ in range(made):
        contexts.made()
    for _ in range(rounds):
        contexts.round_begun()
    return contexts


def test_count_outlives_the_process_and_says_when_the_last_context_was_made(tmp_path: Path) -> None:
    before_s = time.time()
    counted(tmp_path)
    later = GpuContexts(tmp_path, BOOT, 250)
    assert (later.used, later.rounds) == (3, 2)
    assert later.last_s is not None
    assert before_s <= later.last_s <= time.time()


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"\xff\x00", b"[]"),
        b'{"boot_id": "another", "contexts": 9}',
        *(
            f'{{"boot_id": "{BOOT}", "contexts": {more}}}'.encode()
            for more in ('"9"', '9, "rounds": null', '9, "last_s": "soon"')
        ),
    ],
)
def test_file_that_is_damaged_or_of_another_boot_is_a_fresh_count(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / NAME).write_bytes(content)
    contexts = counted(tmp_path, made=1, rounds=0)
    assert contexts.used == 1
    assert GpuContexts(tmp_path, BOOT, 250).used == 1


def test_budget_is_spent_with_its_last_context_and_a_boot_without_a_name_is_none_that_is_known(
    tmp_path: Path,
) -> None:
    contexts, spent = GpuContexts(tmp_path, BOOT, 2), []
    for _ in range(2):
        contexts.made()
        spent.append(contexts.spent)
    assert spent == [False, True]
    assert not GpuContexts(tmp_path, BOOT, None).spent, "there is no budget"
    nameless = counted(tmp_path, boot="")
    assert (nameless.used, GpuContexts(tmp_path, "", 3).used) == (3, 0)


def test_count_goes_on_in_memory_where_nothing_can_be_written(tmp_path: Path) -> None:
    contexts = counted(tmp_path / "missing")
    assert (contexts.used, contexts.rounds) == (3, 2)
    (tmp_path / "missing").mkdir()
    contexts.made()
    assert GpuContexts(tmp_path / "missing", BOOT, 250).used == 4


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    assert counted(tmp_path).used == 3
    assert not list(tmp_path.iterdir())
