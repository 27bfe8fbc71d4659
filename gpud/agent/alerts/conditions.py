"""Alerts that rest on a condition and not on streams: lost functions, components, sinks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpud.core.alerts import Alert

REFRESH_S: Final = 60.0
"""How often the words of an alert may change that is the same otherwise: some hold a count."""
MOST_ENDED: Final = 32


class Conditions:
    """The alerts that fire or ended lately; ``revision`` counts changes."""

    def __init__(self) -> None:
        self.alerts: list[Alert] = []
        self.revision = 0

    def sync(
        self, name: str, alerts: Iterable[Alert], now_s: float, keep: Collection[str] = ()
    ) -> None:
        """Make ``alerts`` those of a name that fire; others end unless ``keep`` has a label."""
        fresh = {alert.fingerprint: alert for alert in alerts}
        after = []
        for one in self.alerts:
            if one.firing and one.name == name:
                new = fresh.pop(one.fingerprint, None)
                if new is not None:
                    after.append(_updated(one, new))
                    continue
                if set(keep).isdisjoint(one.labels.values()):
                    after.append(replace(one, ends_s=max(now_s, one.starts_s), updated_s=now_s))
                    continue
            after.append(one)
        self._set([*after, *fresh.values()])

    def acknowledge(self, fingerprint: str, now_s: float) -> None:
        """Note that a person has seen an alert; the first time counts."""
        self._set(
            [
                replace(one, acknowledged_s=now_s)
                if one.firing and one.acknowledged_s is None and one.fingerprint == fingerprint
                else one
                for one in self.alerts
            ]
        )

    def resume(self, past: list[Alert]) -> None:
        """Continue from what was saved; what began before it could be read joins it."""
        own = {one.fingerprint: one for one in self.alerts}
        joined = [
            _updated(one, own.pop(one.fingerprint))
            if one.firing and one.fingerprint in own
            else one
            for one in past
        ]
        self._set([*joined, *own.values()])

    def _set(self, alerts: list[Alert]) -> None:
        if alerts != self.alerts:
            gone = [one for one in alerts if not one.firing][:-MOST_ENDED]
            self.alerts = [one for one in alerts if one not in gone]
            self.revision += 1


def _updated(old: Alert, new: Alert) -> Alert:
    """Return an alert that goes on; new words alone wait until the last ones are a minute old."""
    kept = replace(new, starts_s=old.starts_s, acknowledged_s=old.acknowledged_s)
    if replace(kept, updated_s=old.updated_s) == old:
        return old
    same = replace(
        kept,
        summary=old.summary,
        description=old.description,
        fix=old.fix,
        updated_s=old.updated_s,
    )
    waits = same == old and abs(kept.updated_s - old.updated_s) < REFRESH_S
    return old if waits else kept
