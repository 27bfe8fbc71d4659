"""What each CUresult means for a person on WSL2. A table; it loads nothing.

Source: cuda.h of CUDA 13.5, every code of it, and 35, which drivers give although no header of
theirs lists it.
"""

from __future__ import annotations

from gpud.core.sample import Failure, Reason

RESTART = "run `wsl --shutdown` in Windows and open the distribution again"
STRAY = (
    "no NVIDIA adapter reaches this distribution, or a Linux driver package shadows the library "
    "that Windows provides: `gpud doctor` shows which file was loaded; it belongs in "
    "/usr/lib/wsl/lib"
)
GONE = "that GPU is gone and others are not: look at its power and its slot, then " + RESTART
MISMATCH = f"the driver was replaced while WSL ran: {RESTART}"
RESET = (
    "Windows reset the GPU because work did not yield for 2 s, or its memory could not be made "
    "resident: close what fills the GPU's memory; if it stays, " + RESTART
)
TOO_OLD = "update the NVIDIA driver in Windows (R495 or newer), then " + RESTART
NO_JIT = "the driver lacks its PTX compiler: install the NVIDIA driver in Windows again"
JIT_OFF = "CUDA_DISABLE_PTX_JIT is set for gpud; unset it"
BUSY = "another program holds the GPU exclusively; close it and wait for the next run"
FULL = "close programs that use GPU memory, in Windows too"
ECC = "the GPU's memory has an uncorrectable error; " + RESTART
LINK = "the link between GPUs has an error that cannot be corrected; " + RESTART
BLOCKED = "the operating system blocks access to the GPU; " + RESTART
WAIT = "the system is not ready yet; the next run may do better"
LICENCE = "the GPU is a virtual one without a licence for compute work"
FORBIDDEN = (
    "the driver forbids it: look for a profiler or a debugger that holds the GPU, and whether this "
    "user may use it"
)
MPS = "the CUDA MPS server does not serve gpud: `nvidia-cuda-mps-control` shows its state"
MPS_FULL = "the CUDA MPS server has all the clients it takes: end one of them"
AGAIN = "if it happens again, " + RESTART
SILENT = "the driver gives no reason; if it stays, " + RESTART
OLD_GPU = "this GPU is older than the kernels are written for"
OURS = "gpud and this driver disagree about a call: report it with the driver's version"

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

_GROUPS: tuple[tuple[Reason, str | None, tuple[int, ...]], ...] = (
    # invalid value, context, handle, state; contexts and arrays that are or are not mapped; names
    (Reason.INVALID_CALL, OURS, (1, 201, 202, 205, 206, 207, 208, 210, 211, 212, 213)),
    (Reason.INVALID_CALL, OURS, (215, 216, 219, 224, 225, 301, 302, 303, 400, 401, 402, 500)),
    # peers, registered host memory, contexts of others, clusters, cooperative launches
    (Reason.INVALID_CALL, OURS, (704, 705, 708, 711, 712, 713, 720, 812, 912, 913, 914, 915)),
    (Reason.OUT_OF_MEMORY, FULL, (2,)),
    (Reason.INIT_FAILED, None, (3,)),  # also: after a fork
    (Reason.DEVICE_LOST, AGAIN, (4,)),  # the driver shuts down
    (Reason.INVALID_CALL, OURS, (5, 6, 7, 8)),  # profiler control, which gpud never uses
    (Reason.DRIVER_MISMATCH, "a stub from a CUDA toolkit was loaded. " + STRAY, (34,)),
    (Reason.DRIVER_MISMATCH, TOO_OLD, (35, 36, 227)),
    (Reason.DEVICE_BUSY, BUSY, (46,)),
    (Reason.OUT_OF_MEMORY, FULL, (47,)),  # multicast resources
    (Reason.NO_DEVICE, STRAY, (100, 101)),
    (Reason.NOT_PERMITTED, LICENCE, (102,)),
    (Reason.PTX_REJECTED, TOO_OLD, (200, 218, 222, 300)),
    (Reason.PTX_REJECTED, OLD_GPU, (209,)),
    (Reason.PTX_REJECTED, NO_JIT, (221,)),
    (Reason.PTX_REJECTED, JIT_OFF, (223,)),
    (Reason.ECC_ERROR, ECC, (214,)),
    (Reason.ECC_ERROR, LINK, (220,)),  # NVLink
    (Reason.ECC_ERROR, ECC, (226,)),  # contained: this process only, its memory is retired
    (Reason.UNSUPPORTED, None, (217, 703, 801, 811)),
    (Reason.INIT_FAILED, BLOCKED, (304,)),
    (Reason.LAUNCH_TIMEOUT, RESET, (600, 702)),
    # an address, an instruction, a stack or a counter of the kernel is wrong; assert() in it
    (Reason.LAUNCH_FAILED, None, (700, 710, 715, 716, 717, 718)),
    (Reason.LAUNCH_FAILED, None, (701,)),  # more registers than there are
    (Reason.LAUNCH_FAILED, AGAIN, (714, 719, 721)),
    (Reason.DEVICE_LOST, AGAIN, (709,)),  # the context was destroyed under us
    (Reason.NOT_PERMITTED, FORBIDDEN, (800,)),
    (Reason.NOT_READY, WAIT, (802,)),
    (Reason.DRIVER_MISMATCH, MISMATCH, (803, 804)),
    (Reason.MPS_FAILED, MPS, (805, 806, 807, 810)),
    (Reason.MPS_FAILED, MPS_FULL, (808, 809)),
    (Reason.GRAPH_FAILED, OURS, (900, 901, 902, 903, 904, 905, 906, 907, 908, 910, 917, 918)),
    (Reason.LAUNCH_TIMEOUT, RESET, (909,)),
    (Reason.DEVICE_LOST, AGAIN, (911,)),  # a device beyond the GPU
    (Reason.NOT_READY, WAIT, (916, 919)),  # keys of a confidential GPU, the fabric
    (Reason.CUDA_ERROR, SILENT, (999,)),
)

MEANING: dict[int, tuple[Reason, str | None]] = {
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
