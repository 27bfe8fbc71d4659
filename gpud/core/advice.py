"""Advice for each situation, worded for the platform the machine is.

A driver that hangs under WSL2 comes back with a word to Windows, on plain Linux with a reboot, and
in a container neither can be given. So whoever meets trouble names the situation, and the words are
chosen where the platform is known. Standard library only: the child uses it too.
"""

from __future__ import annotations

from enum import StrEnum

from gpud.core import wsl
from gpud.core.record import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

    from gpud.core.sample import Failure


class Platform(StrEnum):
    """What kind of machine advice is for."""

    WSL2 = "wsl2"
    WSL1 = "wsl1"
    LINUX = "linux"
    CONTAINER = "container"  # of whichever kernel: it can mend neither driver nor Windows


CONTAINER_MARKS: Final = ("/.dockerenv", "/run/.containerenv")
"""Files that container engines leave. The kernel is the host's, so these are asked first."""


def platform(kernel: str, *, container: bool = False) -> Platform:
    """Tell the platform by the kernel's release; one without a name is plain Linux."""
    if container:
        return Platform.CONTAINER
    return {"2": Platform.WSL2, "1": Platform.WSL1}.get(wsl.version(kernel), Platform.LINUX)


def of(facts: Mapping[str, str]) -> Platform:
    """Tell the platform by what the agent publishes of it."""
    return platform(facts.get("kernel", ""), container=bool(facts.get("container")))


class Situation(StrEnum):
    """What went wrong, as far as the way out of it goes."""

    AGAIN = "again"  # once is no fault
    BLOCKED = "blocked"
    BUSY = "busy"
    CHANNEL = "channel"  # messages to the host get lost
    CONTAINER_BLIND = "container_blind"  # it sees no GPU
    CONTAINER_HUNG = "container_hung"
    CPU_BUSY = "cpu_busy"
    ECC = "ecc"
    FORBIDDEN = "forbidden"
    FULL = "full"
    GONE = "gone"  # one GPU of several, for CUDA
    HUNG = "hung"
    HUNG_WAIT = "hung_wait"  # the GPU does not finish what it was given
    JIT_MISSING = "jit_missing"
    JIT_OFF = "jit_off"
    LIBRARY_MISSING = "library_missing"
    LIBRARY_UNSEEN = "library_unseen"  # by the container toolkit
    LICENCE = "licence"
    LINK = "link"
    MISMATCH = "mismatch"  # the driver was replaced under a running machine
    MPS = "mps"
    MPS_FULL = "mps_full"
    NOT_LOADED = "not_loaded"
    NO_GPU = "no_gpu"
    OLD_GPU = "old_gpu"
    OURS = "ours"
    RESET = "reset"
    SILENT = "silent"
    SLOW_LOAD = "slow_load"  # compiling gpud's kernels
    SLOW_START = "slow_start"
    STUB = "stub"
    TELEMETRY_SILENT = "telemetry_silent"  # while the GPU works
    TOO_OLD = "too_old"
    VANISHED = "vanished"  # a GPU that was here
    WAIT = "wait"


_ANYWHERE: Final[Mapping[Situation, str]] = {
    Situation.BUSY: "another program holds the GPU exclusively; close it and wait for the next run",
    Situation.CPU_BUSY: "see with `top` what keeps the CPU busy; the next run is tried as usual",
    Situation.FORBIDDEN: "the driver forbids it: look for a profiler or a debugger that holds the "
    "GPU, and whether this user may use it",
    Situation.JIT_OFF: "CUDA_DISABLE_PTX_JIT is set for gpud; unset it",
    Situation.LICENCE: "the GPU is a virtual one without a licence for compute work",
    Situation.MPS: "the CUDA MPS server does not serve gpud: `nvidia-cuda-mps-control` shows its "
    "state",
    Situation.MPS_FULL: "the CUDA MPS server has all the clients it takes: end one of them",
    Situation.OLD_GPU: "this GPU is older than the kernels are written for",
    Situation.OURS: "gpud and this driver disagree about a call: report it with the driver's "
    "version",
    Situation.WAIT: "the system is not ready yet; the next run may do better",
    Situation.AGAIN: "if it happens again, {restart}",
    Situation.ECC: "the GPU's memory has an uncorrectable error; {restart}",
    Situation.LINK: "the link between GPUs has an error that cannot be corrected; {restart}",
    Situation.HUNG_WAIT: "the GPU does not finish what it was given: close GPU programs; if it "
    "stays, {restart}",
    Situation.SLOW_LOAD: "the driver compiles gpud's kernels, once after each of its updates: look "
    "whether the disk is slow or full, and whether gpud's user may write to cuda-cache in the "
    "state folder; if it stays, {restart}",
    Situation.SLOW_START: "after a boot or an update of the driver the first start takes longest, "
    "and a slow or busy disk makes it longer: the next run may do better; if it stays, {restart}",
    Situation.SILENT: "the driver gives no reason; if it stays, {restart}",
}
"""Where only the restart differs, or nothing."""

