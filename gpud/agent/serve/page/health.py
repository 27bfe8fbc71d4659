"""How every part is, why, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.agent.serve.page import parts
from gpud.agent.serve.page.parts import advice, mark, moment, sentence, spaced
from gpud.show.markup import Html, el, joined

if TYPE_CHECKING:
    from gpud.agent.serve.page.view import View

LEVELS = ("ok", "degraded", "failed")
DETAIL = 1200


def section(view: View) -> Html:
    """Draw a row for each component, those that are not well first; fixes that are alike once."""
    health = view.document["health"]
    rows = []
    told: dict[str, str] = {}
    for name in sorted(health, key=lambda name: (-health[name]["level"], name)):
        one = health[name]
        fix = one["fix"]
        shown = joined("as for ", told[fix]) if fix in told else advice(fix) if fix else ""
        if fix:
            told.setdefault(fix, name)
        reason = el("span", spaced(one["reason"]), class_="quiet") if one["reason"] else None
        level = LEVELS[one["level"]]
        rows.append(
            (
                name,
                mark(level, level),
                sentence(one["detail"], DETAIL) if one["detail"] else reason or "",
                shown,
                moment(one["since_s"], "at"),
            )
        )
    return parts.section(
        "health",
        "Health",
        parts.table(
            "health",
            "Every component",
            ("component", "state", "because", "what to do", "since"),
            rows,
            hidden_caption=True,
        )
        or el("p", "No component has spoken yet.", class_="quiet"),
        class_="wide",
    )
