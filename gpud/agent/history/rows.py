"""Rows of the history as types: the one place where a row that a disk has damaged is dropped."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec

from gpud.core.sample import Flag

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")

Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
"""A column of figures or of Unix times: SQLite keeps infinities."""


class Object(dict[str, Any]):
    """A column with a JSON object."""


class Flags(tuple[Flag, ...]):
    """A column with the flags of a run."""

    __slots__ = ()


def typed(rows: Iterable[tuple[Any, ...]], kind: type[T]) -> Iterator[T]:
    """Yield each row as ``kind``, a named tuple or a tuple of column types; others are damaged."""
    for row in rows:
        try:
            value = msgspec.convert(row, kind, dec_hook=_decoded)
        except msgspec.MsgspecError:
            continue
        yield value


_BODIES: Final[dict[type, Any]] = {Object: dict[str, Any], Flags: tuple[Flag, ...]}


def _decoded(kind: type, text: object) -> Any:  # noqa: ANN401  # of that type
    if not isinstance(text, str):
        raise TypeError("no text")
    return kind(msgspec.json.decode(text, type=_BODIES[kind]))
