"""The command: read the arguments, build, run both sides in turns, judge, write it down."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.core.text import escaped

from . import clocks, compare, guest, machine, report, tools, turns
from .contexts import Contexts
from .prepared import Prepared, prepare
from .processes import Hung, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from . import sanitize

ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
RESULTS = machine.ROOT / "docs" / "results"
PAIRS, QUICK_PAIRS = 5, 2
SECONDS = 420.0
SANITIZER_S = 90.0
"""What is kept free at the end for compute-sanitizer and the other tools."""
COPY_BYTES = 64 << 20

EXIT_CODES = """
exit codes: 0 every target holds, 1 one does not or could not be measured (the table is printed
all the same), 2 this machine cannot be checked, its driver hangs, or the command line makes no
sense, 129, 130 and 143 ended by a closed terminal, Ctrl-C or SIGTERM
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. What it writes beside the results is in one folder, gone in the end."""
    given = _arguments(sys.argv[1:] if arguments is None else list(arguments))
    for number in ENDING:
        signal.signal(number, _interrupted)
    contexts = Contexts(_say)
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        os.environ["CUDA_CACHE_PATH"] = f"{folder}/cache"  # what the driver compiles
        os.environ["PYTHONPYCACHEPREFIX"] = f"{folder}/bytecode"
        os.environ["TMPDIR"] = tempfile.tempdir = folder  # what nvcc leaves when it is ended
        try:
            work = guest.study if given.guest else _check
            return work(given, Path(folder), contexts, _say)
        except (Refused, Hung) as error:
            print(f"gpu-check: {escaped(str(error), lines=True)}", file=sys.stderr)
            return 2
        finally:
            contexts.close()


def _interrupted(number: int, _: FrameType | None) -> None:
    """End, and only once: whatever runs on the GPU ends first, see ``processes.finished``."""
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)
    _say("ends as soon as the run in progress has given the GPU back")
    raise SystemExit(128 + number)


def _check(
    given: argparse.Namespace, folder: Path, contexts: Contexts, say: Callable[[str], None]
) -> int:
    begun = time.monotonic()
    date = datetime.now(UTC).isoformat(timespec="seconds")
    rows = _rows(given.only)
    there = prepare(given, folder, contexts, say)
    rows = [compare.on(there.device["compute_capability"], row) for row in rows]
    conditions = {"before": machine.condition(there.uuid)}
    nvbandwidth: dict[str, float] = {}
    absent: dict[str, str] = {}
    if there.alone:
        absent |= {row.probe: there.alone for row in rows if row.probe in compare.BETWEEN}
        rows = [row for row in rows if row.probe not in absent]
    if not rows:
        raise Refused(f"{', '.join(absent)}: {there.alone}")
    checked: list[sanitize.Checked] = []
    with clocks.followed(there.uuid) as following:
        sides = _sides(given, there, following)
        rounds, pairs = turns.run(sides, _plan(given, rows, begun), say)
    if not given.quick:
        nvbandwidth, absent = _other_tools(there.uuid, rounds)
        contexts.add(1 if nvbandwidth else 0)
        say("compute-sanitizer")
        checked, why = turns.sanitized(there.uuid, there.own)
        absent |= {"compute-sanitizer": why} if why else {}
    if there.cublas is None:
        absent[compare.Against.CUBLAS] = "no libcublas.so was found; --cublas names one"
    conditions["after"] = machine.condition(there.uuid)
    facts = {
        "date": date,
        "command": machine.program(given.command),
        "machine": machine.facts(there.device, there.cuda_version),
        "conditions": conditions,
        "pairs": pairs,
        "pairs_wanted": given.pairs,
        "seconds": round(time.monotonic() - begun, 1),
        "nvcc": there.nvcc,
        "kernels": there.resources,
        "cublas": there.cublas,
    }
    modes = {name: spec["modes"] for name, spec in there.specs.items()}
    asked = {compare.Against.C, compare.Against.PEAK}
    asked |= {compare.Against.CUBLAS} if sides.best else set()
    asked |= {compare.Against.NVBANDWIDTH} if nvbandwidth else set()
    found = report.Found(
        facts=facts,
        rows=[compare.judged(row, rounds, nvbandwidth) for row in rows if row.against in asked],
        rounds=rounds,
        nvbandwidth=nvbandwidth,
        tools_absent=absent,
        without_reference=compare.unmatched(modes),
        sanitized=checked,
    )
    return _told(found, given.out)


def _sides(given: argparse.Namespace, there: Prepared, following: clocks.Clocks) -> turns.Sides:
    beside = there.own if not given.quick and there.reference.prefix != there.own.prefix else None
    best = None
    if there.cublas and not given.quick:
        best = replace(there.reference, cublas=there.cublas)
    return turns.Sides(
        there.uuid, there.specs, there.child, there.reference, beside, best, following, there.peer
    )


def _other_tools(
    uuid: str, rounds: Sequence[compare.Round]
) -> tuple[dict[str, float], dict[str, str]]:
    """Ask nvbandwidth for the copies, at the size that gpud used; or say why it brought nothing."""
    used = [each.ours.conditions.get("copy_bytes") for each in rounds if each.probe == "copy"]
    if not used:
        return {}, {}
    _say("nvbandwidth")
    answer = tools.nvbandwidth(uuid, used[-1] or COPY_BYTES)
    return (answer, {}) if isinstance(answer, dict) else ({}, {compare.Against.NVBANDWIDTH: answer})


def _told(found: report.Found, out: Path) -> int:
    """Print the table, write the files, give the exit code."""
    print(report.table(found.rows), "", *report.beside(found), sep="\n")
    print("\n".join(report.sanitizer_lines(found.sanitized)))
    files = report.written(out, found)
    _say(f"{found.facts['pairs']} pairs, {found.facts['seconds']:.0f} s; {' and '.join(files)}")
    good = all(row.good for row in found.rows) and all(
        each.clean or not each.ran for each in found.sanitized
    )
    return 0 if good else 1


def _plan(given: argparse.Namespace, rows: Sequence[compare.Row], begun: float) -> turns.Plan:
    reserved = 0 if given.quick else SANITIZER_S
    return turns.Plan(
        probes=tuple(dict.fromkeys(row.probe for row in rows)),
        pairs=given.pairs,
        seed=given.seed,
        until=begun + (SECONDS if given.seconds is None else given.seconds) - reserved,
    )


def _rows(only: Sequence[str]) -> list[compare.Row]:
    """Choose the rows. ``Errors: Refused`` for a probe that no row is about."""
    known = sorted({row.probe for row in compare.ROWS})
    for name in only:
        if name not in known:
            raise Refused(
                f"--only {name}: there is nothing of that name; known: {', '.join(known)}"
            )
    return [row for row in compare.ROWS if not only or row.probe in only]


def _say(text: str) -> None:
    print(f"gpu-check: {text}", file=sys.stderr, flush=True)


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="deploy/gpu-check",
        description="Hold gpud's probes against C programs on the NVIDIA GPU of this machine.",
        epilog=EXIT_CODES,
    )
    add = parser.add_argument
    add(
        "--guest",
        action="store_true",
        help="instead: what gpud costs a program beside it, what moves its figures, and how many "
        "contexts the driver stands",
    )
    add("--quick", action="store_true", help=f"{QUICK_PAIRS} pairs, no other tools, no sanitizer")
    add("--pairs", type=_positive, help=f"pairs of runs ({PAIRS})")
    add(
        "--seconds",
        type=float,
        help=f"begin no pair that would end later ({SECONDS:g}); with --guest how long the "
        f"workload runs ({guest.WORKLOAD_S:g})",
    )
    add("--only", action="append", default=[], metavar="NAME", help="one probe or part; repeatable")
    add(
        "--gpu", default="0", metavar="INDEX|UUID", help="which GPU, in PCI bus order (%(default)s)"
    )
    add(
        "--out",
        type=Path,
        default=RESULTS,
        metavar="DIR",
        help="where the results go (docs/results)",
    )
    add("--seed", type=_positive, default=1, help="of the random data; every pair adds one")
    add("--library", default="", metavar="PATH", help="libcuda (searched for as gpud does)")
    add("--nvcc", metavar="PATH", help="NVIDIA's compiler (on PATH, or the toolkit's usual place)")
    add(
        "--module",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="kernels compiled already, instead of nvcc; repeatable",
    )
    add("--prefix", default="ref_", help="of the kernels' names in --module (%(default)s)")
    add("--cublas", metavar="PATH", help="libcublas to show beside them; none leaves it out")
    given = parser.parse_args(arguments)
    given.command = list(arguments)
    if given.pairs is None:
        given.pairs = QUICK_PAIRS if given.quick else PAIRS
    return given


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("it must be 1 or more")
    return number