_RESTART: Final[Mapping[Platform, str]] = {
    Platform.WSL2: "run `wsl --shutdown` in Windows and open the distribution again",
    Platform.WSL1: "run `wsl --shutdown` in Windows and open the distribution again",
    Platform.LINUX: "look at `sudo dmesg | grep -i nvrm`, and reboot",
    Platform.CONTAINER: "restart the machine that runs this container",
}

_STRAY = (
    "no NVIDIA adapter reaches this distribution, or a Linux driver package shadows the library "
    "that Windows provides: `gpud doctor` shows which file was loaded; it belongs in "
    "/usr/lib/wsl/lib"
)
_SHADOW = (
    "a Linux driver package shadows WSL's library: remove nvidia-driver-*, libnvidia-* and "
    "libcuda1 from the distribution, but not libnvidia-container* (the container toolkit), then "
    "{restart}"
)
_WSL2: Final[Mapping[Situation, str]] = {
    Situation.BLOCKED: "the operating system blocks access to the GPU: a GPU in TCC mode is not "
    "shown to WSL (`nvidia-smi -dm 0` as administrator in Windows makes it WDDM, then restart "
    "Windows), or " + _SHADOW,
    Situation.CHANNEL: "{restart}; the channel to the host does not come back by itself",
    Situation.CONTAINER_BLIND: "start it with `--gpus all`; when it was, update the NVIDIA driver "
    "in Windows, then {restart}",
    Situation.CONTAINER_HUNG: "look whether the GPU answers outside a container; `wsl --shutdown` "
    "frees a stuck one",
    Situation.FULL: "close programs that use GPU memory, in Windows too",
    Situation.GONE: "that GPU is gone and others are not: look at its power and its slot, then "
    "{restart}",
    Situation.HUNG: "save your work, close GPU programs and run `wsl --shutdown` from Windows, "
    "which ends all distributions and containers; nothing inside Linux can free a driver call that "
    "hangs",
    Situation.JIT_MISSING: "the driver lacks its PTX compiler: install the NVIDIA driver in "
    "Windows again",
    Situation.LIBRARY_MISSING: "install or update the NVIDIA driver in Windows; WSL provides the "
    "library",
    Situation.LIBRARY_UNSEEN: "look for libnvidia-ml.so.1 in /usr/lib/wsl/lib and run `sudo "
    "ldconfig`; a Docker from snap cannot see it at all",
    Situation.MISMATCH: "the driver was replaced while WSL ran, or " + _SHADOW,
    Situation.NOT_LOADED: "Windows replaced the driver while WSL ran, or the adapter changed: "
    "{restart}",
    Situation.NO_GPU: _STRAY,
    Situation.RESET: "Windows reset the GPU because work did not yield for 2 s, or its memory "
    "could not be made resident: close what fills the GPU's memory; if it stays, {restart}",
    Situation.STUB: "a stub from a CUDA toolkit was loaded. " + _STRAY,
    Situation.TELEMETRY_SILENT: "gpud asks elsewhere meanwhile; if it stays, {restart}",
    Situation.TOO_OLD: "update the NVIDIA driver in Windows (R495 or newer), then {restart}",
    Situation.VANISHED: "a laptop's mode without its NVIDIA GPU (Eco, integrated only) or an "
    "unplugged eGPU takes it away: bring it back there; then `wsl --shutdown` from Windows, which "
    "also brings back one that fell off; `gpud gpus forget UUID` if it is gone for good",
}
_WSL1 = "WSL 1 has no GPU: from Windows, `wsl --set-version NAME 2` makes the distribution WSL 2"

