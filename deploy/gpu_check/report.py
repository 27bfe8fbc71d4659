"""What a check leaves behind: the table on the terminal, one JSON document, one page of words."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from gpud.core.stats import human
from gpud.core.text import escaped

from .compare import Verdict
from .processes import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from .compare import Judged, Round
    from .sanitize import Checked

SCHEMA_VERSION = 1
HEADINGS = ("Mode", "gpud", "Other", "Ratio", "Spread", "Target", "Verdict")
ROUNDS = ("Pair", "Probe", "First", "gpud: settled", "clocks", "C: settled", "clocks")
UNITS = {"sm_mhz": "SM MHz", "memory_mhz": "memory MHz", "celsius": "°C", "watts": "W"}
SAYS = {
    Verdict.HELD: "held",
    Verdict.MISSED: "MISSED",
    Verdict.NOT_MEASURED: "NOT MEASURED",
    Verdict.NOT_OFFERED: "not offered by this GPU",
    Verdict.NO_TARGET: "-",
}


def cells(judged: Judged) -> tuple[str, ...]:
    """One row as the table shows it."""
    ratio = judged.ratio
    ratios = judged.ratios
    return (
        judged.row.name,
        middle(judged.ours, judged.unit),
        middle(judged.theirs, judged.unit),
        "-" if ratio is None else f"{ratio:.4f}",
        f"{min(ratios):.4f} to {max(ratios):.4f}" if ratios else "-",
        str(judged.row.target),
        SAYS[judged.verdict],
    )


def middle(values: Sequence[float], unit: str | None) -> str:
    """Write the median of some figures."""
    return human(median(values), unit) if values and unit else "-"


def table(rows: Sequence[Judged]) -> str:
    """Lay out all rows for a terminal; a reason stands below the row it belongs to."""
    lines = [HEADINGS, *(cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    text = []
    for line, judged in zip(lines, (None, *rows), strict=True):
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        text.append("  ".join(padded).rstrip())
        if judged is not None and judged.reason:
            text.append(f"    {escaped(judged.reason)}")
    return "\n".join(text)


@dataclass(frozen=True, slots=True)
class Found:
    """All that a check has found; ``facts`` are the circumstances, by name."""

    facts: dict[str, Any]
    rows: list[Judged]
    rounds: list[Round]
    nvbandwidth: dict[str, float]
    tools_absent: dict[str, str]
    without_reference: list[str]
    sanitized: list[Checked]


def document(found: Found) -> dict[str, Any]:
    """Everything that was measured, the raw figures of every round among it."""
    return {
        "schema_version": SCHEMA_VERSION,
        **found.facts,
        "rows": [
            asdict(row)
            | {"ratio": row.ratio, "verdict": row.verdict.value, "target": str(row.row.target)}
            for row in found.rows
        ],
        "rounds": [asdict(each) for each in found.rounds],
        "nvbandwidth": found.nvbandwidth,
        "tools_absent": found.tools_absent,
        "without_reference": found.without_reference,
        "sanitizer": [asdict(checked) for checked in found.sanitized],
    }


def page(found: Found) -> str:
    """Say in words what the JSON document says."""
    rows, facts = found.rows, found.facts
    held, missed, absent = (
        sum(row.verdict is verdict for row in rows)
        for verdict in (Verdict.HELD, Verdict.MISSED, Verdict.NOT_MEASURED)
    )
    lines = [
        f"# {plain(facts['machine']['gpu']['name'])}, {facts['date'][:10]}",
        "",
        f"Targets: {held} held, {missed} missed, {absent} not measured; pairs: {facts['pairs']}.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {plain(text)} |" for name, text in circumstances(facts).items()),
        "",
        f"| {' | '.join(HEADINGS)} |",
        f"|{'---|' * len(HEADINGS)}",
        *(f"| {' | '.join(cells(row))} |" for row in rows),
        "",
        *map(sentence, rows),
        "",
        *beside(found),
        *sanitizer_lines(found.sanitized),
        "",
        *clock_lines(found.rounds),
    ]
    return "\n".join(lines).rstrip() + "\n"


def circumstances(facts: dict[str, Any]) -> dict[str, str]:
    """Name what the figures were taken on."""
    machine = facts["machine"]
    gpu = machine["gpu"]
    before, after = (facts["conditions"].get(when, {}) for when in ("before", "after"))
    changed = ", with changes that are not committed" if machine.get("uncommitted_changes") else ""
    compilers = (facts["nvcc"] or "kernels were given, compiled already", machine.get("cc"))
    return {
        "GPU": f"{gpu['name']}, compute capability {gpu['compute_capability']}, "
        f"{gpu['sm_count']} multiprocessors, {gpu['memory_total_bytes'] / (1 << 30):.1f} GiB",
        "Driver": f"{before.get('driver_version', 'not told')}, CUDA {machine.get('cuda_version')}",
        "Compilers": "; ".join(filter(None, compilers)),
        "Machine": f"{machine.get('cpu', 'CPU not told')}, {machine['cpu_count']} CPUs, kernel "
        f"{machine['kernel']}, Python {machine['python']}",
        "Commit": machine.get("commit", "not told") + changed,
        "Clocks before": _clocks(before),
        "Clocks after": _clocks(after),
        "Command": " ".join(facts["command"]),
    }


def sentence(judged: Judged) -> str:
    """One row in words."""
    name, target = f"`{judged.row.name}`", judged.row.target
    if judged.ratio is None:
        return f"- {name}: no ratio. {plain(judged.reason or 'Neither side has a figure.')}"
    ours, theirs = middle(judged.ours, judged.unit), middle(judged.theirs, judged.unit)
    best = f" ({plain(judged.best)})" if judged.best else ""
    text = (
        f"- {name}: gpud {ours}, {judged.row.against} {theirs}{best}; the ratio is "
        f"{judged.ratio:.4f} ({min(judged.ratios):.4f} to "
        f"{max(judged.ratios):.4f} in {len(judged.ratios)} pairs)"
    )
    if judged.same:
        text += f"; gpud's own kernel, launched by C, {middle(judged.same, judged.unit)}"
    if judged.verdict is not Verdict.NO_TARGET:
        text += f". Target {target}: {judged.verdict.value}"
    return text + (f". {plain(judged.reason)}" if judged.reason else "") + "."


def written(folder: Path, found: Found) -> tuple[str, str]:
    """Write the document and the page; give their paths. ``Errors: Refused``."""
    name = found.facts["machine"]["gpu"]["name"]
    stem = f"{found.facts['date'][:10]}-{slug(name)}"
    return kept(folder, stem, document(found), page(found))


def kept(folder: Path, stem: str, content: dict[str, Any], words: str) -> tuple[str, str]:
    """Write a document and its page; give their paths. ``Errors: Refused``."""
    text = json.dumps(content, indent=1, sort_keys=True, allow_nan=False)
    data, beside = folder / f"{stem}.json", folder / f"{stem}.md"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        data.write_text(text + "\n", encoding="utf-8")
        beside.write_text(words, encoding="utf-8")
    except OSError as error:
        raise Refused(f"--out {folder}: {error.strerror}") from error
    return str(data), str(beside)


def slug(name: str) -> str:
    """Name a file after a GPU: ``NVIDIA GeForce RTX 4070`` is ``nvidia-geforce-rtx-4070``."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "gpu"


