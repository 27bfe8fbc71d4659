from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.program import Program, program

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def gpud() -> Iterator[Program]:
    with program() as made:
        yield made
