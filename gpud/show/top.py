"""Screen of `gpud top`: a GPU with graphs, its processes, all figures, alerts, Docker. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from gpud.show import figures, machine, model, status
from gpud.show.gpus import CARD, Readings, by_gpu, fact, versions
from gpud.show.headline import alerts, firing, headline
from gpud.show.text import plain, section_lines, sparkline, style
from gpud.show.view import GOOD, HEAD, QUIET, Span, line, narrowed
from gpud.units import clock, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gpud.document.status import Status
    from gpud.requests import GpuProcess
    from gpud.show.view import Line, View

GRAPHS: Final[Mapping[str, float | str]] = {
    "memory_used_bytes": "memory_total_bytes",
    "utilization_gpu_ratio": 1.0,
    "power_watts": "power_limit_watts",
    "temperature_celsius": 100.0,
    "clock_sm_hertz": "clock_sm_max_hertz",
    "clock_memory_hertz": "clock_memory_max_hertz",
}
"""What is drawn over time, and what its highest bar is: a number, or another field."""
ZOOMS: Final = (1, 5, 30)
"""Readings in one column of a graph."""
LONGEST: Final = 3600
"""Readings that are kept for the graphs: an hour of every second."""
NAME, VALUE = 17, 19
"""Columns of a fact and of its value."""
LEAST_BARS: Final = 8
GRAPH: Final = GOOD
MOST_PROCESSES: Final = 8
SORTS: Final[Mapping[str, Callable[[Process], object]]] = {
    "memory": lambda each: (-(each.known.memory_bytes or 0), each.known.pid),
    "pid": lambda each: each.known.pid,
    "user": lambda each: (each.user, each.known.pid),
    "command": lambda each: (each.command, each.known.pid),
}
"""Orders of the processes."""
KEYS: Final = "q leave g GPU s sort z zoom a ack p probe"


class Process(NamedTuple):
    """A process on a GPU: what the driver knows of it, and what the machine does."""

    known: GpuProcess
    user: str = ""
    command: str = ""


@dataclass
class SecondsPast:
    """What is drawn of each GPU over time, the oldest first, as far as it was seen.

    Shapes: a count of all readings, the moment, and a number or None for each of ``GRAPHS``.
    """

    gpus: dict[int, deque[tuple[int, float, list[float | None]]]] = field(default_factory=dict)
    count: int = 0
    latest_s: float = 0.0

    def take(self, document: Status) -> None:
        """Keep the readings of a document, if they are newer than the last."""
        at_s = document.telemetry.taken_s
        if at_s is None or at_s <= self.latest_s:
            return
        self.latest_s, self.count = at_s, self.count + 1
        for gpu, readings in by_gpu(document).items():
            if gpu is not None:
                kept = self.gpus.setdefault(gpu, deque(maxlen=LONGEST))
                kept.append((self.count, at_s, [readings.number(name) for name in GRAPHS]))

    def graph(self, gpu: int, name: str, zoom: int, width: int) -> tuple[list[float], list[float]]:
        """Give moments and means of the newest ``width`` columns, each of ``zoom`` readings."""
        place = list(GRAPHS).index(name)
        newest = list(self.gpus.get(gpu, ()))[-width * zoom :]
        moments, means = [], []
        for _, group in groupby(newest, key=lambda each: each[0] // zoom):
            part = [(at_s, value) for _, at_s, of in group if (value := of[place]) is not None]
            if part:
                moments.append(part[-1][0])
                means.append(sum(value for _, value in part) / len(part))
        return moments, means


@dataclass
class Choices:
    """What the person chose with the keys. ``gpu``: its number, None for the first."""

    gpu: int | None = None
    sort: str = next(iter(SORTS))
    zoom: int = ZOOMS[0]

    def shown(self, document: Status) -> int | None:
        """Give the number of the GPU that is shown; None where there is none."""
        here = numbers(document)
        return self.gpu if self.gpu in here else next(iter(here), None)


class Moment(NamedTuple):
    """What the agent sent last; ``processes`` is None where they were not asked, for ``pause``."""

    document: Status
    pause: str | None = None
    processes: Mapping[int, Sequence[Process]] = {}
    unknown_reason: Mapping[int, str] = {}


def numbers(document: Status) -> list[int]:
    """Give the numbers of the GPUs that are here."""
    here = {gpu for gpu in by_gpu(document) if gpu is not None}
    here |= {document.gpus[uuid].number for uuid in document.devices if uuid in document.gpus}
    return sorted(here)


def screen(
    moment: Moment, past: SecondsPast, chosen: Choices, now_s: float, view: View
) -> list[Line]:
    """Draw everything, what is wrong first; nothing is wider than the view."""
    document = moment.document
    shown = model.Input(document, brief=True)
    first, *rest = status.title(document, now_s)
    drawn = [first, *_because(document), *rest, _paced(moment, chosen)]
    drawn += section_lines(alerts(shown), view)
    gpu = chosen.shown(document)
    if gpu is None:
        drawn.append(line(Span("No GPU is known", HEAD)))
    else:
        drawn += _gpu(moment, past, gpu, chosen.zoom, view)
        drawn += _processes(moment, gpu, chosen.sort, view)
    speed = figures.brief(shown, {gpu, None})
    none = [model.Paragraph("no probe has run on it yet", "quiet")]
    drawn += section_lines(structs.replace(speed, blocks=speed.blocks or none), view)
    drawn += section_lines(machine.docker(shown), view)
    return narrowed(drawn, view)


def _because(document: Status) -> Iterator[Line]:
    """Say why the machine is not well, where no alert below says it."""
    summary = headline(document)
    if summary.state != "ok" and summary.why not in {a.summary for a in firing(document)}:
        yield line(Span("  because: ", HEAD), summary.why)


def _paced(moment: Moment, chosen: Choices) -> Line:
    pace = moment.pause or "every second"
    at = moment.document.telemetry.taken_s
    read = "" if at is None else f", read at {clock(at)}"
    return line(Span(f"  telemetry {pace}{read}; {chosen.zoom} in a column", QUIET))


def _gpu(moment: Moment, past: SecondsPast, gpu: int, zoom: int, view: View) -> Iterator[Line]:
    document = moment.document
    readings = by_gpu(document).get(gpu, Readings())
    listed = {of.number: of.name for of in document.gpus.values()}
    name = readings.text("name") or listed.get(gpu) or "without a name"
    others = len(numbers(document)) - 1
    several = f" (g: {others} more)" if others else ""
    yield line(Span(f"GPU {gpu}: {name[:80]}", HEAD), f"{several}, {versions(document)}")
    for words, field_name, whole in CARD:
        pair = fact(readings, words, field_name, whole)
        value = plain(pair.value)
        if not value:
            continue
        cells = f"  {words:<{NAME}} {value:<{VALUE}}"
        most = GRAPHS.get(field_name)
        if isinstance(most, str):
            most = readings.number(most)
        width = view.width - len(cells) - 1
        if most is None or width < LEAST_BARS:
            yield line(Span(cells, style(pair.value)))
            continue
        series = past.graph(gpu, field_name, zoom, width)
        bars = sparkline(*series, width=width, most=most)
        yield line(cells, Span(f" {bars}", GRAPH))
    if not readings:
        yield line(Span("  no reading of it is known", QUIET))


def _processes(moment: Moment, gpu: int, sort: str, view: View) -> Iterator[Line]:
    if gpu not in moment.processes:
        paused = f"telemetry {moment.pause}" if moment.pause else "NVML lists no such GPU"
        why = moment.unknown_reason.get(gpu, paused)
        yield line(Span("Processes: ", HEAD), Span(f"not known: {why}", QUIET))
        return
    processes = sorted(moment.processes[gpu], key=SORTS[sort])  # type: ignore[arg-type]
    if not processes:
        yield line(Span("Processes: ", HEAD), "none")
        return
    yield line(Span("Processes", HEAD), Span(f" {len(processes)}, by {sort}", QUIET))
    yield line(Span(f"  {'pid':>7} {'kind':<4} {'memory':>10} {'user':<8} command", QUIET))
    for known, user, command in processes[:MOST_PROCESSES]:
        memory = "" if known.memory_bytes is None else size(known.memory_bytes)
        cells = f"  {known.pid:>7} {known.kind:<4} {memory:>10} {user[:8]:<8} {command}"
        yield line(cells[: view.width])
    if (more := len(processes) - MOST_PROCESSES) > 0:
        yield line(Span(f"  and {more} more", QUIET))
