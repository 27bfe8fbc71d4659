"""What each CUresult means for a person on WSL2. A table; it loads nothing."""

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
BUSY = "another program holds the GPU exclusively; close it and wait for the next run"

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
"""An unlisted code from one of these means that CUDA did not start at all."""

MEANING: dict[int, tuple[Reason, str | None]] = {
    2: (Reason.OUT_OF_MEMORY, "close programs that use GPU memory, in Windows too"),
    3: (Reason.INIT_FAILED, None),
    34: (Reason.DRIVER_MISMATCH, "a stub from a CUDA toolkit was loaded. " + STRAY),
    36: (Reason.UNSUPPORTED, TOO_OLD),
    46: (Reason.INIT_FAILED, BUSY),
    100: (Reason.NO_DEVICE, STRAY),
    101: (Reason.NO_DEVICE, STRAY),
    200: (Reason.PTX_REJECTED, TOO_OLD),
    209: (Reason.PTX_REJECTED, "this GPU is older than the kernels are written for"),
    214: (Reason.DEVICE_LOST, "the GPU's memory has an uncorrectable error; " + RESTART),
    218: (Reason.PTX_REJECTED, TOO_OLD),
    220: (Reason.DEVICE_LOST, None),
    221: (Reason.PTX_REJECTED, NO_JIT),
    222: (Reason.PTX_REJECTED, TOO_OLD),
    300: (Reason.PTX_REJECTED, TOO_OLD),
    304: (Reason.INIT_FAILED, "the operating system blocks access to the GPU; " + RESTART),
    600: (Reason.LAUNCH_TIMEOUT, RESET),
    700: (Reason.LAUNCH_FAILED, None),
    701: (Reason.LAUNCH_FAILED, None),
    702: (Reason.LAUNCH_TIMEOUT, RESET),
    710: (Reason.LAUNCH_FAILED, None),
    715: (Reason.LAUNCH_FAILED, None),
    716: (Reason.LAUNCH_FAILED, None),
    717: (Reason.LAUNCH_FAILED, None),
    718: (Reason.LAUNCH_FAILED, None),
    719: (Reason.LAUNCH_FAILED, "if it happens again, " + RESTART),
    801: (Reason.UNSUPPORTED, None),
    802: (Reason.INIT_FAILED, "the system is not ready yet; the next run may do better"),
    803: (Reason.DRIVER_MISMATCH, MISMATCH),
    804: (Reason.DRIVER_MISMATCH, MISMATCH),
    999: (Reason.CUDA_ERROR, "the driver gives no reason; if it stays, " + RESTART),
}
"""By CUresult; codes are plain integers because drivers return some that no header lists."""


def failure(function: str, code: int, *, name: str | None, text: str | None) -> Failure:
    """Put a refused driver call into words; ``name`` and ``text`` are the driver's own, if any."""
    usual = Reason.INIT_FAILED if function in INIT_FUNCTIONS else Reason.CUDA_ERROR
    reason, advice = MEANING.get(code, (usual, None))
    if reason is Reason.CUDA_ERROR:
        reason = usual
    words = f"{function}: {name or 'an error the driver cannot name'} ({code})"
    return Failure(
        reason=reason,
        detail=f"{words}: {text}" if text else words,
        function=function,
        code=code,
        advice=advice,
    )
