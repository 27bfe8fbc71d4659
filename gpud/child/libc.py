"""The null call: libc's ``abs`` behind any prototype, so that only the call itself is left."""

from __future__ import annotations

import ctypes
from functools import lru_cache, partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

LAUNCH_PROTOTYPE: tuple[Any, ...] = (
    ctypes.c_void_p,  # function
    *(ctypes.c_uint,) * 7,  # grid x y z, block x y z, bytes of dynamic shared memory
    ctypes.c_void_p,  # stream
    ctypes.c_void_p,  # kernel parameters
    ctypes.c_void_p,  # extra
)
"""Argument types of ``cuLaunchKernel``."""


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def null_call(prototype: Sequence[Any], arguments: Sequence[object]) -> Callable[[], int]:
    """Build a call of ``abs`` with this prototype and these arguments, the first one replaced by 0.

    The arguments beyond the first are converted and passed like those of the real call; ``abs``
    looks at the first only and gives 0.
    """
    function = _libc()["abs"]  # an item, not the attribute: a function object of its own
    function.argtypes = tuple(prototype)
    function.restype = ctypes.c_int
    return partial(function, prototype[0](0), *arguments[1:])
