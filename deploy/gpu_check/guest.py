"""The mode --guest: what gpud costs others on this GPU, and what others do to its figures.

Four parts, by ``--only``; the one that may leave the driver in disorder is the last.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING, Any

from . import clocks, machine, report, spread, workload
from .prepared import Study, prepare
from .processes import Refused, finished, wsl

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path

    from .contexts import Contexts

CONTEXTS = 500
WORKLOAD_S = 600.0
SCHEMA_VERSION = 1


def study(
    given: argparse.Namespace, folder: Path, counted: Contexts, say: Callable[[str], None]
) -> int:
    """Do the parts; print the page, write it beside the document. Errors: ``Refused``."""
    if unknown := [name for name in given.only if name not in PARTS]:
        raise Refused(f"--only {unknown[0]}: --guest has these parts: {', '.join(PARTS)}")
    begun = time.monotonic()
    date = datetime.now(UTC).isoformat(timespec="seconds")
    there = prepare(given, folder, counted, say)
    before = machine.condition(there.uuid)
    parts: dict[str, dict[str, Any]] = {}
    with clocks.followed(there.uuid) as following:
        seconds = given.seconds or WORKLOAD_S
        common = Study(there, folder, given.seed, seconds, following, say)
        for name, part in PARTS.items():
            if not given.only or name in given.only:
                try:
                    parts[name] = part(common)
                except Refused as error:
                    parts[name] = {"not_run": str(error)}
    document = {
        "schema_version": SCHEMA_VERSION,
        "date": date,
        "command": machine.program(given.command),
        "machine": machine.facts(there.device, there.cuda_version),
        "conditions": {"before": before, "after": machine.condition(there.uuid)},
        "seconds": round(time.monotonic() - begun, 1),
        "parts": parts,
    }
    words = page(document)
    print(words, end="")
    stem = f"{date[:10]}-{report.slug(there.device['name'])}-guest"
    say(" and ".join(report.kept(given.out, stem, document, words)))
    ran = all("not_run" not in part for part in parts.values())
    return 0 if ran and verdict(parts) == "held" else 1


def verdict(parts: dict[str, dict[str, Any]]) -> str:
    """Give what came of the one target there is."""
    found: str = parts.get("workload", {}).get("effect", {}).get("verdict", "held")
    return found


def compared(study: Study) -> dict[str, Any]:
    """Run probes several times in each of several contexts."""
    return {name: asdict(each) for name, each in spread.contexts_compared(study).items()}


def contexts(study: Study) -> dict[str, Any]:
    """Make and give back contexts, one after the other. ``Errors: Refused`` for a guest's sake."""
    there = study.there
    if wsl():
        raise Refused("in WSL2 a few hundred contexts are all that one boot has")
    if reason := machine.other_users(there.uuid):
        raise Refused(reason)
    study.say(f"{CONTEXTS} contexts, one after the other")
    there.own.contexts.add(CONTEXTS)
    command = there.own.command(there.uuid, "--contexts", str(CONTEXTS))
    ended = finished(command, "")
    try:
        counted: dict[str, Any] = json.loads(ended.stdout)
    except ValueError as error:
        words = ended.stderr.strip()[-2000:]
        raise Refused(f"the count of contexts ended with {ended.returncode}: {words}") from error
    return {"wanted": CONTEXTS, **counted}


PARTS = {
    "spread": compared,
    "changes": spread.changes,
    "workload": workload.measured,
    "contexts": contexts,
}


def page(document: dict[str, Any]) -> str:
    """Say in words what the document says."""
    facts = {**document, "nvcc": "gpud's own kernels"}
    lines = [
        f"# {report.plain(document['machine']['gpu']['name'])}, {document['date'][:10]}: a guest",
        "",
        "| | |",
        "|---|---|",
        *(f"| {n} | {report.plain(text)} |" for n, text in report.circumstances(facts).items()),
    ]
    before = document["conditions"]["before"]
    lines += [
        f"| {name} | {report.plain(before.get(field, 'not told'))} |"
        for name, field in (("ECC", "ecc.mode.current"), ("Persistence", "persistence_mode"))
    ]
    write = {"spread": _spread, "changes": _changes, "workload": _workload, "contexts": _contexts}
    for name, part in document["parts"].items():
        lines += ["", f"## {TITLES[name]}", ""]
        not_run = part.get("not_run")
        lines += [f"Not run: {report.plain(not_run)}."] if not_run else write[name](part)
    return "\n".join(lines) + "\n"


TITLES = {
    "spread": "Runs within one context and in several",
    "changes": "What moves the figures",
    "workload": "A day of gpud beside a program",
    "contexts": "Contexts, one after the other",
}


def _spread(part: dict[str, Any]) -> list[str]:
    return [
        f"{spread.CONTEXTS} contexts, {spread.SAMPLES} runs of each probe in each:",
        "",
        "| Metric | Standard deviation within | between contexts | First run over later ones |",
        "|---|---|---|---|",
        *(
            f"| {metric} | {each['within']:.2%} | {each['between']:.2%} | {each['first']:.4f} |"
            for metric, each in part.items()
        ),
    ]


def _changes(part: dict[str, Any]) -> list[str]:
    lines = ["A ratio is of the medians; what is not named did not move.", ""]
    for change, ratios in part["moved"].items():
        moved = ", ".join(f"{metric} {ratio:.3f}" for metric, ratio in ratios.items())
        lines.append(f"- {change}: {moved or 'nothing moved'}.")
    for change, failures in part["failures"].items():
        lines.append(f"- {change}, without a figure: {report.plain('; '.join(failures))}.")
    lines += ["", "Highest clocks of each round:", ""]
    for change, rounds in part["clocks"].items():
        told = "; ".join(filter(None, map(report.readings, rounds)))
        lines.append(f"- {change}: {told or 'not told'}.")
    return lines


def _workload(part: dict[str, Any]) -> list[str]:
    effect, count, schedule = part["effect"], len(part["slices"]), json.dumps(part["schedule"])
    seen, times = part["seen"], part["pace"]
    lines = [
        f"{count} slices of {part['slice_s']:g} s, half of them with gpud's agent: {schedule}.",
        "",
        f"- Products by {report.plain(part['kernel'])}.",
        f"- Slower beside gpud by {_interval(seen)}; gpud ran {times:.3g} times its usual probes.",
        f"- At its usual pace: {_interval(effect)}.",
        f"- Target at most {effect['target']:.1%}: {effect['verdict']}.",
    ]
    return lines + [f"- {name}: {value:g}" for name, value in part["gpud"].items()]


def _interval(effect: dict[str, float]) -> str:
    low, high = effect["low"], effect["high"]
    return f"{effect['mean']:.4%} (95 % interval: {low:.4%} to {high:.4%})"


def _contexts(part: dict[str, Any]) -> list[str]:
    lines = [f"- {part['made']} of {part['wanted']} contexts were made and given back."]
    if part["code"]:
        lines.append(f"- Then {part['function']} refused with {part['code']}.")
    if part["seconds"]:
        taken = part["seconds"]
        first, last = part["free_bytes"]
        lines.append(
            f"- Each took {median(taken):.4f} s, the first {taken[0]:.4f} s, the last "
            f"{taken[-1]:.4f} s; free memory went from {first} to {last} bytes."
        )
    return lines
