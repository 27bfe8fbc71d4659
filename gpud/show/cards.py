"""Cards of ``gpud status``: Docker, each GPU with its figures, what gpud takes, its page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.core.health import Level
from gpud.show import figures, gpu_table
from gpud.show.document import Health
from gpud.show.units import lasted, plural, spaced
from gpud.show.view import BAD, GOOD, HEAD, PLAIN, QUIET, UNSURE, Span, line, listed, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpud.show.document import Status
    from gpud.show.figures import Row
    from gpud.show.view import Line, View

LABEL: Final = 8
OWNERS: Final = {
    "gpud": "kept by gpud",
    "systemd": "systemd's",
    "docker_desktop": "Docker Desktop's",
    "other_user": "another user's",
    "other_distribution": "another distribution's",
    "other": "started by something else",
    "none": "nobody's",
}
SLOWED: Final = gpu_table.HEADINGS[-1]
IDLE: Final = "idle"
"""The reason for low clocks that slows nothing."""


def docker(document: Status) -> list[Line]:
    """Whose dockerd it is, which, and how often it had to be brought back; one line."""
    if document.root is None:
        return [_labelled("docker", Span("not known: root says nothing", UNSURE))]
    dockerd = document.root.dockerd
    if dockerd.up is None:
        return [_labelled("docker", Span("not looked at", QUIET), f" (policy {dockerd.policy})")]
    whose = OWNERS.get(dockerd.owner, dockerd.owner)
    if not dockerd.up and dockerd.reason:  # whose it would be is less to the point
        whose = spaced(dockerd.reason) if dockerd.reason != dockerd.state else ""
    words = [dockerd.version or "", whose]
    if count := sum(dockerd.restarts.values()):
        each = (f"{spaced(why)} {n}" for why, n in sorted(dockerd.restarts.items()) if n)
        words.append(f"{plural(count, 'restart')} ({', '.join(each)})")
    if suspects := dockerd.suspect_sockets:
        words.append(f"{plural(suspects, 'suspect socket')} ignored, see docs/dockerd.md")
    state = Span("up", GOOD) if dockerd.up else Span(dockerd.state, BAD)
    return [_labelled("docker", state, "".join(f", {word}" for word in words if word))]


def gpus(
    document: Status,
    tables: Mapping[int | None, Sequence[Row]],
    now_s: float,
    view: View,
    *,
    brief: bool = False,
) -> Iterator[list[Line]]:
    """Give a card for each GPU, then one for the CPU: who it is, how it is, what it can do."""
    widths = figures.columns(tables.values(), view)
    rows = {int(row[0]): row for row in gpu_table.rows(document)}
    source = gpu_table.source(document, now_s)
    if rows:
        yield [_labelled("GPUs", f"{gpu_table.versions(document)}; telemetry from {source}")]
    elif document.telemetry.sources:
        yield [_labelled("GPUs", "none that answers" if document.expected else "none known")]
    for number in sorted({*rows, *(number for number in tables if number is not None)}):
        card = [_labelled(f"GPU {number}", Span(rows[number][1] if number in rows else "", HEAD))]
        if number in rows:
            card += listed(" " * (LABEL - 1), _cells(rows[number]), view)
        yield card + figures.drawn(tables.get(number, ()), widths, view)
    if None in tables:
        said = brief and all(row.name.startswith("cpu") for row in tables[None])
        head = [] if said else [line(Span("  CPU", HEAD))]
        yield [*head, *figures.drawn(tables[None], widths, view)]


def cost(document: Status, now_s: float) -> list[Line]:
    """What gpud itself has taken since it began."""
    counters = document.counters
    if counters.gpu_seconds is None:
        return []
    taken = f"{counters.gpu_seconds:.2g} s of GPU time and {counters.children} processes"
    return [_labelled("cost", f"{taken} in {lasted(now_s - document.started_s)}")]


def page(document: Status) -> list[Line]:
    """Where the page is; nothing while somebody else may answer there."""
    answers = document.url and document.health.get("http", Health()).level < Level.FAILED
    return [_labelled("page", f"{document.url}/")] if answers else []


def last(document: Status, now_s: float, view: View) -> list[Line]:
    """Both in one line, where it has room."""
    shown = [*cost(document, now_s), *page(document)]
    joined = f"{text(shown[0])}; page {document.url}/" if len(shown) > 1 else ""
    return [line(joined)] if joined and len(joined) <= view.width else shown


def more(hidden: int) -> list[Line]:
    """Say that there are modes that no row was left for."""
    words = f"{hidden} more modes: gpud status | less, or gpud baseline show"
    return [_labelled("", Span(words, QUIET))] if hidden > 0 else []


def _cells(row: tuple[str, ...]) -> Iterator[str]:
    for heading, cell in zip(gpu_table.HEADINGS[2:], row[2:], strict=True):
        label = f"{heading} " if heading == "use" or cell == gpu_table.UNKNOWN else ""
        yield _slowed(cell) if heading == SLOWED else f"{label}{cell}"


def _slowed(cell: str) -> str:
    """Say what slows a GPU; one that is idle has low clocks and is not slowed."""
    if cell == gpu_table.UNKNOWN:
        return f"{SLOWED}: {gpu_table.NOT_KNOWN}"
    reasons = [reason for reason in cell.split(",") if reason != IDLE]
    return f"{SLOWED} {','.join(reasons)}" if reasons else f"clocks low: {IDLE}"


def _labelled(label: str, *words: Span | str) -> Line:
    return line(Span(f"  {label:<{LABEL - 1}} ", QUIET if label.islower() else PLAIN), *words)
