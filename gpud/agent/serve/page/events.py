"""What changed under the figures: driver, kernel, Windows, the set of GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.agent.serve.page import parts
from gpud.agent.serve.page.parts import link, moment
from gpud.show import gpu_table
from gpud.show.markup import Html, el, text

if TYPE_CHECKING:
    from gpud.agent.serve.page.view import View

MOST: Final = 50
WORDS: Final = 400


def section(view: View) -> Html:
    """Draw the latest changes, the newest first; the history has all of them."""
    told = gpu_table.changes(view.document)[-MOST:]
    rows = [(moment(at_s, "at"), text(", ".join(words), WORDS)) for at_s, words in reversed(told)]
    return parts.section(
        "events",
        "Changes",
        parts.table("events", "What changed", ("when", "what"), rows, hidden_caption=True)
        or el("p", "Nothing has changed since gpud knows this machine.", class_="quiet"),
        el("p", link("/api/v1/events", "all events"), class_="quiet"),
    )
