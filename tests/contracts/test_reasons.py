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
    lines = ["| Reason | Severity | CUresult |", "|---|---|---|"]
    for reason in Reason:
        codes = ", ".join(str(code) for code in sorted(MEANING) if MEANING[code][0] is reason)
        lines.append(f"| `{reason}` | {SEVERITY[reason].name.lower()} | {codes} |")
    return "\n".join(lines)


def test_the_document_lists_every_reason(request: pytest.FixtureRequest) -> None:
    before, old, after = DOCUMENT.read_text().split(MARK)
    if request.config.getoption("--update-golden"):
        DOCUMENT.write_text(f"{before}{MARK}\n{table()}\n{MARK}{after}")
        return
    assert old.strip() == table(), (
        "pytest tests/contracts/test_reasons.py --update-golden rewrites it"
    )
