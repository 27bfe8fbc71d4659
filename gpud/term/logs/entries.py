"""Lines of logs as entries: JSON of gpud's own, logfmt of dockerd, and whatever else is there.

A line that is neither is kept: it belongs to the one before it, as a traceback does. Pure.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from gpud.core.text import escaped
from gpud.show.view import PLAIN, QUIET, Span, line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.show.view import Line

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
COLOURS: Final = {
    "debug": "dim",
    "info": "green",
    "warning": "yellow",
    "error": "red",
    "critical": "bold red",
}
SYNONYMS: Final = {"warn": "warning", "fatal": "critical", "panic": "critical", "trace": "debug"}
COMPONENTS: Final = ("agent", "root", "dockerd")
LONGEST: Final = 400
"""Characters of one value that are drawn; --json has all of them."""
_LOGFMT: Final = re.compile(r'(?<!\w)(\w++)=("(?:[^"\\]++|\\.)*+"|[^\s"]*)')
"""Nothing is looked at twice: dockerd repeats whatever it was sent, and a line may have 1 MiB."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line. ``at_s`` is Unix time, None where the line does not say; ``level`` likewise."""

    component: str
    raw: str
    at_s: float | None = None
    level: str | None = None
    event: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


def entry(component: str, raw: str) -> Entry:
    """Read a line; one that cannot be read is an entry too, of which nothing but itself is known.

    Errors: none, whatever the line holds.
    """
    if component == "dockerd":
        return _logfmt(component, raw)
    try:
        told: Any = json.loads(raw)
    except (ValueError, RecursionError):
        return Entry(component, raw)
    if not isinstance(told, dict):
        return Entry(component, raw)
    rest = {key: value for key, value in told.items() if key not in {"timestamp", "level", "event"}}
    at_s, level, event = _moment(told.get("timestamp")), told.get("level"), told.get("event")
    if at_s is None or not isinstance(event, str):
        return Entry(component, raw)
    return Entry(component, raw, at_s, _level(level), event, rest)


def severe(one: Entry, least: str | None) -> bool:
    """Say whether an entry is of that level or above; what has no level is never hidden."""
    if least is None or one.level is None:
        return True
    return LEVELS.index(one.level) >= LEVELS.index(least)


def document(one: Entry) -> dict[str, Any]:
    """Give an entry as plain JSON data; the line itself where it could not be read."""
    if one.event is None:
        return {"component": one.component, "unix_s": one.at_s, "raw": one.raw}
    told = {"component": one.component, "unix_s": one.at_s, "level": one.level, "event": one.event}
    return {**told, **{key: value for key, value in one.fields.items() if key not in told}}


def drawn(one: Entry) -> Line:
    """Draw an entry for a person: time, who, how bad, what, and the rest."""
    head = (Span(f"{_time(one.at_s)} ", QUIET), Span(f"{one.component:<7} "))
    if one.event is None:
        return line(*head, Span(f"{'':9}"), Span(one.raw[: 4 * LONGEST], PLAIN))
    level = Span(f"{one.level or '-':<8} ", COLOURS.get(one.level or "", PLAIN))
    rest = " ".join(f"{key}={_value(value)}" for key, value in one.fields.items())
    return line(*head, level, Span(one.event), Span(f" {rest}" if rest else "", QUIET))


def _logfmt(component: str, raw: str) -> Entry:
    told = {key: _unquoted(value) for key, value in _LOGFMT.findall(raw)}
    at_s, event = _moment(told.pop("time", None)), told.pop("msg", None)
    if at_s is None or event is None:
        return Entry(component, raw)
    return Entry(component, raw, at_s, _level(told.pop("level", None)), event, told)


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value


def _moment(told: object) -> float | None:
    try:
        at_s = datetime.fromisoformat(_micros(told)).timestamp() if isinstance(told, str) else None
    except (ValueError, OverflowError, OSError):
        return None
    return at_s if at_s is not None and math.isfinite(at_s) else None


def _micros(told: str) -> str:
    """Cut the nanoseconds that dockerd writes: Python reads six digits of a second."""
    return re.sub(r"(\.\d{6})\d+", r"\1", told)


def _level(told: object) -> str | None:
    word = SYNONYMS.get(told, told) if isinstance(told, str) else None
    return word if word in LEVELS else None


def _value(value: object) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict) and "exc_type" in value[0]:
        value = f"{value[0].get('exc_type')}: {value[0].get('exc_value')}"  # a traceback's end
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    shown = escaped(text if len(text) <= LONGEST else f"{text[:LONGEST]}…")
    return json.dumps(shown, ensure_ascii=False) if " " in shown else shown


def _time(at_s: float | None) -> str:
    try:
        at = datetime.fromtimestamp(at_s or math.nan)  # noqa: DTZ006  # as the clock on the wall
    except (ValueError, OverflowError, OSError):
        return f"{'-':<19}"
    return at.isoformat(" ", "seconds")
