"""Requests over the local socket while the history cannot be written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gpud.agent.history.store import History
from gpud.agent.measure.gpu_contexts import GpuContexts
from gpud.agent.serve.local.actions import Actions
from gpud.core.errors import StoreError
from gpud.requests import ContextsRequest

if TYPE_CHECKING:
    from pathlib import Path


async def test_contexts_of_another_program_are_counted_though_the_history_is_not_written(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    state.write_text("no directory\n")
    contexts = GpuContexts(tmp_path, "boot", 250)
    others = ("settings", "read", "regression", "changes", "pipeline", "watching")
    parts: dict[str, Any] = dict.fromkeys(others)
    parts |= {"history": History(state), "launcher": SimpleNamespace(contexts=contexts)}
    with pytest.raises(StoreError):
        await anext(Actions(**parts).answer(ContextsRequest(count=7), 1000))
    assert contexts.used == 7
