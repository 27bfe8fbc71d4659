"""Options and fixtures that every test may use."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.dockerd import PrivateDockerd, private_dockerd

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# A busy machine is slow, and nothing is wrong: neither with a test nor with what makes its data.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("by_chance", untimed)  # --hypothesis-profile=by_chance looks further
# The same examples each time: a change that breaks nothing is not refused for a rare one. Half as
# many as usual: the others are the same again.
settings.register_profile("the_same", untimed, derandomize=True, max_examples=50)
settings.load_profile("the_same")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite tests/golden from what is exported"
    )
    parser.addoption("--screenshots", metavar="DIR", help="keep what tests/browser sees")


@pytest.fixture
def anyio_backend() -> str:
    """Run asynchronous tests as the agent runs: in an event loop of asyncio."""
    return "asyncio"


@pytest.fixture(scope="session")
def installed_layer() -> Iterator[Path]:
    """Files of an installation over this machine's, for distributions that look like WSL2."""
    from tests.chaos.distribution import layer  # with what few tests need

    python = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    if os.geteuid() != 0 or not all(map(shutil.which, ("dockerd", python))):
        pytest.skip(f"needs root, a dockerd and {python}")
    with layer() as made:
        yield made


@pytest.fixture
def dockerd() -> Iterator[PrivateDockerd]:
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("needs root and a dockerd")
    with private_dockerd() as made:
        yield made
