"""Requests to the agent over its local socket, and the lines of its answers: a JSON object each.

A connection carries one request. Its answer ends with an ``EndLine`` or an ``ErrorLine``; a
connection that ends without either was cut off. Units: ``_s`` is Unix time or seconds.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from gpud.core.sample import Condition, Inventory, RunReport, Skip
from gpud.core.streams import Choice

LARGEST_REQUEST: Final = 1 << 16

Cells: TypeAlias = tuple[Condition | tuple[str, ...], ...]
"""The values of a row of the history, by its columns."""


class _Request(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="request", forbid_unknown_fields=True
):
    """The base of all requests."""


class AckRequest(_Request, frozen=True, tag="ack"):
    """Acknowledge the alert whose fingerprint begins so."""

    alert: str


class AcceptRequest(_Request, frozen=True, tag="accept"):
    """Take the current speed as usual: of an alert's streams, or of the given ones."""

    choice: Choice
    alert: str | None = None


class ResetRequest(_Request, frozen=True, tag="reset"):
    """Learn anew what is usual for the given streams."""

    choice: Choice


class ForgetRequest(_Request, frozen=True, tag="forget"):
    """Expect these GPUs no longer: UUIDs, or ``all``."""

    gpus: tuple[str, ...]


class ProbeRequest(_Request, frozen=True, tag="probe"):
    """Run probes now; no names are all of them, no GPUs likewise."""

    names: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    repeat: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1


class ContextsRequest(_Request, frozen=True, tag="contexts"):
    """Count so many GPU contexts, which a program beside the agent makes."""

    count: Annotated[int, msgspec.Meta(ge=1, le=1000)]


class HistoryRequest(_Request, frozen=True, tag="history"):
    """Rows of the history: the newest ``limit``, or without a limit all, the oldest first.

    They are of runs, or of ``telemetry``, which knows neither probes nor modes.
    """

    telemetry: bool = False
    since_s: float | None = None
    until_s: float | None = None
    probes: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    hourly: bool = False


class TopRequest(_Request, frozen=True, tag="top"):
    """The present and what becomes of it, until the connection ends."""


ApiRequest = (
    AckRequest
    | AcceptRequest
    | ResetRequest
    | ForgetRequest
    | ProbeRequest
    | ContextsRequest
    | HistoryRequest
    | TopRequest
)


class _Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", omit_defaults=True):
    """The base of all lines."""


class EndLine(_Line, frozen=True, tag="end"):
    """Everything was done and sent."""


class ErrorLine(_Line, frozen=True, tag="error"):
    """Why it was not done, and the fix."""

    kind: Literal["usage", "problem", "denied"]
    message: str
    fix: str | None = None


class AlertLine(_Line, frozen=True, tag="alert"):
    """The alert that was acknowledged."""

    fingerprint: str


class ChoiceLine(_Line, frozen=True, tag="choice"):
    """Streams that were chosen."""

    choice: Choice


class GpuLine(_Line, frozen=True, tag="gpu"):
    """A GPU that was forgotten."""

    uuid: str
    name: str


class RowsLine(_Line, frozen=True, tag="rows"):
    """What comes before rows: their columns, from when on there are more than hours, and more.

    ``raw_from``: before it, runs or minutes are kept as hours. ``more``: the limit cut rows off.
    """

    columns: tuple[str, ...]
    raw_from: str | None = None
    raw_from_s: float | None = None
    more: bool = False


class RowLine(_Line, frozen=True, tag="row"):
    """One row of the history, a cell for each column."""

    cells: Cells


class BeginLine(_Line, frozen=True, tag="begin"):
    """A run begins."""

    label: str


class WaitLine(_Line, frozen=True, tag="wait"):
    """What the next run waits for, or what delays all of them."""

    message: str


class InventoryLine(_Line, frozen=True, tag="inventory"):
    """The GPUs that CUDA has; ``no_gpu``: why none is expected here, where none was asked for."""

    inventory: Inventory
    no_gpu: str | None = None


class Usual(msgspec.Struct, frozen=True):
    """The median of the kept runs of a mode, and how many they are."""

    median: float
    n: int


class RanLine(_Line, frozen=True, tag="ran"):
    """A run that ended. ``gpu`` is an index; ``usual`` is by mode."""

    repeat: int
    gpu: int | None
    report: RunReport
    usual: dict[str, Usual] = {}


class NotRunLine(_Line, frozen=True, tag="not_run"):
    """A run that was not started, and why."""

    repeat: int
    gpu: int | None
    probe: str
    skip: Skip
    detail: str
    fix: str | None = None


class RefusedLine(_Line, frozen=True, tag="refused"):
    """Probe modules that do not load, and why."""

    refused: dict[str, str]


class NoHistoryLine(_Line, frozen=True, tag="no_history"):
    """Why there is no history to compare with."""

    reason: str


class GpuProcess(msgspec.Struct, frozen=True):
    """A process with a context on a GPU. ``memory_bytes`` None: the driver does not tell.

    ``kind``: C for compute, G for graphics, M for a client of MPS, and C+G for two of them.
    """

    pid: int
    kind: str
    memory_bytes: int | None = None


class TopLine(_Line, frozen=True, tag="top"):
    """One moment: the status document, and the processes of each GPU by its number.

    ``pause``: why telemetry and processes were not read for this line, but earlier or not at all.
    ``unknown_reason``: why a GPU's processes are not known.
    """

    status: msgspec.Raw
    pause: str | None = None
    processes: dict[int, tuple[GpuProcess, ...]] = {}
    unknown_reason: dict[int, str] = {}


ProbeLine = (
    BeginLine | WaitLine | InventoryLine | RanLine | NotRunLine | RefusedLine | NoHistoryLine
)
AnswerLine = (
    EndLine
    | ErrorLine
    | AlertLine
    | ChoiceLine
    | GpuLine
    | RowLine
    | RowsLine
    | TopLine
    | ProbeLine
)


def encoded(message: ApiRequest | AnswerLine) -> bytes:
    """Write a request or a line, with its line feed."""
    return msgspec.json.encode(message) + b"\n"
