"""Keeps the ledger: what there is to tell, published when it changes and written with its state.

The judge hands in what the detectors found; functions and health are looked at here once a second.
Nothing is lost by a kill in between: what the history does not know of yet is found again.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import structlog

from gpud.agent import alertrows, staterows
from gpud.agent.staterows import State
from gpud.core import advice, functions, ledger, plainalerts, unwell
from gpud.core.errors import StoreError, WireError
from gpud.core.events import AlertsChanged
from gpud.core.functions import Functions
from gpud.core.ledger import Ledger
from gpud.core.ledger_state import restored, saved
from gpud.core.unwell import Unwell

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterator

    from gpud.agent.store import History
    from gpud.core.alerts import Alert
    from gpud.core.case import Found
    from gpud.core.clock import Instant
    from gpud.core.detector import Standing
    from gpud.core.events import Event
    from gpud.core.snapshot import Snapshot
    from gpud.core.streams import StreamKey

TICK_S: Final = 1.0
AGAIN_S: Final = 5.0
"""How soon a history that could not be read or written is tried again."""
RENEW_S: Final = 60.0
"""How often it is looked whether what ended is shown for long enough."""
LEDGER, FUNCTIONS = "ledger", "functions"
"""Names of the rows of ``states``."""

log = structlog.get_logger()


class Keeper:
    """The one owner of the ledger. ``run`` is the task; whoever finds something hands it in."""

    def __init__(
        self,
        history: History,
        *,
        read: Callable[[], Snapshot],
        publish: Callable[[Event], None],
        now: Callable[[], Instant],
    ) -> None:
        self._history = history
        self._read = read
        self._publish = publish
        self._now = now
        self._ledger = Ledger()
        self._functions = Functions()
        self._unwell = Unwell()
        self._remembers = False  # what an earlier life knew was read
        self._reading = asyncio.Lock()
        self._writing = asyncio.Lock()
        self._held = 0
        self._started_s = now().mono_s
        self._shown: tuple[Alert, ...] = ()
        self._shown_of: Ledger | None = None
        self._shown_s = 0.0
        self._written: dict[tuple[str, float], Alert] = {}
        self._written_of: tuple[Ledger, object] | None = None
        self._written_to = 0
        self._again_s = 0.0

    @property
    def ledger(self) -> Ledger:
        """What is known now."""
        return self._ledger

    def found(self, found: Found, at_s: float) -> None:
        """Take in an alarm of a stream, good or bad; the same one twice is one."""
        self._ledger = ledger.with_alarm(self._ledger, found, at_s)

    def stood(self, stream: StreamKey, standing: Standing, at_s: float) -> None:
        """Take in how a stream stands after a sample."""
        self._ledger = ledger.with_standing(self._ledger, stream, standing, at_s)

    def forgotten(self, stream: StreamKey, at_s: float) -> None:
        """End what rests on a stream: accepted, begun anew, or no more."""
        self._ledger = ledger.forgotten(self._ledger, stream, at_s)

    def acknowledged(self, fingerprint: str, at_s: float) -> None:
        """Note that a person has seen an alert."""
        self._ledger = ledger.acknowledged(self._ledger, fingerprint, at_s)

    def raised(self, alert: Alert) -> None:
        """Tell of something else, such as a sink that fails; as often as one likes."""
        self._ledger = plainalerts.raised(self._ledger, alert)

    def ended(self, fingerprint: str, at_s: float) -> None:
        """End what was ``raised``."""
        self._ledger = plainalerts.ended(self._ledger, fingerprint, at_s)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Publish nothing meanwhile: what a replay finds may be over by its end."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    async def begin(self) -> None:
        """Read what an earlier life knew, the first time. Errors: ``StoreError``."""
        async with self._reading:
            if self._remembers:
                return
            past, worked = await self._history.ask(lambda store: store.read(_past))
            self._ledger = ledger.with_past(self._ledger, past)
            self._functions = functions.joined(worked, self._functions)
            firing = {
                (one.fingerprint, one.starts_s)
                for one in ledger.everything(self._ledger)
                if one.firing
            }
            now_s = self._now().wall_s
            await self._history.ask(
                lambda store: store.write(lambda rows: alertrows.end_others(rows, firing, now_s))
            )
            self._remembers = True

    async def run(self) -> None:
        """Look, publish and write; never ends."""
        while True:
            self.step()
            if self._now().mono_s >= self._again_s:
                try:
                    await self.begin()
                    await self.settle()
                except StoreError:  # told by the runs, which cannot be kept either
                    self._again_s = self._now().mono_s + AGAIN_S
            await asyncio.sleep(TICK_S)

    async def settle(self) -> None:
        """Publish what changed, and write it. Errors: ``StoreError``; it is written later then."""
        self._show()
        async with self._writing:
            if self._remembers:
                await asyncio.shield(self._write())

    async def close(self) -> None:
        """Write what is known, if that is possible."""
        with contextlib.suppress(StoreError):
            await self.settle()

    def step(self) -> None:
        """Look at functions and health as they are now."""
        snapshot, now = self._read(), self._now()
        called = {
            uuid: f"GPU {gpu.number} ({gpu.name})" if gpu.name else f"GPU {gpu.number}"
            for uuid, gpu in snapshot.gpus.items()
        }
        known = ledger.with_machine(self._ledger, called, advice.of(snapshot.platform))
        stepped = functions.step(self._functions, snapshot, now)
        self._functions = stepped.state
        for one in (*stepped.lost, *stepped.back):
            event = "function_lost" if one in stepped.lost else "function_back"
            log.warning(event, subject=list(one.subject), old=one.old, new=one.new)
        if self._remembers or stepped.state.lost:
            known = plainalerts.with_functions(known, stepped.state.lost.values(), now.wall_s)
        lost = {subject.kind for subject in stepped.state.lost}
        self._unwell = unwell.step(
            self._unwell,
            snapshot.health,
            now,
            lost=lost,
            pending=functions.pending(stepped.state),
        )
        failed = {name: snapshot.health[name] for name in self._unwell.told}
        self._ledger = plainalerts.with_health(
            known, failed, now.wall_s, unsure=self._unsure(snapshot, now, lost)
        )
        self._show()

    def _unsure(self, snapshot: Snapshot, now: Instant, lost: Collection[str]) -> frozenset[str]:
        """Name the components that were told of by an earlier life, and may still be failed."""
        told = {one.labels.get("component", "") for one in self._ledger.plain if one.firing}
        early = now.mono_s - self._started_s < unwell.PATIENCE_S
        said = {name for kind in lost for name in unwell.COVERED.get(kind, ())}
        return frozenset(
            name
            for name in told - said
            if name in self._unwell.failed or (early and name not in snapshot.health)
        )

    def _show(self) -> None:
        """Publish, if there is something else to tell than was published."""
        now = self._now()
        fresh = self._shown_of is self._ledger and now.mono_s - self._shown_s < RENEW_S
        if self._held or fresh:
            return
        self._shown_of, self._shown_s = self._ledger, now.mono_s
        told = ledger.alerts(self._ledger, now.wall_s)
        said = self._read().alerts_s is not None
        if told != self._shown or (self._remembers and not said):  # nothing is a word as well
            self._shown = told
            self._publish(AlertsChanged(told, now.wall_s))

    async def _write(self) -> None:
        """Write the alerts that are others than those written, and what they are made of."""
        known, worked = self._ledger, functions.saved(self._functions)
        file = self._history.opened
        if file != self._written_to:  # it may be a new one, with nothing of what was written
            self._written, self._written_of = {}, None
        if self._written_of is not None and self._written_of == (known, worked):
            return
        told = {(one.fingerprint, one.starts_s): one for one in ledger.everything(known)}
        news = [one for name, one in told.items() if self._written.get(name) != one]
        now_s = self._now().wall_s
        states = [
            State(LEDGER, 0, now_s, staterows.encoded(saved(known))),
            State(FUNCTIONS, 0, now_s, staterows.encoded(worked)),
        ]

        def write(transaction: sqlite3.Connection) -> None:
            alertrows.put(transaction, news)
            staterows.put(transaction, states)

        await self._history.ask(lambda store: store.write(write))
        self._written, self._written_of, self._written_to = told, (known, worked), file


def _past(connection: sqlite3.Connection) -> tuple[Ledger, Functions]:
    """Read what was written; what is damaged is set aside in words, and begun anew."""
    found, worked = Ledger(), Functions()
    for name in (LEDGER, FUNCTIONS):
        row = staterows.get(connection, name)
        if row is None:
            continue
        try:
            if name == LEDGER:
                found = restored(row.decoded())
            else:
                worked = functions.restored(row.decoded())
        except WireError as error:
            log.warning("state_set_aside", name=name, why=str(error))
    return found, worked
