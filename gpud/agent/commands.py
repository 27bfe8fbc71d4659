"""`gpud baseline accept|reset` and `gpud alerts ack`: a person's word, as rows of the history.

The agent that runs reads new ones every few seconds, one that does not run at its next start, and
a replay takes each into account at its place.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING

from gpud.agent import alertrows, eventrows
from gpud.agent.eventrows import Entry
from gpud.agent.store import FILE, Store
from gpud.core.alerts import SHORT
from gpud.core.commands import (
    ALERT_ACKNOWLEDGED,
    BASELINE_ACCEPTED,
    BASELINE_RESET,
    CPU,
    KINDS,
    Choice,
    Command,
    understood,
)
from gpud.core.errors import ConfigError, GpudError
from gpud.core.streams import JUDGED

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path


def read(connection: sqlite3.Connection, after_id: int) -> list[Command]:
    """Give what was said after the row ``after_id`` of the events, in order.

    Errors: SQLite's, which the store translates.
    """
    rows = eventrows.numbered(connection, KINDS, after_id)
    found = (understood(number, one.at_s, one.kind, one.body) for number, one in rows)
    return [command for command in found if command is not None]


def resolve_choices(
    directory: Path, names: Sequence[str], choice: Choice, *, now_s: float
) -> tuple[Choice, ...]:
    """Return what to accept: the streams of an alert, or a probe and its mode; no name: the choice.

    An alert is named by its fingerprint or the beginning of it; of its streams those that fit the
    choice are accepted. Errors: ``ConfigError`` naming what there is; ``StoreError``.
    """
    if not all(names):
        raise ConfigError(
            "the name of what to accept is empty",
            fix="`gpud alerts` lists the alerts with their IDs",
        )
    with opened(directory, now_s) as store:
        streams, alerts = store.read(_streams), store.read(_evidence)
    choice = _known(choice, streams)
    if not names:
        return (choice,)
    fitting = [one for one in alerts if one.startswith(names[0].lower())]
    if len(names) == 1 and len(fitting) == 1:
        chosen = tuple(one for one in alerts[fitting[0]] if choice.fits(one.parts))
        if not chosen:
            raise ConfigError(
                f"the alert {names[0]} has no figures of {choice}",
                fix="`gpud alerts` lists the figures of each alert",
            )
        return chosen
    probe, mode, *more = (*names, None)
    if more[:-1] or not any(
        probe == known and mode in {None, other} for _, known, other in streams
    ):
        known = [one[:SHORT] for one in alerts]
        known += sorted({f"{probe} {mode}" for _, probe, mode in streams})
        raise ConfigError(
            f"no alert that fires and no probe is called {' '.join(names)}",
            fix=f"one of: {', '.join(known)}",
        )
    if choice.probe or choice.mode:
        raise ConfigError("give a probe and its mode once: by name, or with --probe and --mode")
    return (_known(replace(choice, probe=probe, mode=mode), streams),)


def accept(directory: Path, *choices: Choice, now_s: float) -> None:
    """Take the current speed for normal. Errors: as those of ``reset``."""
    with opened(directory, now_s) as store:
        streams = store.read(_streams)
        for choice in choices:
            _say(store, Command(0, now_s, BASELINE_ACCEPTED, 0, _known(choice, streams)))


def reset(directory: Path, choice: Choice, *, now_s: float) -> Choice:
    """Say that what was normal is to be learnt anew; give the choice with its GPU's whole UUID.

    Errors: ``ConfigError`` naming what there is where the choice means no stream; ``StoreError``.
    """
    with opened(directory, now_s) as store:
        whole = _known(choice, store.read(_streams))
        _say(store, Command(0, now_s, BASELINE_RESET, 0, whole))
    return whole


def acknowledge(directory: Path, begun: str, *, now_s: float) -> str:
    """Say that an alert was seen, by its fingerprint or the beginning of it; give the whole.

    Errors: ``GpudError`` naming what fires where none or more than one is meant; ``StoreError``.
    """
    with opened(directory, now_s) as store:
        fingerprint = _meant(begun, store.read(_firing))
        _say(store, Command(0, now_s, ALERT_ACKNOWLEDGED, 0, fingerprint=fingerprint))
    return fingerprint


@contextmanager
def opened(directory: Path, now_s: float) -> Iterator[Store]:
    """Open the history for what a person says.

    Errors: ``StoreError``; ``GpudError`` where there is none, or it had to be set aside.
    """
    if not (directory / FILE).exists():
        raise GpudError(
            f"there is no {directory / FILE} yet, and nothing in it to decide about",
            fix="gpud makes it with its first run",
        )
    stamp = datetime.fromtimestamp(now_s, UTC).strftime("%Y%m%dT%H%M%SZ")
    store = Store(directory, now=lambda: stamp)
    try:
        if store.set_aside is not None:
            raise GpudError(
                f"{directory / FILE} is damaged; it was set aside as {store.set_aside}, "
                "and a new history begun",
                fix="nothing has to be done; what was normal is learnt anew",
            )
        yield store
    finally:
        store.close()


def _say(store: Store, command: Command) -> None:
    """Write a command behind the newest run there is."""

    def written(transaction: sqlite3.Connection) -> None:
        (newest,) = transaction.execute("SELECT coalesce(max(id), 0) FROM runs").fetchone()
        said = replace(command, after_run=newest)
        eventrows.insert(transaction, [Entry(said.at_s, said.kind, said.body())])

    store.write(written)


def _streams(connection: sqlite3.Connection) -> frozenset[tuple[str, str, str]]:
    """Give what is judged in this history: (UUID or ``CPU``, probe, mode)."""
    rows = connection.execute(
        "SELECT DISTINCT r.gpu_uuid, r.probe, s.mode FROM samples s JOIN runs r"  # noqa: S608
        f" ON r.id = s.run_id WHERE s.unit IN ({', '.join('?' * len(JUDGED))})",
        tuple(JUDGED),
    )
    return frozenset((uuid or CPU, probe, mode) for uuid, probe, mode in rows)


def _firing(connection: sqlite3.Connection) -> tuple[str, ...]:
    rows = connection.execute(
        "SELECT fingerprint FROM alerts WHERE ends_s IS NULL ORDER BY starts_s"
    )
    return tuple(dict.fromkeys(fingerprint for (fingerprint,) in rows))


def _evidence(connection: sqlite3.Connection) -> dict[str, tuple[Choice, ...]]:
    """Give the streams of each alert of slowness that fires, by its fingerprint."""
    return {
        one["fingerprint"]: tuple(
            dict.fromkeys(
                Choice(stream["gpu"] or CPU, stream["probe"], stream["mode"])
                for stream in (piece["stream"] for piece in one["evidence"])
            )
        )
        for one in alertrows.within(connection, math.inf)
        if one.get("evidence")
    }


def _known(choice: Choice, streams: frozenset[tuple[str, str, str]]) -> Choice:
    """Give a choice whose every part exists, and exists together."""
    gpus = sorted({gpu for gpu, _, _ in streams})
    if choice.gpu is not None:
        choice = replace(choice, gpu=_whole(choice.gpu, gpus))
    _one_of("probe", choice.probe, {probe for _, probe, _ in streams})
    _one_of("mode", choice.mode, {m for _, p, m in streams if choice.probe in {None, p}})
    if not any(choice.fits(stream) for stream in streams):
        raise ConfigError(
            f"the history has no figures of {choice}",
            fix="`gpud baseline show` says what there is",
        )
    return choice


def _whole(begun: str, gpus: list[str]) -> str:
    fitting = [gpu for gpu in gpus if gpu.lower().startswith(begun.lower())]
    exact = [gpu for gpu in fitting if gpu.lower() == begun.lower()]
    if len(exact or fitting) == 1:
        return (exact or fitting)[0]
    fault = "no figures of a GPU" if not fitting else "more than one GPU that is meant by"
    raise ConfigError(f"the history has {fault} {begun}", fix=f"one of: {', '.join(gpus)}")


def _one_of(what: str, name: str | None, known: Iterable[str]) -> None:
    names = sorted(known)
    if name is None or name in names:
        return
    near = get_close_matches(name, names, n=1)
    guess = f"; did you mean {near[0]}?" if near else ""
    raise ConfigError(
        f"the history has no figures of a {what} {name}{guess}", fix=f"one of: {', '.join(names)}"
    )


def _meant(begun: str, firing: tuple[str, ...]) -> str:
    fitting = [one for one in firing if begun and one.startswith(begun.lower())]
    if len(fitting) == 1:
        return fitting[0]
    if not firing:
        raise GpudError(f"no alert {begun} fires, nor does any other")
    fault = f"no alert {begun} fires" if not fitting else f"more than one alert begins with {begun}"
    raise GpudError(fault, fix=f"one of: {', '.join(firing)}; `gpud alerts` says what they are")
