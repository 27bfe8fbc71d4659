"""Known faults of a machine: those that were seen on it, and those of its versions alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.document.alerts import SEEN
from gpud.show import model
from gpud.words import NO_FIX, fault_effect, sureness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.document.alerts import FaultReport
    from gpud.document.status import Status


def section(source: model.Input) -> model.Section:
    """Make a card for each fault that was seen, what alarms first, and one line for the others."""
    here = seen(source.document)
    most = 1 if source.brief else len(here)
    blocks: list[model.Block] = [*map(_card, here[:most])]
    if (more := len(here) - most) > 0:
        blocks.append(model.Paragraph((f"and {more} more: ", model.code("gpud doctor"))))
    others = [fault for fault in source.document.known_faults if fault.state != SEEN]
    if others and not source.brief:
        blocks += _advice(others)
    return model.Section("faults", "Known faults", blocks, wide=True)


def seen(document: Status) -> list[FaultReport]:
    """Return the faults that were seen here, those first that a failed or stalled GPU call met."""
    here = (fault for fault in document.known_faults if fault.state == SEEN)
    return sorted(here, key=lambda fault: (not fault.alarm, fault.id))


def _card(fault: FaultReport) -> model.Card:
    state: model.State = "failed" if fault.alarm else "degraded"
    seen_how = "seen with a failed or stalled GPU call" if fault.alarm else "seen"
    about: list[model.Text] = [
        model.Mark(state, seen_how),
        f"others report: {fault_effect(fault.effect)}",
    ]
    if fault.count > 1:
        about.append(f"{fault.count} times")
    if fault.at_s is not None:
        about.append(("last ", model.Timestamp(fault.at_s)))
    blocks: list[model.Block] = [model.Paragraph(about, "inline")]
    if fault.evidence:
        words = model.Styled("Evidence: ", "strong"), model.Prose(fault.evidence)
        blocks.append(model.Paragraph(words))
    blocks += model.to_do(fault.fix or NO_FIX)
    blocks.append(model.Paragraph(model.Prose(sureness(fault.confidence, fault.source)), "quiet"))
    title = model.Prose(f"{fault.id}: {fault.title}")
    return model.Card(f"fault-{fault.id}", title, blocks, state)


def _advice(faults: list[FaultReport]) -> Iterator[model.Block]:
    """Make one line for the faults of the versions alone; the page lists them on a click."""
    doctor = (" not seen here; ", model.code("gpud doctor"), " says more")
    count = f"{len(faults)} of these versions,"
    yield model.Paragraph(("advice: ", count, *doctor), "quiet")
    rows = [
        (
            model.code(fault.id),
            model.Prose(fault.title),
            fault_effect(fault.effect),
            model.Advice(fault.fix or NO_FIX),
            model.Prose(sureness(fault.confidence, fault.source)),
        )
        for fault in faults
    ]
    columns = model.headings("fault", "what", "effect", "to do", "who says so")
    yield model.Fold(
        "faults-of-versions", "Which", [model.Table("faults", "Of the versions", columns, rows)]
    )
