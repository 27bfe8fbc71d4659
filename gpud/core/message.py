r"""What goes to a sink at once, and its words: harmless to show and of bounded length.

A summary may quote a driver, a label a container's name. What would steer a terminal is written as
``\x1b`` here, once for every sink; what is special to one way of showing it (XML, a shell that
nobody should have) is that sink's to treat as data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpud.core.alerts import Severity
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpud.core.alerts import Alert

LONGEST: Final = 4096
"""Characters of one text. Longer ones are cut; a label's name or value is cut at ``LABEL``."""
LABEL: Final = 512
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
    """What one sink is told at once; every part has the worst first.

    ``firing`` and ``resolved`` are what is new to it, or due again. ``standing`` is all it then
    knows to fire and nobody has acknowledged, ``ended`` is what it was told of in the last hour as
    resolved.
    """

    firing: tuple[Alert, ...] = ()
    resolved: tuple[Alert, ...] = ()
    standing: tuple[Alert, ...] = ()
    ended: tuple[Alert, ...] = ()


def worst_first(alerts: Iterable[Alert]) -> tuple[Alert, ...]:
    """Order by severity, then the oldest first."""
    return tuple(
        sorted(alerts, key=lambda one: (-RANK[one.severity], one.starts_s, one.fingerprint))
    )


def inert(alert: Alert) -> Alert:
    """Give a copy whose texts steer nothing, are whole characters and not novels."""
    return replace(
        alert,
        name=word(alert.name),
        labels=_words(alert.labels),
        annotations=_words(alert.annotations, LONGEST),
        summary=_line(alert.summary),
        description=_text(alert.description),
        fix=None if alert.fix is None else _line(alert.fix),
    )


def title(message: Message, host: str = "") -> str:
    """Head a message: "gpud: warning", "gpud: 3 alerts", "gpud on HOST: resolved"."""
    who = f"gpud on {word(host)}" if host else "gpud"
    count = len(message.firing) + len(message.resolved)
    if count > 1:
        return f"{who}: {count} alerts"
    return f"{who}: {message.firing[0].severity if message.firing else 'resolved'}"


def body(message: Message, *, details: bool = True) -> str:
    """Say all of a message in plain lines; ``details`` adds descriptions and fixes."""
    parts = []
    for alert in message.firing:
        lines = [alert.summary]
        if details:
            lines += [alert.description] if alert.description else []
            lines += [f"Fix: {alert.fix}"] if alert.fix else []
        parts.append("\n".join(lines))
    parts += [f"resolved: {alert.summary}" for alert in message.resolved]
    return ("\n\n" if details else "\n").join(parts)


def cut(text: str, longest: int) -> str:
    """Shorten to ``longest`` characters; three dots tell that there was more."""
    return text if len(text) <= longest else text[: max(longest - 3, 0)] + "..."[:longest]


def ascii_line(text: str, longest: int) -> str:
    """Write a text as one line of printable ASCII of at most ``longest`` characters."""
    plain = _line(text).translate(_ASCII)
    return cut("".join(letter if " " <= letter <= "~" else "?" for letter in plain), longest)


def _whole(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()  # half a character cannot be sent


def _line(text: str) -> str:
    return cut(escaped(_whole(text[: LONGEST + 1])), LONGEST)


def _text(text: str) -> str:
    return cut(escaped(_whole(text[: LONGEST + 1]), lines=True), LONGEST)


def word(text: str) -> str:
    """Give a name, of a machine or a label, harmless and short."""
    return cut(_line(text), LABEL)


def _words(pairs: Mapping[str, str], longest: int = LABEL) -> dict[str, str]:
    kept = sorted(pairs.items())[:MOST_LABELS]
    return {word(name): cut(_text(value), longest) for name, value in kept}
