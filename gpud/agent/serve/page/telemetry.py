"""Which sources tell of the GPUs, the best first, and why one of them does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.agent.serve.page import parts
from gpud.agent.serve.page.parts import UNKNOWN, advice, mark, moment, spaced
from gpud.core.stats import human
from gpud.core.telemetry import LEVELS, NAMES, SEES_A_GPU
from gpud.show import gpu_table
from gpud.show.markup import Html, el, joined, text

if TYPE_CHECKING:
    from gpud.agent.serve.page.view import View

AT_LENGTH: Final = {
    **NAMES,
    "nvidia_smi_exe": "nvidia-smi.exe of Windows",
    "nvidia_smi": "nvidia-smi of Linux",
    "dxg": "/dev/dxg and PCI",
}

SEE: Final = frozenset(LEVELS[SEES_A_GPU:])


def section(view: View) -> Html:
    """Draw the ladder; what is merged from it stands on the cards."""
    said = view.document["telemetry"]
    rows = []
    for name, one in said["sources"].items():
        why = text(one["detail"], 400) if one["detail"] else None
        reason = one["reason"]
        state = mark("ok", "answers") if one["up"] else mark("degraded", spaced(reason or "stale"))
        fix = joined("; ", advice(one["fix"])) if one["fix"] else None
        last_s = one["last_success_s"]
        took_s = one["duration_s"]
        rows.append(
            (
                AT_LENGTH.get(name, name),
                state,
                moment(last_s) if last_s is not None else "never",
                UNKNOWN if took_s is None else human(took_s, "seconds"),
                str(sum(one["failures"].values())),
                joined(why, fix),
            )
        )
    level = gpu_table.SOURCES.get(said["level"], UNKNOWN)
    known = said["level"] in SEE
    best = ("Values come from ", el("strong", level), ", the best source that answers.")
    return parts.section(
        "telemetry",
        "Telemetry",
        el("p", *best) if known else el("p", "No source tells of a GPU."),
        parts.table(
            "telemetry",
            "Sources, the best first",
            ("source", "state", "last answer", "took", "failures", "because"),
            rows,
            figures=(3, 4),
            hidden_caption=True,
        )
        or el("p", "No source has been asked yet.", class_="quiet"),
    )
