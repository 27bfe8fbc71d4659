"""Which due runs were left out, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.agent.serve.page import parts
from gpud.show.markup import Html, el
from gpud.show.skipwords import because

if TYPE_CHECKING:
    from gpud.agent.serve.page.view import View


def section(view: View) -> Html:
    """Draw what is being left out now, and how often each reason has held since the start."""
    rows = [
        (
            one["probe"],
            view.place(one["gpu"]) if one["gpu"] is not None else "",
            because(one["reason"], one.get("utilization_gpu_ratio")),
            parts.mark("degraded", str(one["count"])) if one["starving"] else str(one["count"]),
        )
        for one in sorted(view.document["put_off"], key=lambda one: (one["gpu"] or 0, one["probe"]))
    ]
    now = parts.table(
        "skips",
        "Left out now",
        ("probe", "on", "because", "in a row"),
        rows,
        figures=(3,),
        hidden_caption=True,
    )
    told = [
        (probe, because(reason), str(count))
        for (probe, _, reason), count in sorted(
            (name.partition(":"), count)
            for name, count in view.document["counters"]["skips"].items()
        )
    ]
    since = parts.table(
        "skipped",
        "Since gpud started",
        ("probe", "because", "times"),
        told,
        figures=(2,),
        hidden_caption=True,
    )
    return parts.section(
        "skips",
        "Left out",
        now or el("p", "Every run that is due is made.", class_="quiet"),
        parts.details("skips-all", "since gpud started", since) if told else None,
    )
