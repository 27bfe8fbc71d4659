"""What a check needs of the machine: the GPU, the built programs, gpud's probes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from . import toolchain, turns
from .processes import Child, Reference, Refused, wsl

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from .clocks import Clocks
    from .contexts import Contexts


@dataclass(frozen=True, slots=True)
class Prepared:
    """Both sides on one GPU. ``specs`` are gpud's probes by name, ``device`` as gpud lists it."""

    device: dict[str, Any]
    cuda_version: str | None
    specs: dict[str, dict[str, Any]]
    child: Child
    reference: Reference
    own: Reference  # the C program with gpud's kernels
    cublas: str | None
    nvcc: str | None
    resources: dict[str, dict[str, int]]
    peer: str | None  # the UUID of the next GPU, where gpud copies between two
    alone: str | None  # why it does not

    @property
    def uuid(self) -> str:
        """The GPU."""
        uuid: str = self.device["uuid"]
        return uuid


@dataclass(frozen=True, slots=True)
class Study:
    """What every part of ``guest.py`` uses. ``seconds``: how long the workload runs."""

    there: Prepared
    folder: Path
    seed: int
    seconds: float
    clocks: Clocks
    say: Callable[[str], None]


def prepare(
    given: argparse.Namespace, folder: Path, contexts: Contexts, say: Callable[[str], None]
) -> Prepared:
    """Find the GPU and build what runs beside gpud, in ``folder``. ``Errors: Refused``."""
    nvcc = None if given.module or given.guest else toolchain.nvcc_path(given.nvcc)
    child = Child(contexts, given.library)
    there = child.inventory()
    device, library = _device(there["devices"], given.gpu), there["library"]
    alone = "not on WSL2" if wsl() else None
    if len(there["devices"]) == 1:
        alone = "there is no second GPU"
    program = toolchain.build_program(folder)
    own_modules = turns.own_modules(device["compute_capability"])
    own = Reference(program, own_modules, turns.OWN_PREFIX, contexts, library)
    reference = Reference(program, tuple(given.module), given.prefix, contexts, library)
    if given.guest:
        reference = own
    kernels = None
    if nvcc is not None:
        say(f"compiling for {device['name']}, compute capability {device['compute_capability']}")
        kernels = toolchain.build_kernels(folder, nvcc, device["compute_capability"])
        reference = replace(reference, modules=(kernels.module,), prefix="ref_")
    return Prepared(
        device=device,
        cuda_version=there["cuda_version"],
        specs={spec["name"]: spec for spec in child.specs()},
        child=child,
        reference=reference,
        own=own,
        cublas=toolchain.cublas_path(given.cublas),
        nvcc=kernels.nvcc if kernels else None,
        resources=kernels.resources if kernels else {},
        peer=None if alone else _next(there["devices"], device)["uuid"],
        alone=alone,
    )


def _next(devices: Sequence[dict[str, Any]], device: dict[str, Any]) -> dict[str, Any]:
    """Give the GPU behind one, as gpud pairs them; the first behind the last."""
    return devices[(devices.index(device) + 1) % len(devices)]


def _device(devices: Sequence[dict[str, Any]], wanted: str) -> dict[str, Any]:
    """Choose the GPU by index or UUID. ``Errors: Refused``, saying which there are."""
    for device in devices:
        if wanted in {str(device["index"]), device["uuid"]}:
            return device
    there = ", ".join(f"{device['index']} ({device['uuid']})" for device in devices)
    raise Refused(f"--gpu {wanted}: there is no such GPU; there are {there}")
