"""Records: frozen classes of named values, which a child defines in a tenth of a dataclass's time.

``dataclasses`` loads ``inspect`` and compiles seven functions for a class: a third of the start of
a child, and one is begun every minute. To everybody else a record is a frozen dataclass with slots:
``dataclasses`` and msgspec read its fields from ``__dataclass_fields__``, made when first read.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """Make a record of a class with annotations; a default that is a dictionary is copied."""
    names = tuple(cls.__annotations__)
    attributes = {
        name: value
        for name, value in vars(cls).items()
        if name not in {*names, "__dict__", "__weakref__"}
    }
    defaults = {name: vars(cls)[name] for name in names if name in vars(cls)}
    attributes |= {
        "__slots__": names,
        "__match_args__": names,
        "__init__": _init(names, defaults),
        "__setattr__": _refuse,
        "__delattr__": _refuse,
        "__eq__": _equal,
        "__hash__": _hash,
        "__repr__": _repr,
        "_values": staticmethod(attrgetter(*names)),
        "__dataclass_fields__": _Fields(defaults),
    }
    made: type[T] = type(cls.__name__, cls.__bases__, attributes)
    return made


def replace(value: T, **changes: Any) -> T:  # noqa: ANN401  # of any field
    """Return a copy of a record with some values changed."""
    return type(value)(**{**values(value), **changes})


def values(value: object) -> dict[str, Any]:
    """Return the values of a record by name; those that are records stay. For ``json`` as well."""
    return {name: getattr(value, name) for name in type(value).__slots__}  # type: ignore[attr-defined]


def _init(names: tuple[str, ...], defaults: Mapping[str, Any]) -> Any:  # noqa: ANN401  # a method
    """Compile the one method that is called often."""
    parameters, lines = ["self"], ["set = object.__setattr__"]
    for name in names:
        parameters.append(f"{name}=defaults[{name!r}]" if name in defaults else name)
        copied = isinstance(defaults.get(name), dict)
        lines.append(f"set(self, {name!r}, {name}{'.copy()' if copied else ''})")
    made: dict[str, Any] = {"defaults": defaults}
    source = f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines)
    exec(source, made)  # noqa: S102  # names of fields, as dataclasses and namedtuple do
    return made["__init__"]


def _equal(self: Any, other: Any) -> Any:  # noqa: ANN401  # any record; NotImplemented too
    same = type(other) is type(self)
    return self._values(self) == self._values(other) if same else NotImplemented


def _hash(self: Any) -> int:  # noqa: ANN401
    return hash(self._values(self))


def _repr(self: object) -> str:
    words = ", ".join(f"{name}={value!r}" for name, value in values(self).items())
    return f"{type(self).__qualname__}({words})"


def _refuse(self: object, name: str, *_: object) -> None:
    raise AttributeError(f"{type(self).__name__} is frozen: {name} stays as it is")


class _Fields:
    """``__dataclass_fields__`` of a record, made by ``dataclasses`` when it is first read."""

    def __init__(self, defaults: Mapping[str, Any]) -> None:
        self._defaults = defaults

    def __get__(self, _: object, owner: type) -> dict[str, Any]:
        from dataclasses import dataclass, field

        body: dict[str, Any] = {
            name: field(default_factory=value.copy) if isinstance(value, dict) else value
            for name, value in self._defaults.items()
        }
        body |= {"__annotations__": owner.__annotations__, "__module__": owner.__module__}
        made: Any = dataclass(init=False, repr=False, eq=False)(type(owner.__name__, (), body))
        owner.__dataclass_fields__ = made.__dataclass_fields__  # type: ignore[attr-defined]
        result: dict[str, Any] = made.__dataclass_fields__
        return result
