"""Options and fixtures that every test may use."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.dockerd import PrivateDockerd, private_dockerd

if TYPE_CHECKING:
    from collections.abc import Iterator


settings.register_profile("untimed", deadline=None)  # a busy machine is slow, and nothing is wrong
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite tests/golden from what is exported"
    )
    parser.addoption("--screenshots", metavar="DIR", help="keep what tests/browser sees")


@pytest.fixture
def dockerd() -> Iterator[PrivateDockerd]:
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("needs root and a dockerd")
    with private_dockerd() as made:
        yield made
