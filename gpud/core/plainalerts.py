"""Alerts without streams in the ledger: lost functions, failed components, whatever else is told.

What is so is handed in whole, again and again: what is new begins, what is no longer there ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpud.core import lostwords, unwell
from gpud.core.alerts import FUNCTION_LOST, UNWELL, Alert

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gpud.core.functions import Lost
    from gpud.core.health import Health
    from gpud.core.ledger import Ledger

REFRESH_S: Final = 60.0
"""How often the words of an alert may change that is the same otherwise: some hold a count."""
MOST_ENDED: Final = 32


def raised(ledger: Ledger, alert: Alert) -> Ledger:
    """Take in an alert without streams; one that fires already keeps its beginning."""
    before = next(
        (one for one in ledger.plain if one.firing and one.fingerprint == alert.fingerprint), None
    )
    if before is None:
        return replace(ledger, plain=_kept((*ledger.plain, alert)))
    kept = replace(alert, starts_s=before.starts_s, acknowledged_s=before.acknowledged_s)
    if _worded_as(kept, before) == before and abs(kept.updated_s - before.updated_s) < REFRESH_S:
        return ledger
    return replace(ledger, plain=tuple(kept if one is before else one for one in ledger.plain))


def ended(ledger: Ledger, fingerprint: str, now_s: float) -> Ledger:
    """End an alert without streams, if it fires."""
    return replace(
        ledger,
        plain=tuple(
            replace(one, ends_s=max(now_s, one.starts_s), updated_s=now_s)
            if one.firing and one.fingerprint == fingerprint
            else one
            for one in ledger.plain
        ),
    )


def with_functions(ledger: Ledger, lost: Iterable[Lost], now_s: float) -> Ledger:
    """Tell of the functions that are lost now, all of them; what is not among them is back."""
    told = [lostwords.alert(one, ledger.gpus, ledger.platform) for one in lost]
    return _synced(ledger, FUNCTION_LOST, told, now_s)


def with_health(
    ledger: Ledger, failed: Mapping[str, Health], now_s: float, *, unsure: Collection[str] = ()
) -> Ledger:
    """Tell of the components that stay failed, all of them; what is not among them is well.

    ``unsure`` are those of which nothing can be said yet: what was told of them goes on.
    """
    told = [unwell.alert(name, health, now_s) for name, health in failed.items()]
    kept = [
        one
        for one in ledger.plain
        if one.firing and one.name == UNWELL and one.labels.get("component") in unsure
    ]
    return _synced(ledger, UNWELL, [*told, *kept], now_s)


def _synced(ledger: Ledger, name: str, told: Collection[Alert], now_s: float) -> Ledger:
    wanted = {one.fingerprint for one in told}
    after = ledger
    for one in ledger.plain:
        if one.firing and one.name == name and one.fingerprint not in wanted:
            after = ended(after, one.fingerprint, now_s)
    for one in told:
        after = raised(after, one)
    return after


def _worded_as(alert: Alert, other: Alert) -> Alert:
    return replace(
        alert,
        summary=other.summary,
        description=other.description,
        fix=other.fix,
        updated_s=other.updated_s,
    )


def _kept(plain: tuple[Alert, ...]) -> tuple[Alert, ...]:
    """Keep what fires, and of what ended the latest."""
    past = [one for one in plain if not one.firing][:-MOST_ENDED]
    return tuple(one for one in plain if one not in past)
