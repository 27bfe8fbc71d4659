"""Records: frozen classes of named values, which a child defines in a tenth of a dataclass's time.

``dataclasses`` loads ``inspect`` and compiles seven functions for a class: a third of the start of
a child, and one is begun every minute. To everybody else a record is a frozen dataclass with slots:
``dataclasses`` and msgspec read its fields from ``__dataclass_fields__``, made when first read.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar, dataclass_transform

    T = TypeVar("T")
else:

    def dataclass_transform(**_: object) -> object:
        """Say nothing to who runs it."""
        return lambda kind: kind


class _Fields:
    """``__dataclass_fields__`` of a record, made by ``dataclasses`` when it is first read."""

    def __get__(self, _: object, owner: Any) -> dict[str, Any]:  # noqa: ANN401  # a record's class
        from dataclasses import dataclass, field

        body = {"__annotations__": owner.__annotations__, "__module__": owner.__module__}
        body["__doc__"] = owner.__doc__  # without one it would write the signature
        for name, value in owner._defaults.items():  # noqa: SLF001  # of the same module
            body[name] = field(default_factory=value.copy) if isinstance(value, dict) else value
        made: Any = dataclass(init=False, repr=False, eq=False)(type(owner.__name__, (), body))
        owner.__dataclass_fields__ = fields = made.__dataclass_fields__
        return fields  # type: ignore[no-any-return]


class _Slots(type):
    """Class of the classes of records: it gives each a slot for each annotation."""

    _defaults: dict[str, Any]
    __slots__: tuple[str, ...]

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> _Slots:
        names = tuple(body.get("__annotations__", ()))
        defaults = {each: body.pop(each) for each in names if each in body}
        body |= {"__slots__": names, "__match_args__": names, "_defaults": defaults}
        body |= {"__setattr__": _refuse, "__delattr__": _refuse}
        body |= {"__dataclass_fields__": _Fields()}  # msgspec looks for it in the class itself
        return super().__new__(cls, name, bases, body)


def _refuse(self: object, name: str, *_: object) -> None:
    raise AttributeError(f"{type(self).__name__} is frozen: {name} stays as it is")


@dataclass_transform(frozen_default=True)
class Record(metaclass=_Slots):
    """Values by the names that a class below annotates; a default dictionary is copied."""

    def __init__(self, *given: Any, **named: Any) -> None:  # noqa: ANN401  # of any field
        kind = type(self)
        names, defaults = kind.__slots__, kind._defaults  # noqa: SLF001  # of the same module
        filled = {**defaults, **dict(zip(names, given, strict=False)), **named}
        wrong = filled.keys() ^ set(names)
        if wrong or len(given) > len(names):
            raise TypeError(f"{kind.__name__}: {', '.join(sorted(wrong)) or 'too many values'}")
        for name, value in filled.items():
            copied = isinstance(value, dict) and value is defaults.get(name)
            object.__setattr__(self, name, value.copy() if copied else value)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and values(self) == values(other)

    def __hash__(self) -> int:
        return hash(tuple(values(self).values()))

    def __repr__(self) -> str:
        words = ", ".join(f"{name}={value!r}" for name, value in values(self).items())
        return f"{type(self).__qualname__}({words})"


def replace(value: T, **changes: Any) -> T:  # noqa: ANN401  # of any field
    """Return a copy of a record with some values changed."""
    return type(value)(**{**values(value), **changes})


def values(value: object) -> dict[str, Any]:
    """Return the values of a record by name; those that are records stay. For ``json`` as well."""
    return {name: getattr(value, name) for name in type(value).__slots__}  # type: ignore[attr-defined]
