"""The alerts, streams and GPUs that a request names; what does not exist is refused with what does.

Errors of every function: ``ConfigError`` with the names there are.
"""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from gpud.agent.regression.commands import CPU, Choice, with_uuid
from gpud.core.alerts import SHORT
from gpud.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpud.agent.state.snapshot import Snapshot
    from gpud.document.machine import Expected
    from gpud.requests import AcceptRequest

ALL: Final = "all"
LISTS_ALERTS: Final = "`gpud alerts` lists the alerts with their IDs"
Parts = tuple[str, str, str]
"""A GPU's UUID or ``CPU``, a probe and a mode."""


def streams(snapshot: Snapshot) -> frozenset[Parts]:
    """Give the streams that have a baseline, or will."""
    return frozenset((key.gpu or CPU, key.probe, key.mode) for key in snapshot.regression.streams)


def firing(snapshot: Snapshot, prefix: str) -> str:
    """Return the fingerprint of the firing alert that begins with ``prefix``.

    Errors: ``ConfigError`` for none and for several.
    """
    alerts = list(
        dict.fromkeys(alert.fingerprint for alert in snapshot.alerts.alerts if alert.firing)
    )
    fitting = [name for name in alerts if prefix and name.startswith(prefix.lower())]
    if len(fitting) == 1:
        return fitting[0]
    if not alerts:
        raise ConfigError(f"no alert {prefix} fires, nor does any other")
    message = f"more than one alert begins with {prefix}" if fitting else f"no alert {prefix} fires"
    raise ConfigError(message, fix=f"one of: {', '.join(alerts)}; `gpud alerts` says what they are")


def accepted(snapshot: Snapshot, request: AcceptRequest) -> tuple[Choice, ...]:
    """Give what to accept: the streams of an alert, or of a probe and its mode, or the choice."""
    if not all(request.names):
        raise ConfigError("the name of what to accept is empty", fix=LISTS_ALERTS)
    all_streams = streams(snapshot)
    choice = existing(Choice(request.gpu, request.probe, request.mode), snapshot)
    if not request.names:
        return (choice,)
    alerts = _streams_by_alert(snapshot)
    fitting = [name for name in alerts if name.startswith(request.names[0].lower())]
    if len(request.names) == 1 and len(fitting) == 1:
        chosen = tuple(stream for stream in alerts[fitting[0]] if choice.fits(stream.parts))
        if not chosen:
            message = f"the alert {request.names[0]} has no figures of {choice}"
            raise ConfigError(message, fix="`gpud alerts` lists the figures of each alert")
        return chosen
    named = _named(choice, request.names, all_streams, alerts)
    return (existing(named, snapshot),)


def _named(
    choice: Choice, names: tuple[str, ...], all_streams: Iterable[Parts], alerts: Iterable[str]
) -> Choice:
    """Take names as a probe and its mode."""
    probe, mode = names[0], names[1] if len(names) > 1 else None
    fits = [p for _, p, m in all_streams if probe == p and mode in {None, m}]
    if len(names) > len(("probe", "mode")) or not fits:
        there = [name[:SHORT] for name in alerts]
        there += sorted({f"{probe} {mode}" for _, probe, mode in all_streams})
        raise ConfigError(
            f"no alert that fires and no probe is called {' '.join(names)}",
            fix=f"one of: {', '.join(there)}",
        )
    if choice.probe or choice.mode:
        raise ConfigError("give a probe and its mode once: by name, or with --probe and --mode")
    return replace(choice, probe=probe, mode=mode)


def _streams_by_alert(snapshot: Snapshot) -> dict[str, tuple[Choice, ...]]:
    """Give the streams of each alert of slowness that fires, by its fingerprint."""
    return {
        alert.fingerprint: tuple(
            dict.fromkeys(
                Choice(piece.stream.gpu or CPU, piece.stream.probe, piece.stream.mode)
                for piece in alert.evidence
            )
        )
        for alert in snapshot.alerts.alerts
        if alert.firing and alert.evidence
    }


def existing(choice: Choice, snapshot: Snapshot) -> Choice:
    """Give a choice, its GPU with the whole UUID, whose every part exists, and exists together."""
    all_streams = streams(snapshot)
    if choice.gpu is not None:
        gpus = sorted({gpu for gpu, _, _ in all_streams})
        choice = replace(choice, gpu=_whole(with_uuid(choice.gpu, snapshot.gpus), gpus))
    _refuse_unknown("probe", choice.probe, {probe for _, probe, _ in all_streams})
    _refuse_unknown(
        "mode", choice.mode, {m for _, p, m in all_streams if choice.probe in {None, p}}
    )
    if not any(choice.fits(parts) for parts in all_streams):
        message = f"there are no figures of {choice}"
        raise ConfigError(message, fix="`gpud baseline show` says what there is")
    return choice


def _whole(prefix: str, gpus: list[str]) -> str:
    fitting = [gpu for gpu in gpus if gpu.lower().startswith(prefix.lower())]
    exact = [gpu for gpu in fitting if gpu.lower() == prefix.lower()]
    if len(exact or fitting) == 1:
        return (exact or fitting)[0]
    message = (
        f"{prefix} means more than one GPU" if fitting else f"there are no figures of {prefix}"
    )
    raise ConfigError(message, fix=f"one of: {', '.join(gpus)}")


def _refuse_unknown(what: str, name: str | None, valid: Iterable[str]) -> None:
    names = sorted(valid)
    if name is None or name in names:
        return
    near = get_close_matches(name, names, n=1)
    guess = f"; did you mean {near[0]}?" if near else ""
    message = f"there are no figures of a {what} {name}{guess}"
    raise ConfigError(message, fix=f"one of: {', '.join(names)}")


def expected(snapshot: Snapshot, names: tuple[str, ...]) -> Mapping[str, Expected]:
    """Give the GPUs that were here, by UUID, of these names; ``all`` are all of them."""
    if ALL in names:
        return snapshot.changes.expected
    uuids = {uuid.lower(): uuid for uuid in snapshot.changes.expected}
    for name in names:
        if name.lower() not in uuids:
            there = "; ".join(
                f"{uuid} ({gpu.name})" for uuid, gpu in snapshot.changes.expected.items()
            )
            fix = f"one of: {there}, or all" if there else None
            raise ConfigError(f"no GPU {name} is expected here", fix=fix)
    return {uuids[name.lower()]: snapshot.changes.expected[uuids[name.lower()]] for name in names}
