"""Fixtures for the contract of the stand-in libraries."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.standins.build import build_libcuda
from tests.standins.loaded import Cuda


@pytest.fixture
def open_cuda(tmp_path: Path) -> Iterator[Callable[..., Cuda]]:
    """Build, load and set up stand-ins, and unload them afterwards.

    One that stayed would answer a later test's bare ``libcuda.so.1``.
    """
    opened: list[Cuda] = []

    def open_library(script: str = "") -> Cuda:
        cuda = Cuda(build_libcuda(tmp_path / str(len(opened)), script))
        opened.append(cuda)
        return cuda.setup()

    yield open_library
    for cuda in opened:
        cuda.close()
