"""What every telemetry source keeps, whatever it asks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from gpud import discovery
from gpud.agent.measure.clocks import now
from gpud.agent.state.board import Board
from gpud.agent.telemetry import sources as folder
from gpud.agent.telemetry.collection import OFFERS, SourceContext
from gpud.agent.telemetry.fields import FIELDS, plausible
from gpud.agent.telemetry.sources import nvml
from gpud.core.settings import parse
from gpud.core.telemetry import LEVELS
from tests.events import made

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.agent.telemetry.answers import Answer

USABLE, REFUSED = discovery.modules(folder, OFFERS)
each = pytest.mark.parametrize("module", USABLE.values(), ids=list(USABLE))


def test_every_file_in_the_folder_is_a_source() -> None:
    assert REFUSED == {}
    assert {module.NAME for module in USABLE.values()} <= set(LEVELS)


@each
def test_a_source_is_named_after_its_file_and_has_its_place(module: Any) -> None:
    assert module.__name__.endswith(f".{module.NAME}")
    assert module.NAME in LEVELS


@each
def test_on_a_machine_with_nothing_a_source_says_why_and_what_it_says_holds_together(
    module: Any, tmp_path: Path
) -> None:
    settings = parse(
        f'sysroot = "{tmp_path}"\n[nvml]\nlibrary = "/nonexistent/libnvidia-ml.so.1"\n'.encode(), {}
    )
    context = SourceContext(settings, Board(made("1", 0.0)), now, tmp_path)

    async def twice() -> list[Answer | None]:
        source = module.create(context)
        text = [await source.collect() for _ in range(2)]
        if module.NAME == nvml.NAME:
            await source.close()
        return text

    for answer in asyncio.run(twice()):
        if answer is None:
            continue
        assert (answer.source, answer.level) == (module.NAME, LEVELS.index(module.NAME))
        assert answer.readings or answer.reason
        assert answer.reason is None or (answer.detail and not answer.readings)
        for reading in answer.readings:
            assert reading.source == module.NAME
            assert FIELDS[reading.field].machine is (reading.gpu is None)
            assert plausible(reading.field, reading.value) == reading.value
