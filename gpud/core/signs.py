"""How each function of the machine is right now, as a snapshot shows it: it works, or why not.

What says nothing of the driver is no sign: a run that was left out, one that failed because the
machine was busy or not set up, or through a fault of gpud's own or of Docker's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from gpud.core import changes, containers, facts
from gpud.core.containers import Verdict
from gpud.core.health import Level
from gpud.core.sample import Reason
from gpud.core.severity import SEVERITY, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.core.clock import Instant
    from gpud.core.sample import Failure
    from gpud.core.snapshot import Snapshot

CUDA, PROBE, NVML, CONTAINER = "cuda", "probe", "nvml", "container"
"""Kinds of functions."""

NOT_THE_DRIVER: Final = frozenset(
    {Reason.KILLED, Reason.BAD_OUTPUT, Reason.SPAWN_FAILED, Reason.INTERNAL, Reason.DOCKER_ERROR}
)
"""Grave, and nobody's fault but the system's, gpud's or Docker's."""
OF_ONE_PROBE: Final = frozenset(
    {
        Reason.PTX_REJECTED,
        Reason.SYMBOL_MISSING,
        Reason.UNSUPPORTED,
        Reason.GRAPH_FAILED,
        Reason.INVALID_CALL,
        Reason.VERIFICATION_FAILED,
    }
)
"""Refusals that may be of one probe's work only. Any other means the GPU, or all of CUDA."""


class Subject(NamedTuple):
    """What may be lost. ``gpu`` is a UUID; empty where it is the machine's."""

    kind: str
    gpu: str = ""
    probe: str = ""


@dataclass(frozen=True, slots=True)
class Why:
    """Why something fails: a slug of a bounded set, and words."""

    reason: str
    detail: str | None = None
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class Sign:
    """How a subject was at ``mark``, by the monotonic clock. It works where ``why`` is None."""

    subject: Subject
    mark: float
    why: Why | None = None


def signs(snapshot: Snapshot) -> tuple[Sign, ...]:
    """Give one sign for each subject of which something is known."""
    return (
        *_cuda(snapshot),
        *_probes(snapshot),
        *_nvml(snapshot),
        *_container(snapshot),
    )


def driver(snapshot: Snapshot, now: Instant) -> str | None:
    """Name the driver: by its version, else by what it brings; None where nobody tells."""
    told = facts.beside_a_run(snapshot, now.mono_s)
    for kind, form in (
        (changes.DRIVER_VERSION, "{}"),
        (changes.NVML_VERSION, "NVML {}"),
        (changes.DRIVER_FOLDER, "folder {}"),
    ):
        if isinstance(text := told.get(kind), str):
            return form.format(text)
    return None


def _cuda(snapshot: Snapshot) -> Iterator[Sign]:
    inventory, mark = snapshot.inventory, snapshot.inventory_mono_s
    if inventory is None or mark is None or _no_sign(inventory.failure):
        return
    if inventory.failure is not None:
        health = snapshot.health.get(CUDA)  # it may know better than CUDA itself what helps
        why = _why(inventory.failure)
        fix = why.fix if health is None or health.level is Level.OK else health.fix
        yield Sign(Subject(CUDA), mark, Why(why.reason, why.detail, fix))
    elif inventory.devices:
        yield Sign(Subject(CUDA), mark)


def _probes(snapshot: Snapshot) -> Iterator[Sign]:
    uuids = {gpu.number: uuid for uuid, gpu in snapshot.gpus.items()}
    for key, state in snapshot.probes.items():
        uuid = None if key.gpu is None else uuids.get(key.gpu)
        if uuid is None or state.finished_mono_s is None or key.probe == containers.PROBE:
            continue
        if not _no_sign(state.failure):
            why = None if state.failure is None else _why(state.failure)
            yield Sign(Subject(PROBE, uuid, key.probe), state.finished_mono_s, why)


def _nvml(snapshot: Snapshot) -> Iterator[Sign]:
    said, health = snapshot.telemetry.answers.get(NVML), snapshot.health.get(NVML)
    if said is None:
        return
    if said.reason is None:
        yield Sign(Subject(NVML), said.taken_mono_s)
    elif health is not None and health.level > Level.OK:  # where there is no GPU it is well
        yield Sign(Subject(NVML), said.taken_mono_s, Why(said.reason, said.detail, health.fix))


def _container(snapshot: Snapshot) -> Iterator[Sign]:
    """Look at the last run in a container; its failure counts beside a good in-process run."""
    said = None if snapshot.root is None else snapshot.root.containers
    if said is None or said.run is None:
        return
    if said.run.failure is None:
        yield Sign(Subject(CONTAINER), said.run.finished_mono_s)
        return
    compared = snapshot.containers
    only = compared is not None and compared.verdict is Verdict.ONLY_CONTAINER_FAILS
    if only and said.image_present is not False and not _no_sign(said.run.failure):
        yield Sign(Subject(CONTAINER), said.run.finished_mono_s, _why(said.run.failure))


def _no_sign(failure: Failure | None) -> bool:
    """Say whether a failure tells nothing of the driver."""
    if failure is None or failure.reason in OF_ONE_PROBE:
        return False
    return SEVERITY[failure.reason] is not Severity.CRITICAL or failure.reason in NOT_THE_DRIVER


def _why(failure: Failure) -> Why:
    return Why(str(failure.reason), failure.detail, failure.advice)
