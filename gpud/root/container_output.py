"""Output of NVIDIA's n-body sample in a container, and Docker's own errors, explained.

The sample counts 20 flops an interaction, as gpud's own n-body does.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from gpud.core.advice import Situation
from gpud.core.errors import WireError
from gpud.core.report import ContainerFigure
from gpud.core.sample import Failure, Reason
from gpud.core.toolkit import GENERATE, INSTALL, RESTART

LONGEST_DETAIL = 600
FLOPS_PER_INTERACTION = 20
LARGEST_OUTPUT = 32 * 1024
AGREES_WITHIN = 0.01
"""The printed figures are rounded to three decimals; more than this is no rounding."""

_NUMBER = r"(\d{1,12}(?:\.\d{1,6})?)"
_LINES: Final = {
    "device": re.compile(
        r'GPU Device (\d{1,3}): "[^"]{0,64}" with compute capability (\d{1,2}\.\d{1,2})'
    ),
    "name": re.compile(r"> Compute \d{1,2}\.\d{1,2} CUDA device: \[(.{1,96})\]"),
    "time": re.compile(rf"(\d{{1,9}}) bodies, total time for (\d{{1,7}}) iterations: {_NUMBER} ms"),
    "interactions": re.compile(rf"= {_NUMBER} billion interactions per second"),
    "flops": re.compile(
        rf"= {_NUMBER} single-precision GFLOP/s at (\d{{1,3}}) flops per interaction"
    ),
}


def parsed(output: str) -> ContainerFigure:
    """Read the sample's benchmark.

    Units: base units out. Errors: ``WireError`` unless each line is there once and all figures
    agree with the time and the number of bodies: the text comes out of a container.
    """
    if len(output) > LARGEST_OUTPUT:
        raise WireError(f"more than {LARGEST_OUTPUT} characters of output")
    lines = [line.strip() for line in output.splitlines()]
    matched: dict[str, re.Match[str]] = {}
    for what, pattern in _LINES.items():
        matches = [match for line in lines if (match := pattern.fullmatch(line))]
        if len(matches) != 1:
            many = "no line" if not matches else f"{len(matches)} lines"
            raise WireError(f"{many} with the {what} of the benchmark; {_excerpt(lines)}")
        matched[what] = matches[0]
    bodies, iterations = int(matched["time"][1]), int(matched["time"][2])
    elapsed_s = float(matched["time"][3]) / 1e3
    interactions = float(matched["interactions"][1]) * 1e9
    flops = float(matched["flops"][1]) * 1e9
    if int(matched["flops"][2]) != FLOPS_PER_INTERACTION:
        raise WireError(f"{matched['flops'][2]} flops an interaction, not {FLOPS_PER_INTERACTION}")
    if not (elapsed_s > 0 and interactions > 0 and flops > 0):
        raise WireError("a figure of nothing at all")
    counted = float(bodies) * bodies * iterations / elapsed_s
    if not (
        math.isclose(interactions, counted, rel_tol=AGREES_WITHIN)
        and math.isclose(flops, FLOPS_PER_INTERACTION * interactions, rel_tol=AGREES_WITHIN)
    ):
        raise WireError(f"figures that contradict each other; {_excerpt(lines)}")
    return ContainerFigure(
        flops_per_second=flops,
        interactions_per_second=interactions,
        bodies=bodies,
        iterations=iterations,
        gpu_index=int(matched["device"][1]),
        gpu_name=matched["name"][1],
        compute_capability=matched["device"][2],
    )


def _excerpt(lines: list[str]) -> str:
    last = next((line for line in reversed(lines) if line), "")
    return f"the last line is {last[:120]!r}" if last else "it printed nothing"


@dataclass(frozen=True, slots=True)
class Rule:
    """One error of Docker's: how it is recognised, what it means and what to do."""

    pattern: str  # searched for without regard to case
    reason: Reason
    meaning: str
    fix: str  # or the ``Situation``, where it depends on the platform


