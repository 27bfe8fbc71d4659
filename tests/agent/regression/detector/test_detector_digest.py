"""Verdicts and alarms of generated streams, sample by sample, beside those stored.

After a change that is meant to alter them, the repository's root and ``python -m`` with the name
of this module write ``detector_digest.txt`` anew. ``benchmarks/detector_digest.py`` does the same
with recorded streams.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.detection.digest import differences, digest
from benchmarks.detection.made import streams
from benchmarks.detection.worlds import WORLDS, worlds

if TYPE_CHECKING:
    from collections.abc import Iterator

STORED = Path(__file__).with_name("detector_digest.txt")
MIXED, PER_WORLD, SEED = 32, 3, 2026


def digests() -> Iterator[str]:
    for stream in streams(MIXED, SEED):
        yield digest(stream, power=True)
    for name in WORLDS:
        for stream in worlds(name, PER_WORLD, SEED):
            yield digest(stream, power=bool(WORLDS[name].states))


def test_verdicts_of_generated_streams_are_those_stored() -> None:
    assert not (different := differences(STORED, digests())), "\n".join(different)


if __name__ == "__main__":
    STORED.write_text("".join(f"{line}\n" for line in digests()))
