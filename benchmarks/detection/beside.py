"""Anchors whose libraries do not live in this environment, asked in their own.

    PYTHON -m benchmarks.detection.beside NAME STREAMS [--power] [--jobs N]

STREAMS is a JSON file that ``ask`` wrote; the score comes back as JSON on stdout.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from typing import Any

from benchmarks.detection.anchors import anchors
from benchmarks.detection.made import Label, Stream
from benchmarks.detection.score import Score, judged, visible

ROOT = Path(__file__).resolve().parent.parent.parent


def scored(stream: Stream, *, name: str, power: bool) -> Score:
    """Score one anchor on one stream."""
    judge = anchors()[name]
    assert judge is not None
    started = time.process_time()
    found = judge(stream, visible(stream, power=power))
    spent = time.process_time() - started
    score = judged(stream, found)
    score.seconds = spent
    return score


def ask(
    pythons: list[str], name: str, streams: list[Stream], *, power: bool, jobs: int
) -> Score | None:
    """Score an anchor with the first interpreter that has its library; None if none has it."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as given:
        json.dump([asdict(stream) for stream in streams], given)
        given.flush()
        for python in pythons:
            asked = [python, "-m", "benchmarks.detection.beside", name, given.name]
            asked += ["--jobs", str(jobs), *(["--power"] if power else [])]
            answer = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
            if answer.returncode == 0:
                return Score(**json.loads(answer.stdout))
    return None


def main() -> int:
    """Answer one question; exit code 3 where the library is missing."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("streams", type=Path)
    parser.add_argument("--power", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    if anchors().get(asked.name) is None:
        return 3
    given = [_stream(row) for row in json.loads(asked.streams.read_text())]
    score = Score()
    with Pool(asked.jobs) as pool:
        one = partial(scored, name=asked.name, power=asked.power)
        for part in pool.imap_unordered(one, given, chunksize=2):
            score.add(part)
    print(json.dumps(asdict(score)))
    return 0


def _stream(row: dict[str, Any]) -> Stream:
    labels = [Label(**label) for label in row["labels"]]
    return Stream(**{**row, "labels": labels, "kinds": tuple(row["kinds"])})


if __name__ == "__main__":
    sys.exit(main())