def plain(text: str) -> str:
    """Make text from outside harmless in a cell of Markdown."""
    return escaped(str(text)).replace("|", "\\|").replace("`", "'").replace("<", "&lt;")


def _clocks(condition: dict[str, str]) -> str:
    wanted = ("pstate", "clocks.sm", "clocks.mem", "temperature.gpu", "power.draw")
    told = [f"{name} {condition[name]}" for name in wanted if name in condition]
    return ", ".join(told) or "not told: nvidia-smi does not answer"


def clock_lines(rounds: Sequence[Round]) -> list[str]:
    """Lay out the clocks of both sides in every round: a round at unequal ones proves nothing."""
    lines = [
        "The highest clocks of each run as nvidia-smi gives them, and whether the warm-up settled:",
        "",
        f"| {' | '.join(ROUNDS)} |",
        f"|{'---|' * len(ROUNDS)}",
    ]
    pairs: dict[str, int] = {}
    for each in rounds:
        pair = pairs[each.probe] = pairs.get(each.probe, 0) + 1
        warm = {n: f for n, f in each.theirs.figures.items() if not n.endswith("_cold")}
        settled = [figure.settled for figure in warm.values()]
        row = (
            str(pair),
            each.probe,
            each.first,
            _settled([each.ours.conditions.get("settled")]),
            readings(each.ours.clocks),
            _settled(settled),
            readings(each.theirs.clocks),
        )
        lines.append(f"| {' | '.join(row)} |")
    return lines


def _settled(values: Iterable[object]) -> str:
    """Say whether all warm-ups of a run did, as far as they say."""
    told = [value for value in values if isinstance(value, bool)]
    return "-" if not told else "yes" if all(told) else "no"


def readings(clocks: dict[str, float]) -> str:
    """Write the clocks of a run."""
    return ", ".join(f"{clocks[name]:g} {unit}" for name, unit in UNITS.items() if name in clocks)


def beside(found: Found) -> list[str]:
    """Say what was not there to be asked."""
    lines = [f"- {plain(tool)}: {plain(why)}." for tool, why in found.tools_absent.items()]
    if found.without_reference:
        lines.append(f"- Without a reference: {', '.join(found.without_reference)}.")
    return ["Not compared:", "", *lines, ""] if lines else []


def sanitizer_lines(sanitized: Sequence[Checked]) -> list[str]:
    """Say what compute-sanitizer found in gpud's kernels."""
    if not sanitized:
        return ["compute-sanitizer has not been run."]
    lines = ["gpud's kernels under compute-sanitizer:", ""]
    for checked in sanitized:
        if checked.clean:
            lines.append(f"- {checked.tool}: clean ({', '.join(checked.kernels)}).")
        elif not checked.ran:
            lines.append(f"- {checked.tool}: could not run: {plain(checked.said)}")
        else:
            where = f" in {', '.join(checked.dirty)}" if checked.dirty else ""
            lines.append(f"- {checked.tool}: NOT CLEAN{where}: {plain(checked.said)}")
    return lines
