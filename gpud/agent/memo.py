"""Memo of the last result of a function, for what is made again and again of frozen states."""

from __future__ import annotations

from functools import wraps
from operator import is_
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable

Ts = TypeVarTuple("Ts")
T = TypeVar("T")


def memo(function: Callable[[*Ts], T]) -> Callable[[*Ts], T]:
    """Give the last result again while the arguments, all positional, are the very same objects."""
    last: list[tuple[tuple[object, ...], T]] = []

    @wraps(function)
    def call(*args: *Ts) -> T:
        if last:
            before, result = last[0]
            if len(before) == len(args) and all(map(is_, before, args)):
                return result
        result = function(*args)
        last[:] = [(args, result)]
        return result

    return call
