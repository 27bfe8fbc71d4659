"""Memo of the last result of a function, for what is made again and again of frozen states."""

from __future__ import annotations

from functools import wraps
from operator import is_
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


def remembered(function: Callable[P, T]) -> Callable[P, T]:
    """Give the last result again while the positional arguments are the very same objects."""
    last: list[tuple[tuple[object, ...], T]] = []

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if last:
            before, result = last[0]
            if len(before) == len(args) and all(map(is_, before, args)):
                return result
        result = function(*args, **kwargs)
        last[:] = [(args, result)]
        return result

    return call
