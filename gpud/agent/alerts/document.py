"""Alertmanager's webhook document, version "4".

Source: Prometheus' documentation of ``webhook_config``, and what Debian's Alertmanager posts (a
test compares the two). The alerts of one machine are one group: many machines share a receiver.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from gpud.agent.alerts.message import word, worst_first

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.agent.alerts.message import Message
    from gpud.core.alerts import Alert

VERSION: Final = "4"
MOST: Final = 64
"""Alerts in one document; ``truncatedAlerts`` counts the others."""
STILL_FIRING: Final = "0001-01-01T00:00:00Z"
INSTANCE: Final = "instance"
_OFFSET, _PRIME, _64_BITS = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1  # FNV-1a
_YEAR_9999_S: Final = 253402300799.0


def document(message: Message, *, instance: str, receiver: str, url: str) -> dict[str, Any]:
    """Return the document of a message: the whole group, as Alertmanager sends it.

    ``instance`` names the machine; ``url`` is gpud's own address, without a slash at its end.
    """
    instance = word(instance)
    new = {alert.fingerprint for alert in message.firing}
    standing = (alert for alert in message.standing if alert.fingerprint not in new)
    alerts = (*worst_first((*message.firing, *standing)), *message.resolved)
    sent = [_alert(alert, instance, url) for alert in alerts[:MOST]]
    quoted = instance.replace("\\", "\\\\").replace('"', '\\"')
    return {
        "receiver": receiver,
        "status": "firing" if any(alert.firing for alert in alerts) else "resolved",
        "alerts": sent,
        "groupLabels": {INSTANCE: instance},
        "commonLabels": _common([alert["labels"] for alert in sent]),
        "commonAnnotations": _common([alert["annotations"] for alert in sent]),
        "externalURL": url,
        "version": VERSION,
        "groupKey": f'{{}}:{{{INSTANCE}="{quoted}"}}',
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
    """Write Unix time as Alertmanager does; a time beyond the calendar becomes its nearest day."""
    moment = datetime.fromtimestamp(min(max(at_s, 0.0), _YEAR_9999_S), UTC)
    text = moment.isoformat(timespec="milliseconds").removesuffix("+00:00")
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}Z"


def _alert(alert: Alert, instance: str, url: str) -> dict[str, Any]:
    labels = {
        INSTANCE: instance,
        **alert.labels,
        "alertname": alert.name,
        "severity": alert.severity.value,
    }
    annotations = {
        **alert.annotations,
        "summary": alert.summary,
        "description": alert.description,
        "runbook_url": f"{url}{alert.runbook}",
        "fix": alert.fix or "",
    }
    return {
        "status": "firing" if alert.firing else "resolved",
        "labels": labels,
        "annotations": {name: value for name, value in annotations.items() if value},
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
