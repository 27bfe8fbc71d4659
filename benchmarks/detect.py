"""The detector beside published methods and plain rules, on labelled streams.

    .venv/bin/python benchmarks/detect.py [DATA] [--count N] [--seed N] [--jobs N] [--only-gpud]

DATA, or ``$GPUD_DETECT_DATA``, is a folder of *.jsonl with recorded and made streams; without one
only streams generated here are judged. Anchors whose libraries are missing are shown with the
figures recorded for them; detection/anchors.py says how to install them. Every target of the
detector is printed with whether it is met. Exit code 1 when the detector looks ahead.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.detection.anchors import RECORDED, anchors
from benchmarks.detection.made import streams, week
from benchmarks.detection.score import Score, judged, looked_ahead, recorded, visible
from gpud.core.detector import Detector, Direction, Observation, detect, saved
from gpud.core.sample import Flag

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.pool import Pool as PoolOf

    from benchmarks.detection.made import Stream

GPUD = "gpud"
CHECKED = 10
"""Streams of each set on which it is asked whether the detector looks ahead: one in so many."""
TARGETS: dict[str, dict[str, tuple[str, float]]] = {
    "made": {
        "precision": (">=", 0.80),
        "recall": (">=", 0.90),
        "false_per_1000": ("<=", 0.10),
        "null_share": ("<=", 0.05),
        "driver_delay": ("<=", 30),
        "delay": ("<=", 100),
        "driver_error": ("<=", 0.05),
        "ms_per_sample": ("<=", 1.0),
    },
    "made, power": {
        "precision": (">=", 0.95),
        "recall": (">=", 0.90),
        "false_per_1000": ("<=", 0.025),
        "null_share": ("<=", 0.02),
        "driver_delay": ("<=", 30),
        "driver_error": ("<=", 0.05),
        "ms_per_sample": ("<=", 1.0),
    },
    "recorded": {
        "precision": (">=", 0.85),
        "recall": (">=", 0.65),
        "false_per_1000": ("<=", 0.10),
        "null_share": ("<=", 0.0),
        "delay": ("<=", 15),
        "ms_per_sample": ("<=", 1.0),
    },
}


def gpud(stream: Stream, flags: Sequence[str]) -> list[dict[str, Any]]:
    """Judge with the object that the agent feeds."""
    found = detect(stream.timestamps, stream.values, stream.context, stream.direction, flags=flags)
    return [dict(one) for one in found]


def one(stream: Stream, *, name: str, power: bool, check: bool) -> Score:
    """Score one detector on one stream."""
    judge = gpud if name == GPUD else anchors()[name]
    assert judge is not None
    started = time.process_time()
    alarms = judge(stream, visible(stream, power=power))
    spent = time.process_time() - started
    score = judged(stream, alarms)
    score.seconds = spent
    if check:
        score.lookahead = looked_ahead(judge, stream, power=power)
    return score


def total(pool: PoolOf, given: list[Stream], name: str, *, power: bool) -> Score:
    """Score one detector on a set."""
    ask = partial(one, name=name, power=power, check=False)
    score = Score()
    for part in pool.imap_unordered(ask, given, chunksize=2):
        score.add(part)
    if name == GPUD:
        again = partial(one, name=name, power=power, check=True)
        for part in pool.imap_unordered(again, given[::CHECKED]):
            score.lookahead += part.lookahead
    return score


def shown(score: Score) -> str:
    """Write one line of the table."""
    driver = median(score.driver_delays) if score.driver_delays else math.nan
    return (
        f"{score.precision:6.2f} {score.recall:6.2f} {score.f1:6.2f} {score.delay:7.1f}"
        f" {driver:7.1f} {score.false_per_1000:9.3f} {f'{score.null_alarms}/{score.nulls}':>7}"
        f" {1000 * score.seconds / max(1, score.samples):9.3f}"
    )


def figures(score: Score) -> dict[str, float]:
    """Give what targets are about."""
    return {
        "precision": score.precision,
        "recall": score.recall,
        "false_per_1000": score.false_per_1000,
        "null_share": score.null_alarms / score.nulls if score.nulls else 0.0,
        "driver_delay": median(score.driver_delays) if score.driver_delays else math.nan,
        "delay": score.delay,
        "driver_error": math.expm1(median(score.driver_errors)) if score.driver_errors else 0.0,
        "ms_per_sample": 1000 * score.seconds / max(1, score.samples),
    }


def against(name: str, score: Score) -> None:
    """Print each target of a set and whether it is met."""
    got = figures(score)
    for figure, (sign, wanted) in TARGETS.get(name, {}).items():
        met = got[figure] >= wanted if sign == ">=" else got[figure] <= wanted
        print(f"    {figure:<16} {got[figure]:8.3f} {sign} {wanted:<6} {said(met=met)}")
    ahead = score.lookahead
    print(f"    {'looks ahead':<16} {ahead:8d} == {0:<6} {said(met=ahead == 0)}")


def said(*, met: bool) -> str:
    """Put into words what became of a target."""
    return "met" if met else "NOT MET"


def week_of_ten() -> None:
    """Print what a week of ten streams at one sample a minute costs one core, and the state."""
    spent, samples, largest = 0.0, 0, 0
    for stream in week(10, seed=1):
        judge = Detector(Direction(stream.direction))
        rows = zip(
            stream.timestamps,
            stream.values,
            stream.context,
            visible(stream, power=True),
            strict=True,
        )
        pushed = [Observation(t, v, c, (Flag(f),) if f else ()) for t, v, c, f in rows]
        started = time.process_time()
        for at, observation in enumerate(pushed):
            judge.push(observation)
            if at % 1000 == 0:
                size = len(json.dumps(saved(judge), separators=(",", ":")))
                largest = max(largest, size)
        spent += time.process_time() - started
        samples += len(pushed)
    print(f"\na week of ten streams: {samples} samples in {spent:.1f} s of one core (<= 120)")
    print(
        f"    {1000 * spent / samples:.3f} ms a sample; a saved state has at most {largest} bytes"
    )


def main() -> int:
    """Print a table for each set of streams."""
    parser = argparse.ArgumentParser(description="the detector beside others")
    parser.add_argument("data", nargs="?", default=os.environ.get("GPUD_DETECT_DATA"), type=Path)
    parser.add_argument("--count", type=int, default=160, help="streams to generate")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only-gpud", action="store_true")
    asked = parser.parse_args()
    given = list(streams(asked.count, asked.seed))
    if asked.data:
        given += recorded(Path(asked.data))
    ahead = 0
    head = ("P", "R", "F1", "delay", "driver", "FA/1000", "null", "ms/sample")
    widths = (6, 6, 6, 7, 7, 9, 7, 9)
    titles = " ".join(f"{title:>{width}}" for title, width in zip(head, widths, strict=True))
    with Pool(asked.jobs) as pool:
        for part in ("made", "recorded", "generated"):
            chosen = [stream for stream in given if stream.part == part]
            for power in (False, True) if part != "recorded" else (False,):
                name = f"{part}, power" if power else part
                if not chosen:
                    continue
                samples = sum(len(stream.values) for stream in chosen)
                print(f"\n{name}: {len(chosen)} streams, {samples} samples")
                print(f"{'':<22}{titles}")
                ours = total(pool, chosen, GPUD, power=power)
                print(f"{GPUD:<22}{shown(ours)}", flush=True)
                ahead += ours.lookahead
                for other, rule in () if asked.only_gpud else anchors().items():
                    if rule is not None:
                        print(
                            f"{other:<22}{shown(total(pool, chosen, other, power=power))}",
                            flush=True,
                        )
                    elif (other, name) in RECORDED:
                        p, r, f1, delay, false, null = RECORDED[other, name]
                        print(
                            f"{other:<22}{p:6.2f} {r:6.2f} {f1:6.2f} {delay:7.1f} {'':7}"
                            f" {false:9.3f} {null:>7}  recorded, not run"
                        )
                against(name, ours)
    week_of_ten()
    return 1 if ahead else 0


if __name__ == "__main__":
    sys.exit(main())
