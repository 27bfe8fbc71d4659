"""What the detector says of recorded streams, sample by sample, beside what is stored of it.

    .venv/bin/python benchmarks/detector_digest.py DATA [--file FILE] [--write] [--jobs N]
                                                        [--trace NAME [--power]]

DATA is a folder of *.jsonl, as for detect.py; made streams are judged twice, without and with the
power state. FILE (detection/development.txt) has a line a stream: those that differ are printed,
and the exit code is 1 then. ``--write`` stores what is now. ``--trace``: print verdict, alarm and
standing after each sample of one stream, to be compared with those of another checkout.
"""

from __future__ import annotations

import argparse
import sys
from multiprocessing import Pool
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.detection.digest import differences, digest, trace
from benchmarks.detection.score import recorded

if TYPE_CHECKING:
    from benchmarks.detection.made import Stream

STORED = Path(__file__).parent / "detection" / "development.txt"


def line(job: tuple[Stream, bool]) -> str:
    """Give the digest of a stream, without or with its power state."""
    stream, power = job
    return digest(stream, power=power)


def main() -> int:
    """Compare, write or trace."""
    parser = argparse.ArgumentParser(description="the detector's verdicts beside those stored")
    parser.add_argument("data", type=Path)
    parser.add_argument("--file", type=Path, default=STORED)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--trace", metavar="NAME")
    parser.add_argument("--power", action="store_true")
    given = parser.parse_args()
    streams = list(recorded(given.data))
    if not streams:
        parser.error(f"{given.data} has no *.jsonl")
    if given.trace is not None:
        for stream in streams:
            if stream.name == given.trace:
                for seq, parts in enumerate(trace(stream, power=given.power)):
                    print(seq, " | ".join(parts))
        return 0
    jobs = [(stream, False) for stream in streams]
    jobs += [(stream, True) for stream in streams if stream.part == "made"]
    with Pool(given.jobs) as pool:
        lines = sorted(pool.map(line, jobs, chunksize=2), key=lambda text: text.split(" ", 3)[3])
    if given.write:
        given.file.write_text("".join(f"{text}\n" for text in lines))
        print(f"{given.file}: {len(lines)} streams")
        return 0
    different = differences(given.file, lines)
    print(*different, f"{len(different)} of {len(lines)} streams differ", sep="\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
