"""The ledger as plain JSON data, and back: a restart tells nothing twice and forgets nothing."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from gpud.core import alertwords
from gpud.core.advice import Platform
from gpud.core.alerts import Alert, Cause, Evidence, Severity
from gpud.core.case import Case, Found, strand
from gpud.core.detector import Alarm, Effect, Kind
from gpud.core.errors import WireError
from gpud.core.ledger import Ledger, Suspect, alerts
from gpud.core.message import inert
from gpud.core.sample import Unit
from gpud.core.streams import StreamKey

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
"""Raised when a state of before would be misread."""
FIX = "what still is so is told anew"


def saved(ledger: Ledger) -> dict[str, Any]:
    """Give the state as dicts, lists, texts, numbers and None."""
    return {
        "version": VERSION,
        "cases": [_case(case) for case in ledger.cases],
        "plain": [_alert(one) for one in ledger.plain],
        "suspects": [{"found": _found(one.found), "judged": one.judged} for one in ledger.suspects],
        "gpus": dict(ledger.gpus),
        "platform": ledger.platform.value,
    }


def restored(state: Mapping[str, Any]) -> Ledger:
    """Read back what ``saved`` gave, also after a trip through JSON.

    Errors: ``WireError`` for another version, or for what ``saved`` never wrote.
    """
    version = state.get("version")
    if version != VERSION:
        raise WireError(
            f"alerts of version {version!r}, this gpud reads version {VERSION}", fix=FIX
        )
    try:
        found = Ledger(
            cases=tuple(_read_case(case) for case in state["cases"]),
            plain=tuple(_read_alert(one) for one in state["plain"]),
            suspects=tuple(
                Suspect(_read_found(one["found"]), int(one["judged"])) for one in state["suspects"]
            ),
            gpus={str(uuid): str(words) for uuid, words in state["gpus"].items()},
            platform=Platform(state["platform"]),
        )
        told = [body(inert(one)) for one in alerts(found, 0.0)]
        told += [asdict(alertwords.told(one.found)) for one in found.suspects]  # perhaps tomorrow
        # What cannot be put into words, or not be sent, is none of ours.
        json.dumps([saved(found), told], allow_nan=False, ensure_ascii=False).encode()
    except (
        ArithmeticError,
        AttributeError,
        IndexError,
        KeyError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise WireError(f"alerts are damaged: {type(error).__name__}: {error}", fix=FIX) from error
    return found


def body(alert: Alert) -> dict[str, Any]:
    """Give an alert as the status document, the API and the history show it."""
    return {
        **_alert(alert),
        "fingerprint": alert.fingerprint,
        "firing": alert.firing,
        "runbook": alert.runbook,
    }


def _alert(alert: Alert) -> dict[str, Any]:
    return {
        **{item.name: getattr(alert, item.name) for item in fields(alert)},
        "severity": alert.severity.value,
        "labels": dict(alert.labels),
        "evidence": [asdict(one) for one in alert.evidence],
        "causes": [asdict(cause) for cause in alert.causes],
        "annotations": dict(alert.annotations),
    }


def _case(case: Case) -> dict[str, Any]:
    return {
        **{item.name: getattr(case, item.name) for item in fields(case)},
        "labels": dict(case.labels),
        "found": [_found(one) for one in case.found],
        # By place in ``found``: shorter than their names, and in an order of its own.
        "over": [at for at, one in enumerate(case.found) if strand(one) in case.over],
    }


def _found(found: Found) -> dict[str, Any]:
    plain = asdict(found)
    plain["alarm"]["closes"] = list(found.alarm.closes)
    for name in ("changed", "causes"):
        plain[name] = list(plain[name])
    return plain


def _read_case(state: dict[str, Any]) -> Case:
    found = tuple(_read_found(one) for one in state["found"])
    over = frozenset(strand(found[at]) for at in state["over"])
    if not found:
        raise ValueError("a case of nothing")
    return Case(**{**state, "labels": dict(state["labels"]), "found": found, "over": over})


def _read_found(state: dict[str, Any]) -> Found:
    return Found(
        key=StreamKey(**state["key"]),
        unit=Unit(state["unit"]),
        alarm=_read_alarm(state["alarm"]),
        judged=int(state["judged"]),
        changed=tuple(Cause(**cause) for cause in state["changed"]),
        causes=tuple(Cause(**cause) for cause in state["causes"]),
    )


def _read_alarm(state: dict[str, Any]) -> Alarm:
    given = {
        "kind": Kind(state["kind"]),
        "effect": Effect(**state["effect"]),
        "closes": tuple(state["closes"]),
    }
    return Alarm(**state | given)


def _read_alert(state: dict[str, Any]) -> Alert:
    given = {
        "severity": Severity(state["severity"]),
        "labels": dict(state["labels"]),
        "evidence": tuple(_read_evidence(one) for one in state["evidence"]),
        "causes": tuple(Cause(**cause) for cause in state["causes"]),
        "annotations": dict(state["annotations"]),
    }
    return Alert(**state | given)


def _read_evidence(state: dict[str, Any]) -> Evidence:
    given = {"stream": StreamKey(**state["stream"]), "unit": Unit(state["unit"])}
    return Evidence(**state | given)
