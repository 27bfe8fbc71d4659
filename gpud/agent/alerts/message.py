"""The message that a sink gets: texts made harmless and cut, once for every sink.

A summary may quote a driver, a label a container's name. What would steer a terminal is escaped.
What is special to one way of showing a text (XML, HTTP) is that sink's to treat as data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpud.core.alerts import Severity
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpud.core.alerts import Alert

TEXT_LIMIT: Final = 4096
"""Characters of one text. The name and the value of a label have ``LABEL_LIMIT``."""
LABEL_LIMIT: Final = 512
MOST_LABELS: Final = 32
RANK: Final = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}
_ASCII: Final = str.maketrans(
    {
        "\N{MICRO SIGN}": "u",
        "\N{GREEK SMALL LETTER MU}": "u",
        "\N{RIGHTWARDS ARROW}": "->",
        "\N{MINUS SIGN}": "-",
        "\N{EN DASH}": "-",
        "\N{EM DASH}": "-",
        "\N{PLUS-MINUS SIGN}": "+-",
        "\N{HORIZONTAL ELLIPSIS}": "...",
        "\N{MULTIPLICATION SIGN}": "x",
        "\N{NO-BREAK SPACE}": " ",
        "\N{NARROW NO-BREAK SPACE}": " ",
    }
)


@dataclass(frozen=True, slots=True)
class Message:
    """One delivery to one sink; each part has the most severe alert first.

    ``firing`` and ``resolved`` are new to the sink, or repeated. ``standing`` is everything that it
    was sent, that still fires and that nobody has acknowledged; ``ended`` is what it was sent as
    resolved within the last hour.
    """

    firing: tuple[Alert, ...] = ()
    resolved: tuple[Alert, ...] = ()
    standing: tuple[Alert, ...] = ()
    ended: tuple[Alert, ...] = ()


def worst_first(alerts: Iterable[Alert]) -> tuple[Alert, ...]:
    """Order alerts by severity, then by age, the oldest first."""
    return tuple(sorted(alerts, key=lambda a: (-RANK[a.severity], a.starts_s, a.fingerprint)))


def inert(alert: Alert) -> Alert:
    """Copy an alert with every text escaped, cut and encodable."""
    return replace(
        alert,
        name=word(alert.name),
        labels=_pairs(alert.labels, LABEL_LIMIT),
        annotations=_pairs(alert.annotations, TEXT_LIMIT),
        summary=_text(alert.summary),
        description=_text(alert.description, lines=True),
        fix=None if alert.fix is None else _text(alert.fix),
    )


def title(message: Message, host: str = "") -> str:
    """Write the title of a message: "gpud: warning", "gpud on HOST: 3 alerts"."""
    sender = f"gpud on {word(host)}" if host else "gpud"
    count = len(message.firing) + len(message.resolved)
    if count > 1:
        return f"{sender}: {count} alerts"
    return f"{sender}: {message.firing[0].severity if message.firing else 'resolved'}"


def body(message: Message, *, details: bool = True) -> str:
    """Write a message as plain text; ``details`` adds descriptions and fixes."""
    parts = []
    for alert in message.firing:
        lines = [alert.summary]
        if details:
            lines += [alert.description] if alert.description else []
            lines += [f"Fix: {alert.fix}"] if alert.fix else []
        parts.append("\n".join(lines))
    parts += [f"resolved: {alert.summary}" for alert in message.resolved]
    return ("\n\n" if details else "\n").join(parts)


def cut(text: str, limit: int) -> str:
    """Shorten a text to ``limit`` characters; three dots mark the cut."""
    return text if len(text) <= limit else text[: max(limit - 3, 0)] + "..."[:limit]


def ascii_line(text: str, limit: int) -> str:
    """Write a text as one line of printable ASCII of at most ``limit`` characters."""
    plain = _text(text).translate(_ASCII)
    return cut("".join(letter if " " <= letter <= "~" else "?" for letter in plain), limit)


def word(text: str) -> str:
    """Make a name harmless and short: of a machine, an alert or a label."""
    return cut(_text(text), LABEL_LIMIT)


def _text(text: str, *, lines: bool = False) -> str:
    # Half a surrogate pair, which JSON can spell, cannot be sent.
    encodable = text[: TEXT_LIMIT + 1].encode(errors="backslashreplace").decode()
    return cut(escaped(encodable, lines=lines), TEXT_LIMIT)


def _pairs(pairs: Mapping[str, str], limit: int) -> dict[str, str]:
    kept = sorted(pairs.items())[:MOST_LABELS]
    return {word(name): cut(_text(value, lines=True), limit) for name, value in kept}
