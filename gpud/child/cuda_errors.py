"""Table of every CUresult: its reason and the advice that goes with it. It loads nothing.

Source: cuda.h of CUDA 13.5, every code of it, and 35, which drivers give although no header of
theirs lists it.
"""

from __future__ import annotations

from gpud.core.advice import Situation
from gpud.core.sample import Failure, Reason

INIT_FUNCTIONS = frozenset(
    {
        "cuInit",
        "cuDriverGetVersion",
        "cuDeviceGetCount",
        "cuDeviceGet",
        "cuDevicePrimaryCtxRetain",
        "cuDevicePrimaryCtxSetFlags_v2",
        "cuCtxSetCurrent",
    }
)
"""A code that explains nothing, from one of these, means that CUDA did not start at all."""
UNEXPLAINED = frozenset({Reason.CUDA_ERROR, Reason.INVALID_CALL})

_GROUPS: tuple[tuple[Reason, Situation | None, tuple[int, ...]], ...] = (
    # invalid value, context, handle, state; contexts and arrays that are or are not mapped; names
    (Reason.INVALID_CALL, Situation.OURS, (1, 201, 202, 205, 206, 207, 208, 210, 211, 212, 213)),
    (Reason.INVALID_CALL, Situation.OURS, (215, 216, 219, 224, 225, 301, 302, 303, 400, 401)),
    (Reason.INVALID_CALL, Situation.OURS, (402, 500)),
    # peers, registered host memory, contexts of others, clusters, cooperative launches
    (Reason.INVALID_CALL, Situation.OURS, (704, 705, 708, 712, 713, 720, 812)),
    (Reason.INVALID_CALL, Situation.OURS, (912, 913, 914, 915)),
    (Reason.OUT_OF_MEMORY, Situation.FULL, (2,)),
    (Reason.INIT_FAILED, None, (3,)),  # also: after a fork
    (Reason.DEVICE_LOST, Situation.AGAIN, (4,)),  # the driver shuts down
    (Reason.INVALID_CALL, Situation.OURS, (5, 6, 7, 8)),  # profiler control, which gpud never uses
    (Reason.DRIVER_MISMATCH, Situation.STUB, (34,)),
    (Reason.DRIVER_MISMATCH, Situation.TOO_OLD, (35, 36, 227)),
    (Reason.DEVICE_BUSY, Situation.BUSY, (46,)),
    (Reason.OUT_OF_MEMORY, Situation.FULL, (47,)),  # multicast resources
    (Reason.NO_DEVICE, Situation.NO_GPU, (100, 101)),
    (Reason.NOT_PERMITTED, Situation.LICENCE, (102,)),
    (Reason.PTX_REJECTED, Situation.TOO_OLD, (200, 218, 222, 300)),
    (Reason.PTX_REJECTED, Situation.OLD_GPU, (209,)),
    (Reason.PTX_REJECTED, Situation.JIT_MISSING, (221,)),
    (Reason.PTX_REJECTED, Situation.JIT_OFF, (223,)),
    (Reason.ECC_ERROR, Situation.ECC, (214,)),
    (Reason.ECC_ERROR, Situation.LINK, (220,)),  # NVLink
    # contained: this process only, its memory is retired
    (Reason.ECC_ERROR, Situation.ECC, (226,)),
    (Reason.UNSUPPORTED, None, (217, 703, 711, 801, 811)),
    (Reason.INIT_FAILED, Situation.BLOCKED, (304,)),
    (Reason.LAUNCH_TIMEOUT, Situation.RESET, (600, 702)),
    # an address, an instruction, a stack or a counter of the kernel is wrong; assert() in it
    (Reason.LAUNCH_FAILED, None, (700, 710, 715, 716, 717, 718)),
    (Reason.LAUNCH_FAILED, None, (701,)),  # more registers than there are
    (Reason.LAUNCH_FAILED, Situation.AGAIN, (714, 719, 721)),
    (Reason.DEVICE_LOST, Situation.AGAIN, (709,)),  # the context was destroyed under us
    (Reason.NOT_PERMITTED, Situation.FORBIDDEN, (800,)),
    (Reason.NOT_READY, Situation.WAIT, (802,)),
    (Reason.DRIVER_MISMATCH, Situation.MISMATCH, (803, 804)),
    (Reason.MPS_FAILED, Situation.MPS, (805, 806, 807, 810)),
    (Reason.MPS_FAILED, Situation.MPS_FULL, (808, 809)),
    (Reason.GRAPH_FAILED, Situation.OURS, (900, 901, 902, 903, 904, 905, 906, 907, 908)),
    (Reason.GRAPH_FAILED, Situation.OURS, (910, 917, 918)),
    (Reason.LAUNCH_TIMEOUT, Situation.RESET, (909,)),
    (Reason.DEVICE_LOST, Situation.AGAIN, (911,)),  # a device beyond the GPU
    (Reason.NOT_READY, Situation.WAIT, (916, 919)),  # keys of a confidential GPU, the fabric
    (Reason.CUDA_ERROR, Situation.SILENT, (999,)),
)

MEANING: dict[int, tuple[Reason, Situation | None]] = {
    code: (reason, advice) for reason, advice, codes in _GROUPS for code in codes
}
"""By CUresult; codes are plain integers because drivers return some that no header lists."""


def failure(function: str, code: int, *, name: str | None, text: str | None) -> Failure:
    """Put a refused driver call into words; ``name`` and ``text`` are the driver's own, if any."""
    reason, advice = MEANING.get(code, (Reason.CUDA_ERROR, None))
    if reason in UNEXPLAINED and function in INIT_FUNCTIONS:
        reason = Reason.INIT_FAILED
    words = f"{function}: {name or 'an error the driver cannot name'} ({code})"
    return Failure(
        reason=reason,
        detail=f"{words}: {text}" if text else words,
        function=function,
        code=code,
        advice=advice,
    )
