"""One card each: for Docker, for a GPU with its figures, for what gpud takes, for its page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpud.core import throttle
from gpud.core.health import Level
from gpud.show import figures, gpu_table
from gpud.show.parts import lasted
from gpud.show.view import BAD, GOOD, HEAD, PLAIN, QUIET, UNSURE, Span, line, listed, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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
IDLE: Final = throttle.WORDS[0]


def docker(document: Mapping[str, Any]) -> list[Line]:
    """Whose dockerd it is, which, and how often it had to be brought back; one line."""
    root = document.get("root")
    if root is None:
        return [_labelled("docker", Span("not known: root says nothing", UNSURE))]
    said = root["dockerd"]
    if said["up"] is None:
        return [_labelled("docker", Span("not looked at", QUIET), f" (policy {said['policy']})")]
    whose = OWNERS.get(str(said["owner"]), str(said["owner"]))
    if not said["up"] and (why := said.get("reason")):  # whose it would be is less to the point
        whose = why.replace("_", " ") if why != said["state"] else ""
    words = [said["version"] or "", whose]
    restarts = {why: n for why, n in (said.get("restarts") or {}).items() if n}
    if restarts:
        count = sum(restarts.values())
        each = ", ".join(f"{why.replace('_', ' ')} {n}" for why, n in sorted(restarts.items()))
        words.append(f"{count} restart{'s' if count != 1 else ''} ({each})")
    if suspects := said.get("suspect_sockets"):
        words.append(
            f"{suspects} suspect socket{'s' if suspects != 1 else ''} ignored, see docs/dockerd.md"
        )
    state = Span("up", GOOD) if said["up"] else Span(str(said["state"]), BAD)
    return [_labelled("docker", state, "".join(f", {word}" for word in words if word))]


def gpus(
    document: dict[str, Any],
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
        told = f"{gpu_table.versions(document)}; telemetry from {source}"
        yield [_labelled("GPUs", told)]
    elif (document.get("telemetry") or {}).get("sources"):
        yield [_labelled("GPUs", "none that answers" if document.get("expected") else "none known")]
    for number in sorted({*rows, *(number for number in tables if number is not None)}):
        card = [_labelled(f"GPU {number}", Span(rows[number][1] if number in rows else "", HEAD))]
        if number in rows:
            card += listed(" " * (LABEL - 1), _cells(rows[number]), view)
        yield card + figures.drawn(tables.get(number, ()), widths, view)
    if None in tables:
        said = brief and all(row.name.startswith("cpu") for row in tables[None])
        head = [] if said else [line(Span("  CPU", HEAD))]
        yield [*head, *figures.drawn(tables[None], widths, view)]


def cost(document: Mapping[str, Any], now_s: float) -> list[Line]:
    """What gpud itself has taken since it began."""
    counters = document.get("counters") or {}
    if "gpu_seconds" not in counters:
        return []
    seconds = f"{counters['gpu_seconds']:.2g} s of GPU time"
    since = lasted(now_s - document["started_s"])
    words = f"{seconds} and {counters.get('children', 0)} processes in {since}"
    return [_labelled("cost", words)]


def page(document: Mapping[str, Any]) -> list[Line]:
    """Where the page is."""
    url = _url(document)
    return [_labelled("page", url)] if url else []


def last(document: Mapping[str, Any], now_s: float, view: View) -> list[Line]:
    """Both in one line, where it has room."""
    shown = [*cost(document, now_s), *page(document)]
    joined = f"{text(shown[0])}; page {_url(document)}" if len(shown) > 1 else ""
    return [line(joined)] if joined and len(joined) <= view.width else shown


def more(hidden: int) -> list[Line]:
    """Say that there are modes that no row was left for."""
    words = f"{hidden} more modes: gpud status | less, or gpud baseline show"
    return [_labelled("", Span(words, QUIET))] if hidden > 0 else []


def _url(document: Mapping[str, Any]) -> str | None:
    """Give the page's address; None while somebody else may answer there."""
    http = (document.get("health") or {}).get("http") or {}
    url = document.get("url")  # an agent of an older release says none
    return f"{url}/" if url and http.get("level", 0) < Level.FAILED else None


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
