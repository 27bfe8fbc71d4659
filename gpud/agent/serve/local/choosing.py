"""The alerts, streams and GPUs that a request names; what does not exist is refused with what does.

Errors of every function: ``ConfigError`` with the names there are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpud.agent.regression.commands import CPU, Choice, with_uuid
from gpud.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.agent.state.snapshot import Snapshot
    from gpud.document.machine import Expected
    from gpud.requests import AcceptRequest

ALL: Final = "all"
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
    """Give what to accept: the choice, or of an alert's streams those that it holds."""
    choice = existing(Choice(request.gpu, request.probe, request.mode), snapshot)
    if request.alert is None:
        return (choice,)
    fingerprint = firing(snapshot, request.alert)
    streams = [
        Choice(piece.stream.gpu or CPU, piece.stream.probe, piece.stream.mode)
        for alert in snapshot.alerts.alerts
        if alert.firing and alert.fingerprint == fingerprint
        for piece in alert.evidence
    ]
    chosen = tuple(dict.fromkeys(stream for stream in streams if choice.fits(stream.parts)))
    if not chosen:
        message = f"the alert {request.alert} has no figures of {choice}"
        raise ConfigError(message, fix="`gpud alerts` lists the figures of each alert")
    return chosen


def existing(choice: Choice, snapshot: Snapshot) -> Choice:
    """Give a choice, its GPU with the whole UUID, whose every part exists, and exists together."""
    all_streams = streams(snapshot)
    if choice.gpu is not None:
        gpus = sorted({gpu for gpu, _, _ in all_streams})
        choice = replace(choice, gpu=_full_uuid(with_uuid(choice.gpu, snapshot.gpus), gpus))
    if not any(choice.fits(parts) for parts in all_streams):
        names = sorted({f"{probe} {mode}" for _, probe, mode in all_streams})
        fix = f"one of: {', '.join(names)}; `gpud baseline show` says more"
        raise ConfigError(f"there are no figures of {choice}", fix=fix)
    return choice


def _full_uuid(prefix: str, gpus: list[str]) -> str:
    fitting = [gpu for gpu in gpus if gpu.lower().startswith(prefix.lower())]
    exact = [gpu for gpu in fitting if gpu.lower() == prefix.lower()]
    if len(exact or fitting) == 1:
        return (exact or fitting)[0]
    message = (
        f"{prefix} means more than one GPU" if fitting else f"there are no figures of {prefix}"
    )
    raise ConfigError(message, fix=f"one of: {', '.join(gpus)}")


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
