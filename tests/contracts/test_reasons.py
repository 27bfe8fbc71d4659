"""The document of reasons lists every one of them, with its severity and what leads to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpud.agent.state.health import SEVERITY
from gpud.child.cuda_errors import MEANING
from gpud.core.sample import Reason

if TYPE_CHECKING:
    import pytest

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/hangs.md"
MARK = "<!-- reasons -->"


def table() -> str:
    """A row for each reason with a CUresult, and one for the others of each severity."""
    lines = ["| Reason | Severity | CUresult |", "|---|---|---|"]
    without: dict[str, list[str]] = {}
    for reason in Reason:
        severity = SEVERITY[reason].name.lower()
        codes = sorted(code for code in MEANING if MEANING[code][0] is reason)
        if codes:
            listed = "all others of cuda.h" if reason is Reason.INVALID_CALL else ranges(codes)
            lines.append(f"| `{reason}` | {severity} | {listed} |")
        else:
            without.setdefault(severity, []).append(f"`{reason}`")
    lines += [f"| {', '.join(names)} | {severity} | |" for severity, names in without.items()]
    return "\n".join(lines)


def ranges(codes: list[int]) -> str:
    """Write 1, 2, 3, 7 as "1-3, 7"."""
    groups: list[list[int]] = []
    for code in codes:
        if groups and code == groups[-1][-1] + 1:
            groups[-1].append(code)
        else:
            groups.append([code])
    return ", ".join(str(g[0]) if len(g) == 1 else f"{g[0]}-{g[-1]}" for g in groups)


def test_the_document_lists_every_reason(request: pytest.FixtureRequest) -> None:
    before, old, after = DOCUMENT.read_text().split(MARK)
    if request.config.getoption("--update-golden"):
        DOCUMENT.write_text(f"{before}{MARK}\n{table()}\n{MARK}{after}")
        return
    assert old.strip() == table(), (
        "pytest tests/contracts/test_reasons.py --update-golden rewrites it"
    )
