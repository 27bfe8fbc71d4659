"""Text from outside (a driver, Docker, a file, HTTP) made harmless to show."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MOMENT: Final = re.compile(r"\b(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d) UTC\b")
"""A moment in a text of the agent's. Who shows the text writes it in the zone of who looks."""
_VERBS = (
    "alerts|baseline|capture|completion|config|doctor|down|gpus|history|install|logs|probe|restart"
    "|run|status|top|uninstall|up|update|version"
)
_COMMAND = re.compile(rf"(?<![\w/.-])gpud(?=\s+(?:{_VERBS})\b)")  # also across a broken line
_CONTROL = (*range(32), *range(127, 160))
_BIDIRECTIONAL = (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F)
_LINE = {code: f"\\x{code:02x}" for code in _CONTROL} | {
    code: f"\\u{code:04x}" for code in _BIDIRECTIONAL
}
_LINES = {code: shown for code, shown in _LINE.items() if chr(code) not in "\n\t"}


def escaped(text: str, *, lines: bool = False) -> str:
    r"""Write control and direction-changing characters as ``\x1b``.

    ``lines`` lets line feeds and tabs through: for text that is ours to lay out.
    """
    return text.translate(_LINES if lines else _LINE)


def rezoned(text: str, write: Callable[[float], str]) -> str:
    """Replace each moment of a text by what ``write`` makes of it. Units: Unix time."""
    return MOMENT.sub(lambda match: _written(match, write), text)


def _written(match: re.Match[str], write: Callable[[float], str]) -> str:
    from datetime import UTC, datetime

    try:
        return write(datetime(*map(int, match.groups()), tzinfo=UTC).timestamp())  # type: ignore[misc,arg-type]
    except ValueError:
        return match[0]  # no such day


def escaped_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Escape the names and values of a log line, but for the exception that goes with it."""
    return {
        escaped(key): value
        if key == "exc_info"
        else escaped(value if isinstance(value, str) else repr(value))
        for key, value in fields.items()
    }


def pasteable(text: str, program: Sequence[str]) -> str:
    """Write the commands of gpud in a text with the words of ``program``, which start it."""
    return _COMMAND.sub(lambda _: escaped(shlex.join(program)), text)
