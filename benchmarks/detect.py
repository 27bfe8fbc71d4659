"""The detector beside published methods and plain rules, on labelled streams.

    .venv/bin/python benchmarks/detect.py [DATA] [--count N] [--seed N] [--seeds N] [--jobs N]
                                          [--python PATH]... [--only-gpud] [--kinds]
    .venv/bin/python benchmarks/detect.py --paces [--count N] [--seed N] [--jobs N]

DATA, or ``$GPUD_DETECT_DATA``, is a folder of *.jsonl with recorded and made streams; without one
only streams generated here are judged: a mixed set, and worlds of one kind each. Anchors are asked
where their libraries are, here or with the interpreters that ``--python`` names
(detection/anchors.py says how to make one); those found nowhere are shown with the figures
recorded for them. Every target of the detector is printed with whether it is met. ``--kinds``: the
detector on every kind of stream alone, and on all but those. ``--paces``: how long it takes and how
often it is wrong with a sample every minute and every ten (detection/paces.py), with N streams for
each change, and what several samples in a round are worth. Exit code 1 when it looks ahead.
"""

from __future__ import annotations

import argparse
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
from benchmarks.detection.beside import ask
from benchmarks.detection.made import DAY_S, streams, week
from benchmarks.detection.paces import (
    CHANGES,
    NULL,
    RHYTHMS,
    Change,
    Row,
    Samples,
    lines,
    paced,
    row,
    whole,
)
from benchmarks.detection.score import Score, judged, looked_ahead, recorded, visible
from benchmarks.detection.worlds import WORLDS, worlds
from gpud.agent.regression.detector import ENCODER, Detector, Direction, Observation
from gpud.agent.regression.detector.stream import UNRECORDED
from gpud.core.sample import Flag

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.pool import Pool as PoolOf

    from benchmarks.detection.made import Stream

GPUD = "gpud"
PER_SEED = 12
"""Streams of a world."""
TEN_MINUTES_S = 600
ROUND_CHANGES = (
    *(Change("driver", effect) for effect in (0.08, 0.10, 0.15)),
    Change("step", 0.10),
    NULL,
)
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
    """Judge with the object that the agent feeds: what ``detect`` gives, and the intervals."""
    judge = Detector(Direction(stream.direction))
    found = []
    rows = zip(stream.timestamps, stream.values, stream.context, flags, strict=True)
    for at_s, value, driver, mark in rows:
        given = (Flag(mark),) if mark else ()
        alarm = judge.push(Observation(at_s, value, driver or UNRECORDED, given))
        if alarm is not None:
            effect = alarm.effect
            found.append(
                {
                    "index": alarm.seq,
                    "change_index": alarm.since_seq,
                    "ratio": effect.ratio,
                    "low": effect.low,
                    "high": effect.high,
                }
            )
    return found


def one(stream: Stream, *, power: bool, check: bool) -> Score:
    """Score the detector on one stream."""
    flags = visible(stream, power=power)
    started = time.process_time()
    alarms = gpud(stream, flags)
    spent = time.process_time() - started
    score = judged(stream, alarms)
    score.seconds = spent
    if check:
        score.lookahead = looked_ahead(gpud, stream, power=power)
    return score


def ours(pool: PoolOf, given: list[Stream], *, power: bool) -> tuple[Score, list[Score]]:
    """Score the detector on a set: all of it, and each stream."""
    each = pool.map(partial(one, power=power, check=False), given, chunksize=2)
    score = Score()
    for part in each:
        score.add(part)
    for part in pool.map(partial(one, power=power, check=True), given[::CHECKED], chunksize=1):
        score.lookahead += part.lookahead
    return score, each


def others(given: list[Stream], title: str, *, power: bool, pythons: list[str], jobs: int) -> None:
    """Print every anchor on a set."""
    for name in anchors():
        score = ask([sys.executable, *pythons], name, given, power=power, jobs=jobs)
        if score is not None:
            print(f"{name:<22}{shown(score)}", flush=True)
        elif (name, title) in RECORDED:
            p, r, f1, delay, false, null = RECORDED[name, title]
            figures = f"{p:6.2f} {r:6.2f} {f1:6.2f} {delay:7.1f} {'':7} {false:9.3f} {null:>7}"
            print(f"{name:<22}{figures}  recorded, not run")
        else:
            print(f"{name:<22}  not installed: see benchmarks/detection/anchors.py")


def by_kind(given: list[Stream], each: list[Score]) -> None:
    """Print the detector on each kind of stream alone, and on all but those.

    No number is fitted to a stream here, so to leave a kind out only shows what rests on it.
    """
    for kind in sorted({kind for stream in given for kind in stream.kinds}):
        alone, rest = Score(), Score()
        for stream, score in zip(given, each, strict=True):
            (alone if kind in stream.kinds else rest).add(score)
        print(f"  {kind:<30}{shown(alone)}")
        print(f"  {'  all but these':<30}{shown(rest)}")


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
                size = len(ENCODER.encode(judge))
                largest = max(largest, size)
        spent += time.process_time() - started
        samples += len(pushed)
    print(f"\na week of ten streams: {samples} samples in {spent:.1f} s of one core (<= 120)")
    print(
        f"    {1000 * spent / samples:.3f} ms a sample; a saved state has at most {largest} bytes"
    )


def at_pace(change: Change, number: int, rhythm: str, samples: Samples | None = None) -> Row:
    """Score the detector on one stream of a pace; the slow power state is marked."""
    made = paced(RHYTHMS[rhythm], change, str(number), samples)
    return row(made, judged(made.stream, gpud(made.stream, visible(made.stream, power=True))))


