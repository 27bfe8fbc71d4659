"""Which due runs were left out, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.agent.web.page import parts
from gpud.agent.web.page.parts import spaced
from gpud.core.markup import Html, el
from gpud.core.sample import Skip

if TYPE_CHECKING:
    from gpud.agent.web.page.view import View

BECAUSE: Final = {
    Skip.NO_GPU: "there is no GPU",
    Skip.STUCK: "a probe that was ended does not go away",
    Skip.BREAKER_OPEN: "a call hung a while ago",
    Skip.CHILD_RUNNING: "another run was still going on",
    Skip.CLOCK_JUMPED: "the clock jumped",
    Skip.CONTAINER_RUNNING: "a container measures",
    Skip.IMAGE_ABSENT: "its image is not here",
    Skip.DOCKERD_DOWN: "Docker does not run",
    Skip.QUIET_HOURS: "quiet hours",
    Skip.ON_BATTERY: "on battery",
    Skip.RESUMED: "the machine had just come back",
    Skip.GPU_HOT: "the GPU is hot",
    Skip.VRAM_SHORT: "little GPU memory is free",
    Skip.GPU_BUSY: "somebody else uses the GPU",
}


def because(reason: str) -> str:
    """Say why a run was left out."""
    known = {str(skip): words for skip, words in BECAUSE.items()}
    return known.get(reason, spaced(reason))


def section(view: View) -> Html:
    """Draw what is being left out now, and how often each reason has held since the start."""
    rows = [
        (
            one["probe"],
            view.place(one["gpu"]) if one["gpu"] is not None else "",
            because(one["reason"]),
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
