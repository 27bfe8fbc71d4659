"""Types of rows, and the one place where a row that a damaged disk has changed is dropped."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeVar

import msgspec

from gpud.core.sample import Condition, Flag

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpud.core.sample import RunReport

T = TypeVar("T")

Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
"""A column of figures or of Unix times: SQLite keeps infinities."""


class Body(dict[str, Condition]):
    """A column with a JSON object of plain values."""


class Flags(tuple[Flag, ...]):
    """A column with the flags of a run."""

    __slots__ = ()


_DECODED_AS: Final[dict[type, Any]] = {Body: dict[str, Condition], Flags: tuple[Flag, ...]}


def typed(rows: Iterable[tuple[Any, ...]], kind: type[T]) -> Iterator[T]:
    """Yield each row as ``kind``, a named tuple or a tuple of column types; others are damaged."""
    for row in rows:
        try:
            value = msgspec.convert(row, kind, dec_hook=_decoded)
        except (msgspec.MsgspecError, RecursionError):
            continue
        yield value


def _decoded(kind: type, text: object) -> Any:  # noqa: ANN401  # of that type
    if not isinstance(text, str):
        raise TypeError("no text")
    return kind(msgspec.json.decode(text, type=_DECODED_AS[kind]))


def encoded(body: object) -> str:
    """Return plain data as it is stored; half a surrogate pair becomes a question mark."""
    try:
        return msgspec.json.encode(body).decode()
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(body), ensure_ascii=False, separators=(",", ":"))
        return text.encode(errors="replace").decode()


@dataclass(frozen=True, slots=True)
class Run:
    """One finished run. Units: ``finished_s`` is Unix time."""

    report: RunReport
    finished_s: float
    boot_id: str
    flags: tuple[Flag, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """One event. Units: ``at_s`` is Unix time."""

    at_s: float
    kind: str
    body: Mapping[str, Condition] = field(default_factory=dict)


class State(NamedTuple):
    """One row of ``states``: what the detectors, the alerts or the roll-ups go on with.

    ``upto_run`` is the newest run that it contains. Units: ``at_s`` is Unix time.
    """

    name: str
    upto_run: int
    at_s: float
    body: str