RULES = (
    Rule(
        r'could not select device driver "[^"]*" with capabilities: \[\[gpu\]\]',
        Reason.TOOLKIT_MISSING,
        "dockerd found no NVIDIA Container Toolkit when it started",
        INSTALL,
    ),
    Rule(
        r"unknown or invalid runtime name: ?nvidia|unknown runtime specified nvidia",
        Reason.RUNTIME_UNKNOWN,
        "dockerd has no runtime of the name nvidia",
        INSTALL,
    ),
    Rule(
        r"WSL environment detected but no adapters were found",
        Reason.NO_DEVICE,
        "the toolkit sees WSL and no GPU in it: WSL 1, no NVIDIA GPU, or a driver too old",
        "look whether /dev/dxg is there and nvidia-smi answers; update the NVIDIA driver on the "
        "Windows side, then `wsl --shutdown` from Windows",
    ),
    Rule(
        r"driver/library version mismatch",
        Reason.DRIVER_MISMATCH,
        "the driver was replaced while this machine ran",
        Situation.MISMATCH,
    ),
    Rule(
        r"load library failed: \S*libnvidia-ml\.so|libnvidia-ml\.so\.1: cannot open",
        Reason.LIBRARY_MISSING,
        "the toolkit does not find the driver's NVML library",
        Situation.LIBRARY_UNSEEN,
    ),
    Rule(
        r"nvml error: driver not loaded|nvidia-container-cli: device error: no NVIDIA device",
        Reason.INIT_FAILED,
        "the toolkit does not reach the driver",
        Situation.NOT_LOADED,
    ),
    Rule(
        r"requirement error: unsatisfied condition",
        Reason.REQUIREMENT_UNMET,
        "the image asks for a newer CUDA than the driver offers",
        "update the NVIDIA driver, or choose an image made for an older CUDA",
    ),
    Rule(
        r"mount error: .*nvidia-persistenced",
        Reason.MOUNT_FAILED,
        "the socket of nvidia-persistenced cannot be mounted into the container",
        "do not mount /run or /var/run into it, and restart nvidia-persistenced",
    ),
    Rule(
        r"nvidia-container-cli: mount error",
        Reason.MOUNT_FAILED,
        "a file of the driver cannot be mounted into the container",
        f"{RESTART}; when it stays, reinstall nvidia-container-toolkit",
    ),
    Rule(
        r"unresolvable CDI devices",
        Reason.CDI_UNRESOLVED,
        "no CDI file offers the GPU, or it is older than the driver",
        GENERATE,
    ),
    Rule(
        r"CDI device injection failed|failed to inject CDI devices|CDI .*: (?:invalid|failed)",
        Reason.CDI_FAILED,
        "a CDI file is there and cannot be applied",
        GENERATE,
    ),
    Rule(
        r"nvidia-container-cli|nvidia-container-runtime|nvidia-cdi-hook|nvidia-ctk",
        Reason.TOOLKIT_FAILED,
        "the NVIDIA Container Toolkit failed",
        "read its own words; `nvidia-container-cli -k -d /dev/tty info` says more",
    ),
    Rule(
        r"no CUDA-capable device|only 0 Devices available|cudaErrorNoDevice",
        Reason.NO_DEVICE,
        "inside the container CUDA sees no GPU",
        Situation.CONTAINER_BLIND,
    ),
    Rule(
        r"CUDA driver version is insufficient|cudaErrorInsufficientDriver",
        Reason.DRIVER_MISMATCH,
        "the image was built for a newer CUDA than the driver offers",
        Situation.TOO_OLD,
    ),
)
"""The first that fits holds, so what says more comes first."""


def explained(text: str, otherwise: Reason) -> Failure:
    """Turn Docker's or the sample's own words into a failure a person can act on.

    Its advice may be a ``Situation``: ``advice.worded`` puts that into words.
    """
    own = " ".join(text.split())
    for rule in RULES:
        if match := re.search(rule.pattern, own, re.IGNORECASE):
            return Failure(rule.reason, f"{rule.meaning}; {_around(own, match)}", advice=rule.fix)
    return Failure(otherwise, _around(own, None) or "no word about why")


def _around(text: str, match: re.Match[str] | None) -> str:
    """Keep the part of a long chain of wrapped errors that holds the one that counts."""
    if len(text) <= LONGEST_DETAIL:
        return text
    start = 0 if match is None else max(0, match.start() - LONGEST_DETAIL // 3)
    return text[start : start + LONGEST_DETAIL]
