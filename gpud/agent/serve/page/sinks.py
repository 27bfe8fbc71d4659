"""How each way of telling people is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.agent.serve.page import parts
from gpud.agent.serve.page.parts import UNKNOWN, advice, mark, moment, spaced
from gpud.show.markup import Html, joined, text

if TYPE_CHECKING:
    from gpud.agent.serve.page.view import View


def section(view: View) -> Html:
    """Draw a row for each sink; nothing before the first has told anything."""
    rows = []
    for name, one in sorted(view.document["sinks"].items()):
        broken = one["reason"] is not None
        why = [text(one["detail"], 400)] if one["detail"] else []
        if broken and one["fix"]:
            why.append(joined("; ", advice(one["fix"])))
        rows.append(
            (
                name,
                mark("degraded", spaced(one["reason"])) if broken else mark("ok", "ok"),
                str(one["sent"]),
                str(one["failed"]),
                moment(one["last_success_s"]) if one["last_success_s"] is not None else UNKNOWN,
                joined(why) if broken else "",
            )
        )
    return parts.section(
        "sinks",
        "Who is told",
        parts.table(
            "sinks",
            "Alert sinks, since gpud started",
            ("sink", "state", "sent", "failed", "last", "because"),
            rows,
            figures=(2, 3),
            hidden_caption=True,
        ),
    )
