"""Verdicts and alarms of generated streams, sample by sample, beside those stored.

After a change that is meant to alter them, the repository's root and ``python -m`` with the name
of this module write ``detector_digest.txt`` anew. ``benchmarks/detector_digest.py`` does the same
with recorded streams.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.detection.digest import digest
from benchmarks.detection.made import Stream, streams
from benchmarks.detection.worlds import WORLDS, worlds

if TYPE_CHECKING:
    from collections.abc import Iterator

STORED = Path(__file__).with_name("detector_digest.txt")
MIXED, PER_WORLD, SEED = 32, 3, 2026
OFTEN = 4
"""Each fourth stream is looked at in every run; ``-m soak`` looks at all of them."""


def made() -> Iterator[tuple[Stream, bool]]:
    """Give each stream, and whether the power is known in it."""
    for stream in streams(MIXED, SEED):
        yield stream, True
    for name in WORLDS:
        for stream in worlds(name, PER_WORLD, SEED):
            yield stream, bool(WORLDS[name].states)


@pytest.mark.parametrize("every", [OFTEN, pytest.param(1, marks=pytest.mark.soak)])
def test_verdicts_of_generated_streams_are_those_stored(every: int) -> None:
    now = [digest(stream, power=power) for stream, power in islice(made(), 0, None, every)]
    assert now == STORED.read_text().splitlines()[::every]


if __name__ == "__main__":
    lines = [digest(stream, power=power) for stream, power in made()]
    STORED.write_text("".join(f"{line}\n" for line in lines))
