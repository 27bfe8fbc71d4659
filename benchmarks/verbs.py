"""How long every verb that only looks takes to its first byte, and to its end.

    .venv/bin/python benchmarks/verbs.py [--trials 10] [--runs 20000]

The budgets: 150 ms to the first byte; `status` ends within 0.61 of the time that it takes in 0.1.0,
`version` within 0.40 (80 of 131 and 50 of 124 ms on one machine). A made-up document of one GPU, a
history of so many runs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpud.agent.history import retention
from gpud.agent.history.store import Store
from tests.histories import done, run
from tests.terminals import window
from tests.verbs import homes
from tests.verbs.homes import gpud

VERBS = (
    ("version",),
    ("--help",),
    ("status",),
    ("status", "--json"),
    ("status", "--short"),
    ("alerts",),
    ("baseline", "show"),
    ("history", "--probe", "launch"),
    ("logs",),
    ("config", "show"),
    ("completion", "bash"),
)


def timed(argv: list[str]) -> tuple[float, float]:
    """Give the seconds to the first byte on a terminal, and to the end."""
    begun = time.monotonic()
    with window(argv) as shown:
        shown.expect(".")
        first = time.monotonic() - begun
        shown.ended()
    return first, time.monotonic() - begun


def cpu_s(argv: list[str]) -> float:
    """Give the CPU time of a whole run: that of the machine's other work is not in it."""
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as started:
        _, status, usage = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


def made(home: Path, runs: int) -> None:
    """Make a home in which something runs, was measured and was said."""
    homes.running(home, homes.well())
    state, log = home / "var/lib/gpud", home / "var/log/gpud/agent/agent.log"
    for folder in (state, log.parent):
        folder.mkdir(parents=True)
    now_s = time.time()
    with closing(Store(state)) as store:
        store.append([run(now_s - 30 * (runs - n), 1e-5) for n in range(runs)])
        done(store, retention.roll_up)  # as the agent does once an hour
    line = '{"event": "x", "level": "info", "timestamp": "2026-01-01T00:00:00Z", "n": 1}\n'
    log.write_text(line * 50_000)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--runs", type=int, default=20_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        made(home, given.runs)
        bare = [timed([sys.executable, "-I", "-c", "print()"])[0] for _ in range(given.trials)]
        print(f"{'python alone':<52} first byte {1e3 * median(bare):4.0f} ms")
        for words in VERBS:
            times = [timed(gpud(home, *words)) for _ in range(given.trials)]
            first, last = (1e3 * median(column) for column in zip(*times, strict=True))
            cpu = 1e3 * median(cpu_s(gpud(home, *words)) for _ in range(given.trials))
            shown = f"first byte {first:4.0f} ms, end {last:4.0f} ms, CPU {cpu:4.0f} ms"
            print(f"{' '.join(words):<52} {shown}")


if __name__ == "__main__":
    main()
