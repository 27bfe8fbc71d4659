"""Records: to everybody a frozen dataclass with slots, to a child without what loads slowly."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import msgspec
import pytest

from gpud.core.record import Record, replace, values


class Part(Record):
    """A value inside another."""

    name: str


class Whole(Record):
    """Every kind of default."""

    size: float
    parts: tuple[Part, ...] = ()
    facts: dict[str, int] = {}  # noqa: RUF012  # copied

    @property
    def double(self) -> float:
        return 2 * self.size


WHOLE = Whole(1.5, (Part("a"), Part("b")), {"n": 1})


def test_record_is_a_frozen_value_that_wrong_arguments_do_not_make() -> None:
    same = Whole(1.5, (Part("a"), Part("b")), {"n": 1})
    assert same == WHOLE
    assert replace(same, size=2.0) == Whole(2.0, (Part("a"), Part("b")), {"n": 1}) != WHOLE
    assert hash(Part("a")) == hash(Part("a"))
    assert WHOLE.double == 3
    assert repr(Part("a")) == "Part(name='a')"
    with pytest.raises(AttributeError):
        WHOLE.size = 2.0  # type: ignore[misc]
    with pytest.raises(AttributeError):
        WHOLE.colour = "red"  # type: ignore[attr-defined]
    assert Whole(1.0).facts is not Whole(1.0).facts
    with pytest.raises(TypeError, match="colour"):
        Whole(1.0, colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="size"):
        Whole()  # type: ignore[call-arg]


def test_dataclasses_msgspec_and_json_take_a_record_for_a_dataclass() -> None:
    assert [field.name for field in dataclasses.fields(Whole)] == ["size", "parts", "facts"]
    document = dataclasses.asdict(WHOLE)
    assert document == {"size": 1.5, "parts": ({"name": "a"}, {"name": "b"}), "facts": {"n": 1}}
    assert dataclasses.replace(WHOLE, size=2.0) == replace(WHOLE, size=2.0)
    assert msgspec.json.decode(msgspec.json.encode(WHOLE), type=Whole) == WHOLE
    assert msgspec.json.decode(b'{"size": 2}', type=Whole) == Whole(2.0)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"parts": []}', type=Whole)
    assert msgspec.json.decode(json.dumps(WHOLE, default=values), type=Whole) == WHOLE


def test_child_loads_nothing_that_takes_long_to_load() -> None:
    asked = "import sys, gpud.child.__main__, gpud.child.probes.launch, gpud.child.cuda_gpu"
    shown = "print({'dataclasses', 'inspect', 'pathlib'} & sys.modules.keys() or 'neither')"
    command = [sys.executable, "-I", "-c", f"{asked}; {shown}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout == "neither\n"
