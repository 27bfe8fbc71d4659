"""deploy/chaos: faults by the hundred for a whole gpud, and a table of what came of them.

Needs root, dockerd, and a /usr/bin/python3 of the version of .venv. Each trial is one or two faults
at random moments in a distribution that looks like WSL2. docs/reliability.md has what must hold.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.chaos import faults
from tests.chaos.distribution import distribution, layer
from tests.chaos.trial import Record, Trial, plan, ready, replay, run, shrink

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="deploy/chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--seed", type=int, help="repeats a round; without it one is drawn, and printed")
    add("--minutes", type=float, default=10.0, help="no trial begins after these (10)")
    add("--only", metavar="CLASS[,CLASS]", help="these classes of faults: %(metavar)s")
    add("--resume", type=Path, metavar="FILE", help="add to this table what its seed still lacks")
    add("--replay", metavar="NUMBER[,NUMBER]", help="run these trials of the seed, and no other")
    add("--table", type=Path, metavar="FILE", help="print what a table holds, and end")
    add("--no-shrink", action="store_true", help="do not look for the shortest failing sequence")
    return parser.parse_args(words)


def rows(path: Path | None) -> list[dict[str, Any]]:
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def main() -> int:
    chosen = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # nothing is left behind
    if chosen.table:
        if not chosen.table.exists():
            print(f"deploy/chaos: there is no {chosen.table}")
            return 2
        print("\n".join(summary(rows(chosen.table))))
        return 0
    classes = faults.classes()
    names = chosen.only.split(",") if chosen.only else list(classes)
    if unknown := set(names) - set(classes):
        print(f"deploy/chaos: no such class: {', '.join(sorted(unknown))}: {', '.join(classes)}")
        return 2
    seed = time.time_ns() % 1_000_000 if chosen.seed is None else chosen.seed
    print(f"seed {seed}, {len(names)} classes", flush=True)
    trials = plan(seed, {name: classes[name] for name in sorted(names)})
    with layer() as below:
        if chosen.replay:
            numbers = [int(number) for number in chosen.replay.split(",")]
            if max(numbers) >= len(trials):
                print(f"deploy/chaos: seed {seed} has trials 0 to {len(trials) - 1}")
                return 2
            return report(replay([trials[number] for number in numbers], below))
        return endure(trials, chosen, below)


def endure(trials: Sequence[Trial], chosen: argparse.Namespace, below: Path) -> int:
    """Run the trials that the table lacks until time is over; a failure gets a fresh machine."""
    done = {(row["trial"]["seed"], row["trial"]["number"]) for row in rows(chosen.resume)}
    deadline_s, failures = time.monotonic() + 60.0 * chosen.minutes, 0
    todo = [trial for trial in trials if (trial.seed, trial.number) not in done]
    while todo and time.monotonic() < deadline_s:
        before: list[Trial] = []
        for record in endured(todo, deadline_s, below):
            before.append(todo.pop(0))
            if chosen.resume:
                with chosen.resume.open("a") as table:
                    table.write(json.dumps(record.as_json()) + "\n")
            failures += report(record)
        if before and record.broken and not chosen.no_shrink:
            before = list(shrink(before, below))
        if before and record.broken:
            only = f" --only {chosen.only}" if chosen.only else ""
            numbers = ",".join(str(trial.number) for trial in before)
            print(
                f"again: deploy/chaos --seed {before[0].seed}{only} --replay {numbers}", flush=True
            )
    return min(failures, 1)


def endured(todo: Sequence[Trial], deadline_s: float, below: Path) -> Iterator[Record]:
    """Run trials on one machine, up to the first that fails."""
    with distribution(below) as distro:
        witness = ready(distro)
        for trial in tuple(todo):
            if time.monotonic() > deadline_s:
                return
            record = run(trial, distro, witness)
            yield record
            if record.broken:
                return


def report(record: Record) -> int:
    """Print a record; 1 for a failure."""
    trial = record.trial
    times = [
        f"{word} after {value:.1f} s"
        for word, value in (("named", record.named_s), ("well", record.well_s))
        if value is not None
    ]
    print(
        f"{trial.number:4d} {' + '.join(trial.faults)}: {', '.join(times)}"
        + (f", {record.lost_runs} runs set aside" if record.lost_runs else "")
        + "".join(f"\n     BROKEN {words}" for words in record.broken),
        flush=True,
    )
    return 1 if record.broken else 0


def summary(table: Sequence[dict[str, Any]]) -> list[str]:
    """Lines of Markdown: how often each class was tried, alone and in pairs."""
    known = faults.load()
    by_class: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in table:
        for name in row["trial"]["faults"]:
            by_class[known[name].of].append(row)
    lines = [
        "| Class | Alone | Named after | Well after | In pairs |",
        "|---|---|---|---|---|",
    ]
    for name, rows_of_it in sorted(by_class.items()):
        alone = [row for row in rows_of_it if len(row["trial"]["faults"]) == 1]
        pairs = [row for row in rows_of_it if len(row["trial"]["faults"]) > 1]
        cells = [
            f"`{name}`",
            _count(alone),
            _times(row["named_s"] for row in alone),
            _times(row["well_s"] for row in alone),
            _count(pairs),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _count(trials: Sequence[dict[str, Any]]) -> str:
    well = sum(not row["broken"] for row in trials)
    return str(len(trials)) if well == len(trials) else f"{len(trials)}, {well} well"


def _times(values: Iterator[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.1f} s ({max(known):.1f} s)" if known else ""


if __name__ == "__main__":
    sys.exit(main())
