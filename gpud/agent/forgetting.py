"""`gpud gpus forget`: a GPU that was taken out on purpose is missed no longer.

Only the history remembers GPUs, so it is told; the agent, where one runs, looks there while it
misses one. What is there is expected again as soon as the agent sees it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.agent import commands
from gpud.agent.eventrows import Entry
from gpud.agent.store import FILE
from gpud.core.errors import GpudError
from gpud.core.presence import GPU_FORGOTTEN, Expected, remembered

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ALL: Final = "all"


def forget(directory: Path, wanted: Sequence[str], *, now_s: float) -> dict[str, Expected]:
    """Take GPUs, by UUID or ``all``, out of those to expect; give the ones that were.

    Errors: ``GpudError`` naming what is expected where ``wanted`` names another; ``StoreError``.
    """
    if not (directory / FILE).exists():
        raise GpudError(f"there is no {directory / FILE} yet, and no GPU to forget")
    with commands.opened(directory, now_s) as store:
        told = store.gpu_events()
        expected = remembered((entry.at_s, entry.kind, entry.body) for entry in told)
        chosen = expected if ALL in wanted else _chosen(expected, wanted)
        store.append_events(
            [
                Entry(now_s, GPU_FORGOTTEN, {"uuid": u, "name": one.name})
                for u, one in chosen.items()
            ]
        )
    return chosen


def _chosen(expected: dict[str, Expected], wanted: Sequence[str]) -> dict[str, Expected]:
    by_name = {uuid.lower(): uuid for uuid in expected}
    known = "; ".join(f"{uuid} ({one.name})" for uuid, one in expected.items())
    for word in wanted:
        if word.lower() not in by_name:
            raise GpudError(
                f"no GPU {word} is expected here",
                fix=f"one of: {known}, or all" if known else None,
            )
    uuids = dict.fromkeys(by_name[word.lower()] for word in wanted)
    return {uuid: expected[uuid] for uuid in uuids}