def of_changes(  # one table has that many sides
    pool: PoolOf,
    changes: Sequence[Change],
    numbers: range,
    rhythm: str,
    samples: Samples | None = None,
) -> dict[Change, Row]:
    """Score the detector on some streams of each change."""
    jobs = [(change, number, rhythm, samples) for change in changes for number in numbers]
    rows = {change: Row() for change in changes}
    for job, scored in zip(jobs, pool.starmap(at_pace, jobs, chunksize=4), strict=True):
        rows[job[0]].add(scored)
    return rows


def paces(pool: PoolOf, numbers: range) -> None:
    """Print the table of each pace, that of worlds every ten minutes, and that of rounds."""
    for rhythm in RHYTHMS:
        some = numbers if RHYTHMS[rhythm].spacing_s >= TEN_MINUTES_S else numbers[::2]
        print(f"\n{rhythm}: {len(some)} streams a change", flush=True)
        print(*lines(of_changes(pool, CHANGES, some, rhythm)), sep="\n", flush=True)
    for world in WORLDS:
        if WORLDS[world].spacings_s != (DAY_S,):
            given = list(worlds(world, len(numbers), numbers.start, TEN_MINUTES_S))
            score, _ = ours(pool, given, power=bool(WORLDS[world].states))
            week = score.false / score.samples * 7 * DAY_S / TEN_MINUTES_S
            print(
                f"{world + ', every 10 minutes':<45}{shown(score)}  a week {week:.2f}", flush=True
            )
    print("\nsamples in a round, share between contexts, noise: hours (median, p90)")
    for size in (0.03, 0.06):
        for between in (0.2, 0.5, 0.8):
            for count in (1, 2, 3, 5):
                samples = Samples(count, between, size)
                rows = of_changes(pool, ROUND_CHANGES, numbers, "every 10 minutes", samples)
                delays = "  ".join(
                    f"{change.cause} {change.effect:+.0%} {found.delay(0.5):4.1f}"
                    f" {found.delay(0.9):4.1f}"
                    for change, found in rows.items()
                    if change.effect
                )
                every = whole(rows)
                tail = f"P {every.score.precision:.2f}  a week {every.a_week:.3f}"
                print(f"{count}  {between:.2f}  {size:.2f}  {delays}  {tail}", flush=True)


def sets(asked: argparse.Namespace) -> Iterator[tuple[str, list[Stream], list[Stream], bool]]:
    """Give every set by its title: its streams, those that anchors judge, whether power is known.

    Anchors take minutes for what takes the detector seconds, so of worlds they get one seed.
    """
    given = list(streams(asked.count, asked.seed))
    if asked.data:
        given += recorded(asked.data)
    for part in ("made", "recorded", "generated"):
        chosen = [stream for stream in given if stream.part == part]
        for power in (False, True) if part != "recorded" and chosen else (False,):
            yield f"{part}, power" if power else part, chosen, chosen, power
    for world in WORLDS:
        seeds = range(asked.seed, asked.seed + asked.seeds)
        made = [list(worlds(world, PER_SEED, seed)) for seed in seeds]
        for power in (False, True) if WORLDS[world].states else (False,):
            title = f"{world}, power" if power else world
            yield (
                title,
                [stream for part in made for stream in part],
                made[0] if made else [],
                power,
            )


def main() -> int:
    """Print a table for each set of streams."""
    parser = argparse.ArgumentParser(description="the detector beside others")
    parser.add_argument("data", nargs="?", default=os.environ.get("GPUD_DETECT_DATA"), type=Path)
    parser.add_argument("--count", type=int, default=160, help="streams to generate")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--seeds", type=int, default=5, help="of each world, 12 streams a seed")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--python", action="append", default=[], help="where anchors are installed")
    parser.add_argument("--only-gpud", action="store_true")
    parser.add_argument("--kinds", action="store_true")
    parser.add_argument("--paces", action="store_true")
    asked = parser.parse_args()
    ahead, intervals = 0, Score()
    head = ("P", "R", "F1", "delay", "driver", "FA/1000", "null", "ms/sample")
    widths = (6, 6, 6, 7, 7, 9, 7, 9)
    titles = " ".join(f"{title:>{width}}" for title, width in zip(head, widths, strict=True))
    if asked.paces:
        with Pool(asked.jobs) as pool:
            paces(pool, range(asked.seed, asked.seed + asked.count))
        return 0
    with Pool(asked.jobs) as pool:
        for title, chosen, fewer, power in sets(asked):
            if not chosen:
                continue
            samples = sum(len(stream.values) for stream in chosen)
            print(f"\n{title}: {len(chosen)} streams, {samples} samples")
            print(f"{'':<22}{titles}")
            score, each = ours(pool, chosen, power=power)
            print(f"{GPUD:<22}{shown(score)}", flush=True)
            ahead += score.lookahead
            intervals.add(score)
            if not asked.only_gpud:
                if len(fewer) < len(chosen):
                    print(f"  {len(fewer)} of them:")
                others(fewer, title, power=power, pythons=asked.python, jobs=asked.jobs)
            against(title, score)
            if asked.kinds:
                by_kind(chosen, each)
    told, right = intervals.intervals, intervals.intervals_right
    print(f"\nthe interval of an effect held the true one {right} times of {told}")
    week_of_ten()
    return 1 if ahead else 0


if __name__ == "__main__":
    sys.exit(main())
