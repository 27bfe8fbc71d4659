"""The month, written once for all tests that only read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpud.report import command
from tests.report import months

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.report.model import Report


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("month")
    months.written(made, spacing_s=3600.0)
    return made


@pytest.fixture(scope="session")
def report(folder: Path) -> Report:
    return command.report(folder, months.DAYS, now_s=months.UNTIL_S)
