"""Faults: each is a generator that does the damage, yields, and undoes it.

What it yields is what gpud has to name meanwhile, None where it mends the damage itself and soon.
A remedy that is a person's (a shell that is opened, a file that is put right) comes after the
``yield``. ``chance`` draws which variant, so that a seed repeats it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Generator, Iterable

    from tests.chaos.distribution import Distribution
    from tests.wsl.machine import Process

SUBJECTS: Final = ("docker", "driver", "files", "machine", "processes")


@dataclass(frozen=True, slots=True)
class Notice:
    """Components of which one has to be ill, for one of these reasons; any where none is given."""

    components: tuple[str, ...]
    reasons: frozenset[str] = frozenset()


def notice(components: str, *reasons: str) -> Notice:
    """``components``: names with a space between them."""
    return Notice(tuple(components.split()), frozenset(reasons))


if TYPE_CHECKING:
    Damage = Generator[Notice | None, None, None]
    Injection = Callable[[Distribution, random.Random], Damage]


@dataclass(frozen=True, slots=True)
class Fault:
    """``costs``: "containers" or "history" where the damage ends these, "tracebacks" if it may."""

    name: str
    of: str
    inject: Injection
    costs: frozenset[str]


FAULTS: dict[str, Fault] = {}


def fault(*costs: str, of: str = "") -> Callable[[Injection], Injection]:
    """Add a function's fault, named as the function is; ``of``: its class, if that has others."""

    def add(inject: Injection) -> Injection:
        name = inject.__name__.replace("_", "-")
        FAULTS[name] = Fault(name, of or name, inject, frozenset(costs))
        return inject

    return add


def kill(victims: Iterable[Process], number: signal.Signals = signal.SIGKILL) -> None:
    for victim in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim.pid, number)


def soon(condition: Callable[[], object], within_s: float) -> bool:
    """Wait until something is so; False where it is not within that time."""
    deadline_s = time.monotonic() + within_s
    while not (answer := condition()) and time.monotonic() < deadline_s:
        time.sleep(0.2)
    return bool(answer)


def load() -> dict[str, Fault]:
    """All faults by their names."""
    for subject in SUBJECTS:
        import_module(f"{__name__}.{subject}")
    return FAULTS


def classes() -> dict[str, list[str]]:
    """Names of faults by their class."""
    by_class: dict[str, list[str]] = {}
    for each in sorted(load().values(), key=lambda each: each.name):
        by_class.setdefault(each.of, []).append(each.name)
    return by_class
