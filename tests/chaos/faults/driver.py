"""The driver: CUDA and NVML absent, hanging, crashing, failing at each call; another version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.chaos.distribution import CUDA, LIB, NVML
from tests.chaos.faults import fault, kill, notice
from tests.chaos.faults.processes import HELPER, children

if TYPE_CHECKING:
    import random

    from tests.chaos.distribution import Distribution
    from tests.chaos.faults import Damage

CALLS = {
    CUDA: (
        "cuInit",
        "cuDeviceGetCount",
        "cuDevicePrimaryCtxRetain",
        "cuModuleLoadDataEx",
        "cuMemAlloc_v2",
        "cuStreamCreate",
        "cuLaunchKernel",
        "cuStreamSynchronize",
        "cuEventRecord",
        "cuMemcpyDtoH_v2",
    ),
    NVML: (
        "nvmlInitWithFlags",
        "nvmlSystemGetDriverVersion",
        "nvmlDeviceGetCount_v2",
        "nvmlDeviceGetHandleByIndex_v2",
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetPowerUsage",
    ),
}
CODES = {CUDA: (2, 100, 700, 719, 999), NVML: (3, 9, 15, 999)}
VERSIONS = ("572.16", "576.02", "581.80", "610.62")


@fault(of="cuda")
def cuda_absent(distro: Distribution, chance: random.Random) -> Damage:
    distro.root(f"mv /{LIB}/{CUDA} /{LIB}/away-cuda")
    yield notice("cuda", "library_missing")
    distro.root(f"mv /{LIB}/away-cuda /{LIB}/{CUDA}")


@fault(of="cuda")
def cuda_hangs(distro: Distribution, chance: random.Random) -> Damage:
    distro.script(CUDA, f"hang {chance.choice(CALLS[CUDA])}\n")
    yield notice("gpu cuda", "stuck", "hung")
    distro.script(CUDA)
    kill(children(distro))  # what the driver does when it comes back


@fault(of="cuda")
def cuda_crashes(distro: Distribution, chance: random.Random) -> Damage:
    distro.script(CUDA, f"{chance.choice(['crash', 'segfault'])} {chance.choice(CALLS[CUDA])}\n")
    yield notice("probes cuda", "crashed")
    distro.script(CUDA)


@fault(of="cuda")
def cuda_fails(distro: Distribution, chance: random.Random) -> Damage:
    call, code = chance.choice(CALLS[CUDA]), chance.choice(CODES[CUDA])
    distro.script(CUDA, f"fail {call} {code}\n")
    yield notice("probes cuda")
    distro.script(CUDA)


@fault(of="nvml")
def nvml_absent(distro: Distribution, chance: random.Random) -> Damage:
    distro.root(f"mv /{LIB}/{NVML} /{LIB}/away-nvml")
    kill(p for p in distro.processes() if HELPER in p.command)
    yield notice("nvml")
    distro.root(f"mv /{LIB}/away-nvml /{LIB}/{NVML}")


@fault(of="nvml")
def nvml_hangs(distro: Distribution, chance: random.Random) -> Damage:
    _nvml(distro, f"hang {chance.choice(CALLS[NVML])}\n")
    yield notice("nvml")
    distro.script(NVML)
    kill(p for p in distro.processes() if HELPER in p.command)


@fault(of="nvml")
def nvml_crashes(distro: Distribution, chance: random.Random) -> Damage:
    _nvml(distro, f"{chance.choice(['crash', 'segfault'])} {chance.choice(CALLS[NVML])}\n")
    yield notice("nvml")
    distro.script(NVML)


@fault(of="nvml")
def nvml_fails(distro: Distribution, chance: random.Random) -> Damage:
    _nvml(distro, f"fail {chance.choice(CALLS[NVML][:4])} {chance.choice(CODES[NVML])}\n")
    yield notice("nvml")
    distro.script(NVML)


@fault()
def driver_changed(distro: Distribution, chance: random.Random) -> Damage:
    version = chance.choice(VERSIONS)
    distro.scripts[NVML] = f"driver_version {version}\nnvml_version {version}\n"
    _nvml(distro, "")
    yield None


def _nvml(distro: Distribution, lines: str) -> None:
    """The script is read when the library is loaded: by the next process that speaks to NVML."""
    distro.script(NVML, lines)
    kill(p for p in distro.processes() if HELPER in p.command)
