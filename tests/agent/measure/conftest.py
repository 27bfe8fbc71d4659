"""The bench that the tests of whole rounds share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.agent.measure.rounds import IDLE, Clocked

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def bench(tmp_path: Path) -> Clocked:
    made = Clocked(tmp_path)
    made.looks = [IDLE]
    return made
