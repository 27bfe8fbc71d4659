"""The message that a sink gets, as plain text and as Alertmanager's webhook document. Pure.

Foreign texts (a driver's name, a container's) are escaped and cut where an alert is written
(``gpud.agent.alerts.wording``), so a sink need only treat them as data.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpud.core.alerts import Alert, Severity
from gpud.core.text import escaped
from gpud.units import YEAR_9999_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RANK: Final = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}
FOREIGN_LIMIT: Final = 200
"""Characters that are kept of a foreign string."""
VERSION: Final = "4"
MOST: Final = 64
"""Alerts in one document; ``truncatedAlerts`` counts the others."""
STILL_FIRING: Final = "0001-01-01T00:00:00Z"
_OFFSET, _PRIME, _64_BITS = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1  # FNV-1a


class Message(msgspec.Struct, frozen=True):
    """One delivery to one sink; each part has the most severe alert first.

    ``firing`` and ``resolved`` are new to the sink, or repeated. ``standing`` is everything that it
    was sent, that still fires and that nobody has acknowledged. A sink that shows a state gets
    ``standing``, and in ``resolved`` what it showed and ended within the last hour.
    """

    firing: tuple[Alert, ...] = ()
    resolved: tuple[Alert, ...] = ()
    standing: tuple[Alert, ...] = ()


def worst_first(alerts: Iterable[Alert]) -> tuple[Alert, ...]:
    """Order alerts by severity, then by age, the oldest first."""
    return tuple(sorted(alerts, key=lambda a: (-RANK[a.severity], a.starts_s, a.fingerprint)))


def plain(text: str, limit: int = FOREIGN_LIMIT) -> str:
    """Cut a foreign string, escape it and make it encodable."""
    return escaped(cut(text, limit).encode(errors="replace").decode())


def cut(text: str, limit: int) -> str:
    """Shorten a text to ``limit`` characters; three dots mark the cut."""
    return text if len(text) <= limit else text[: max(limit - 3, 0)] + "..."[:limit]


def title(message: Message, host: str = "") -> str:
    """Write the title of a message: "gpud: warning", "gpud on HOST: 3 alerts"."""
    sender = f"gpud on {plain(host)}" if host else "gpud"
    count = len(message.firing) + len(message.resolved)
    if count > 1:
        return f"{sender}: {count} alerts"
    return f"{sender}: {message.firing[0].severity if message.firing else 'resolved'}"


def body(message: Message, *, details: bool = True) -> str:
    """Write a message as plain text; ``details`` adds descriptions and fixes."""
    parts = []
    for alert in message.firing:
        fix = f"Fix: {alert.fix}" if alert.fix else ""
        lines = [alert.summary, alert.description, fix] if details else [alert.summary]
        parts.append("\n".join(line for line in lines if line))
    parts += [f"resolved: {alert.summary}" for alert in message.resolved]
    return ("\n\n" if details else "\n").join(parts)


def document(message: Message, *, host: str, receiver: str, url: str) -> dict[str, Any]:
    """Return Alertmanager's webhook document: the whole group, which is the machine.

    Source: Prometheus' documentation of ``webhook_config``, and what Debian's Alertmanager posts (a
    test compares the two). ``host`` becomes the label ``instance``; ``url`` is gpud's own address,
    without a slash at its end.
    """
    instance = plain(host)
    new = {alert.fingerprint for alert in message.firing}
    standing = (alert for alert in message.standing if alert.fingerprint not in new)
    alerts = (*worst_first((*message.firing, *standing)), *message.resolved)
    sent = [_alert(alert, instance, url) for alert in alerts[:MOST]]
    quoted = instance.replace("\\", "\\\\").replace('"', '\\"')
    return {
        "receiver": receiver,
        "status": "firing" if any(alert.firing for alert in alerts) else "resolved",
        "alerts": sent,
        "groupLabels": {"instance": instance},
        "commonLabels": _common([alert["labels"] for alert in sent]),
        "commonAnnotations": _common([alert["annotations"] for alert in sent]),
        "externalURL": url,
        "version": VERSION,
        "groupKey": f'{{}}:{{instance="{quoted}"}}',
        "truncatedAlerts": max(len(alerts) - MOST, 0),
    }


def fingerprint(labels: Mapping[str, str]) -> str:
    """Return the sixteen digits by which Alertmanager identifies a set of labels."""
    state = _OFFSET
    for name, value in sorted(labels.items()):
        for byte in f"{name}\0{value}\0".encode(errors="replace").replace(b"\0", b"\xff"):
            state = (state ^ byte) * _PRIME & _64_BITS
    return f"{state:016x}"


def rfc3339(at_s: float) -> str:
    """Write Unix time as Alertmanager does."""
    moment = datetime.fromtimestamp(min(max(at_s, 0.0), YEAR_9999_S), UTC)
    text = moment.isoformat(timespec="milliseconds").removesuffix("+00:00")
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}Z"


def _alert(alert: Alert, instance: str, url: str) -> dict[str, Any]:
    labels = {
        "instance": instance,
        **alert.labels,
        "alertname": alert.name,
        "severity": alert.severity.value,
    }
    annotations = {
        "summary": alert.summary,
        "description": alert.description,
        "runbook_url": f"{url}{alert.runbook}",
        "fix": alert.fix or "",
    }
    return {
        "status": "firing" if alert.firing else "resolved",
        "labels": labels,
        "annotations": {name: text for name, text in annotations.items() if text},
        "startsAt": rfc3339(alert.starts_s),
        "endsAt": STILL_FIRING if alert.ends_s is None else rfc3339(alert.ends_s),
        "generatorURL": f"{url}/",
        "fingerprint": fingerprint(labels),
    }


def _common(sets: list[dict[str, str]]) -> dict[str, str]:
    if not sets:
        return {}
    shared = set(sets[0].items()).intersection(*(pairs.items() for pairs in sets[1:]))
    return dict(sorted(shared))
