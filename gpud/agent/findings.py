"""On the way from an alarm to the ledger: what else became another at that moment."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from gpud.agent import pastruns
from gpud.core import causes, dxg
from gpud.core.alerts import Cause
from gpud.core.case import Found
from gpud.core.detector import Kind
from gpud.core.detector.siblings import SLACK_S
from gpud.core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpud.agent.ledgering import Keeper
    from gpud.agent.store import History
    from gpud.core.judging import Decided, Judging
    from gpud.core.snapshot import Snapshot

COMPARED: Final = 60
"""Runs on either side of a change: an hour's, or what the alarm rests on if that is more."""


class Findings:
    """Alarms that the ledger has not been told of, in order."""

    def __init__(self, history: History, keeper: Keeper, read: Callable[[], Snapshot]) -> None:
        self._history = history
        self._keeper = keeper
        self._read = read
        self._waiting: list[Decided] = []

    def note(self, decided: Sequence[Decided]) -> None:
        """Take alarms in; they wait for ``tell``."""
        self._waiting += decided

    async def tell(self, judging: Judging) -> None:
        """Hand in what waits, and have it written. Errors: ``StoreError``; it was told then too."""
        if not self._waiting:
            return
        while self._waiting:
            one = self._waiting[0]
            self._keeper.found(await self._found(one, judging), one.alarm.at_s)
            self._waiting.remove(one)
        await self._keeper.settle()

    async def _found(self, one: Decided, judging: Judging) -> Found:
        changed = tuple(Cause(each.kind, each.old, each.new) for each in one.differences)
        return Found(
            one.key,
            one.unit,
            one.alarm,
            one.standing.judged,
            changed,
            await self._causes(one, judging, changed) if one.alarm.worse else (),
        )

    async def _causes(
        self, one: Decided, judging: Judging, changed: Sequence[Cause]
    ) -> tuple[Cause, ...]:
        since_s, most = one.alarm.since_s, max(COMPARED, one.alarm.samples)
        slow = one.alarm.kind is Kind.SLOW_STATE
        sides = pastruns.Sides()
        with suppress(StoreError):  # told by the runs; what versions say is known all the same
            sides = await self._history.ask(
                lambda store: store.read(
                    lambda rows: pastruns.around(rows, one.key, since_s, most, slow=slow)
                )
            )
        return causes.likely(
            sides.before,
            sides.after,
            changed=changed,
            beside=tuple(self._beside(one)),
            cpu_slower=_cpu_slower(one, judging),
        )

    def _beside(self, one: Decided) -> Iterator[Cause]:
        """Name trouble of the GPU's bus since shortly before the change."""
        root = self._read().root
        said = None if root is None or root.kernel_log is None else root.kernel_log.last
        if one.key.gpu is None or said is None:
            return
        if one.alarm.since_s - dxg.RECENT_S <= said.at_s <= one.alarm.at_s:
            yield Cause(causes.DXG, detail=f"the channel to Windows: {said.words}")


def _cpu_slower(one: Decided, judging: Judging) -> bool | None:
    """Say whether the CPU's streams slowed at about the same time; None where there are none."""
    if one.key.gpu is None or not any(key.gpu is None for key in judging.streams):
        return None
    return any(
        key.gpu is None and abs(alarm.since_s - one.alarm.since_s) <= SLACK_S
        for key, alarm in judging.alarms_beside(one.key)
    )
