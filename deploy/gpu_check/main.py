"""The command: read the arguments, build, run both sides in turns, judge, write it down."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpud.core.text import escaped

from . import compare, machine, report, toolchain, turns
from .processes import Child, Reference, Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from . import sanitize, tools

RESULTS = machine.ROOT / "docs" / "results"
PAIRS, QUICK_PAIRS = 5, 2
SECONDS = 420.0
SANITIZER_S = 90.0
"""What is kept free at the end for compute-sanitizer and the other tools."""

EXIT_CODES = """
exit codes: 0 every target holds, 1 one does not or could not be measured (the table is printed
all the same), 2 this machine cannot be checked or the command line makes no sense
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    given = _arguments(sys.argv[1:] if arguments is None else list(arguments))
    try:
        return _check(given)
    except Refused as error:
        print(f"gpu-check: {escaped(str(error), lines=True)}", file=sys.stderr)
        return 2


def _check(given: argparse.Namespace) -> int:
    begun = time.monotonic()
    date = datetime.now(UTC).isoformat(timespec="seconds")
    rows = _rows(given.only)
    nvcc = None if given.module else toolchain.nvcc_path(given.nvcc)
    child = Child(given.library)
    there = child.inventory()
    device, library = _device(there["devices"], given.gpu), there["library"]
    capability, uuid = device["compute_capability"], device["uuid"]
    conditions = {"before": machine.condition(uuid)}
    cublas = toolchain.cublas_path(given.cublas)
    kernels = None
    other: tools.Figures = {}
    absent: dict[str, str] = {}
    checked: list[sanitize.Checked] = []
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        program = toolchain.build_program(Path(folder))
        own = Reference(program, turns.own_modules(capability), turns.OWN_PREFIX, library)
        theirs = Reference(program, tuple(given.module), given.prefix, library)
        if nvcc is not None:
            _say(f"compiling for {device['name']}, compute capability {capability}")
            kernels = toolchain.build_kernels(Path(folder), nvcc, capability)
            theirs = replace(theirs, modules=(kernels.module,), prefix="ref_")
        with_own = not given.quick and theirs.prefix != own.prefix
        specs = {spec["name"]: spec for spec in child.specs()}
        best = replace(theirs, cublas=cublas) if cublas and not given.quick else None
        sides = turns.Sides(uuid, specs, child, theirs, own if with_own else None, best)
        rounds, pairs = turns.run(sides, _plan(given, rows, begun), _say)
        if not given.quick:
            _say("other tools")
            other, absent = turns.other_tools(uuid, rounds)
            _say("compute-sanitizer")
            checked, why = turns.sanitized(uuid, own)
            absent |= {"compute-sanitizer": why} if why else {}
    conditions["after"] = machine.condition(uuid)
    if cublas is None:
        absent["cuBLAS"] = "no libcublas.so was found; --cublas names one"
    facts = {
        "date": date,
        "command": machine.program(given.command),
        "machine": machine.facts(device, there["cuda_version"]),
        "conditions": conditions,
        "pairs": pairs,
        "pairs_wanted": given.pairs,
        "seconds": round(time.monotonic() - begun, 1),
        "nvcc": kernels.nvcc if kernels else None,
        "kernels": kernels.resources if kernels else {},
        "cublas": cublas,
    }
    modes = {name: spec["modes"] for name, spec in specs.items()}
    found = report.Found(
        facts=facts,
        rows=[compare.judged(row, rounds, other) for row in rows],
        rounds=rounds,
        tools=other,
        tools_absent=absent,
        without_reference=compare.unmatched(modes),
        sanitized=checked,
    )
    return _told(found, given.out)


def _told(found: report.Found, out: Path) -> int:
    """Print the table, write the files, give the exit code."""
    print(report.table(found.rows), "", *report.beside(found), sep="\n")
    print("\n".join(report.sanitizer_lines(found.sanitized)))
    try:
        files = report.written(out, found)
    except OSError as error:
        raise Refused(f"--out {out}: {error.strerror}") from error
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
        until=begun + given.seconds - reserved,
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


def _device(devices: Sequence[dict[str, Any]], wanted: str) -> dict[str, Any]:
    """Choose the GPU by index or UUID. ``Errors: Refused``, saying which there are."""
    for device in devices:
        if wanted in {str(device["index"]), device["uuid"]}:
            return device
    there = ", ".join(f"{device['index']} ({device['uuid']})" for device in devices)
    raise Refused(f"--gpu {wanted}: there is no such GPU; there are {there}")


def _say(text: str) -> None:
    print(f"gpu-check: {text}", file=sys.stderr, flush=True)


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="deploy/gpu-check",
        description="Hold gpud's probes against C programs on the NVIDIA GPU of this machine.",
        epilog=EXIT_CODES,
    )
    add = parser.add_argument
    add("--quick", action="store_true", help=f"{QUICK_PAIRS} pairs, no other tools, no sanitizer")
    add("--pairs", type=_positive, help=f"pairs of runs ({PAIRS})")
    add(
        "--seconds",
        type=float,
        default=SECONDS,
        help="begin no pair that would end later (%(default)g)",
    )
    add("--only", action="append", default=[], metavar="PROBE", help="one probe; repeatable")
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
