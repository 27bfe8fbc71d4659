from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.shell.world import World, world

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def made() -> Iterator[World]:
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes namespaces and runs the real sudo")
    with world() as one:
        yield one


@pytest.fixture
def machine(made: World) -> World:
    """Give the machine as it is after installation and before the first shell."""
    made.reset()
    return made