_PACKAGES = "install the NVIDIA driver's packages again"
_LINUX: Final[Mapping[Situation, str]] = {
    Situation.BLOCKED: "the operating system blocks access to the GPU: look who may open "
    "/dev/nvidia0 and /dev/nvidiactl, and at `sudo dmesg | grep -i nvrm`",
    Situation.CHANNEL: "{restart}",
    Situation.CONTAINER_BLIND: "start it with `--gpus all`; when it was, look whether the GPU "
    "answers outside a container",
    Situation.CONTAINER_HUNG: "look whether the GPU answers outside a container; a reboot frees a "
    "stuck one",
    Situation.FULL: "close programs that use GPU memory; `nvidia-smi` lists them",
    Situation.GONE: "that GPU is gone and others are not: look at its power and its slot; "
    "`sudo dmesg | grep -i nvrm` says when it fell off, and a reboot may bring it back",
    Situation.HUNG: "close GPU programs; `sudo dmesg | grep -i nvrm` says what the driver met, and "
    "only a reboot frees a driver call that hangs",
    Situation.JIT_MISSING: "the driver lacks its PTX compiler, libnvidia-ptxjitcompiler: "
    + _PACKAGES,
    Situation.LIBRARY_MISSING: "install the NVIDIA driver from your distribution's packages, then "
    "`sudo modprobe nvidia` or reboot",
    Situation.LIBRARY_UNSEEN: "look for libnvidia-ml.so.1 in `ldconfig -p`, and install the "
    "driver's packages where it is not; a Docker from snap cannot see it at all",
    Situation.MISMATCH: "the driver's packages were upgraded while its old kernel module was "
    "loaded: reboot",
    Situation.NOT_LOADED: "`sudo modprobe nvidia` loads the driver; `sudo dmesg | grep -i nvrm` "
    "says why it does not, and after an upgrade of its packages a reboot is due",
    Situation.NO_GPU: "the driver finds no NVIDIA GPU: `lspci -d 10de:` says whether the machine "
    "has one, `sudo modprobe nvidia` loads the driver, `sudo dmesg | grep -i nvrm` says what keeps "
    "it from the GPU",
    Situation.RESET: "work did not yield in time on a GPU with a screen, or the GPU met an error: "
    "`sudo dmesg | grep -i nvrm` says which; close what fills the GPU's memory, and reboot if it "
    "stays",
    Situation.STUB: "a stub from a CUDA toolkit was loaded, not the driver: take its folder out of "
    "LD_LIBRARY_PATH and /etc/ld.so.conf.d, then `sudo ldconfig`",
    Situation.TELEMETRY_SILENT: "gpud asks elsewhere meanwhile; `sudo dmesg | grep -i nvrm` "
    "may say why",
    Situation.TOO_OLD: "install a newer NVIDIA driver from your distribution's packages, then "
    "reboot",
    Situation.VANISHED: "`sudo dmesg | grep -i nvrm` says why a GPU fell off, and a reboot may "
    "bring it back; `gpud gpus forget UUID` if it was taken out on purpose",
}
_CONTAINER: Final[Mapping[Situation, str]] = {
    Situation.BLOCKED: "the operating system blocks access to the GPU: start the container with "
    "`--gpus all`",
    Situation.CHANNEL: "{restart}",
    Situation.CONTAINER_BLIND: "start it with `--gpus all`",
    Situation.CONTAINER_HUNG: "{restart}",
    Situation.FULL: "close programs that use GPU memory, outside the container too",
    Situation.GONE: "that GPU is gone and others are not: start the container anew, and look "
    "whether the machine that runs it still has the GPU",
    Situation.HUNG: "close GPU programs; nothing inside a container can free a driver call that "
    "hangs: {restart}",
    Situation.JIT_MISSING: "the container has no PTX compiler: start it with "
    "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    Situation.LIBRARY_MISSING: "start the container with `--gpus all`: the driver's libraries come "
    "from the machine that runs it",
    Situation.LIBRARY_UNSEEN: "start the container with `--gpus all`: the driver's libraries come "
    "from the machine that runs it",
    Situation.MISMATCH: "the driver was replaced while the container ran: start the container anew",
    Situation.NOT_LOADED: "look whether the driver works on the machine that runs this container",
    Situation.NO_GPU: "start the container with `--gpus all`, and look whether the machine that "
    "runs it sees its GPU",
    Situation.RESET: "the GPU was reset: close what fills its memory; if it stays, {restart}",
    Situation.STUB: "a stub from a CUDA toolkit was loaded, not the driver: start the container "
    "with `--gpus all`",
    Situation.TELEMETRY_SILENT: "start the container with NVIDIA_DRIVER_CAPABILITIES=all; "
    "meanwhile gpud asks elsewhere",
    Situation.TOO_OLD: "update the NVIDIA driver of the machine that runs this container",
    Situation.VANISHED: "look whether the machine that runs this container still has it; `gpud "
    "gpus forget UUID` if it was taken out on purpose",
}
_OWN: Final[Mapping[Platform, Mapping[Situation, str]]] = {
    Platform.WSL2: _WSL2,
    Platform.WSL1: {},
    Platform.LINUX: _LINUX,
    Platform.CONTAINER: _CONTAINER,
}


def words(situation: Situation, where: Platform) -> str:
    """Give the advice for a situation on a platform, as a person reads it."""
    own = _OWN[where].get(situation) or _ANYWHERE.get(situation, _WSL1)
    return own.replace("{restart}", _RESTART[where])


def worded(failure: Failure, where: Platform) -> Failure:
    """Put the advice of a failure into words where it names a situation; other words stay."""
    if isinstance(failure.advice, Situation):
        return replace(failure, advice=words(failure.advice, where))
    return failure
