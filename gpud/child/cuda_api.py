"""The prototypes of the driver functions that gpud calls, and a null call of each: no driver.

Source: cuda.h. Suffixes matter: the unsuffixed forms of these functions have 32-bit arguments.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache, partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

HANDLE = ctypes.c_void_p
DEVICE = ctypes.c_int
POINTER = ctypes.c_uint64  # CUdeviceptr
SIZE = ctypes.c_size_t
OUT = ctypes.c_void_p  # where a result is written; arguments are made with byref

FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuDriverGetVersion": (OUT,),
    "cuGetErrorName": (ctypes.c_int, OUT),
    "cuGetErrorString": (ctypes.c_int, OUT),
    "cuDeviceGetCount": (OUT,),
    "cuDeviceGet": (OUT, ctypes.c_int),
    "cuDeviceGetName": (OUT, ctypes.c_int, DEVICE),
    "cuDeviceGetUuid": (OUT, DEVICE),
    "cuDeviceGetAttribute": (OUT, ctypes.c_int, DEVICE),
    "cuDeviceTotalMem_v2": (OUT, DEVICE),
    "cuDeviceGetPCIBusId": (OUT, ctypes.c_int, DEVICE),
    "cuDevicePrimaryCtxSetFlags_v2": (DEVICE, ctypes.c_uint),
    "cuDevicePrimaryCtxRetain": (OUT, DEVICE),
    "cuDevicePrimaryCtxRelease_v2": (DEVICE,),
    "cuCtxSetCurrent": (HANDLE,),
    "cuCtxSynchronize": (),
    "cuDeviceCanAccessPeer": (OUT, DEVICE, DEVICE),
    "cuCtxEnablePeerAccess": (HANDLE, ctypes.c_uint),
    "cuCtxDisablePeerAccess": (HANDLE,),
    "cuModuleLoadDataEx": (OUT, OUT, ctypes.c_uint, OUT, OUT),
    "cuModuleGetFunction": (OUT, HANDLE, ctypes.c_char_p),
    "cuModuleUnload": (HANDLE,),
    "cuLaunchKernel": (
        HANDLE,  # function
        *(ctypes.c_uint,) * 7,  # grid x y z, block x y z, bytes of dynamic shared memory
        *(HANDLE,) * 3,  # stream, kernel parameters, extra
    ),
    "cuStreamCreate": (OUT, ctypes.c_uint),
    "cuStreamSynchronize": (HANDLE,),
    "cuStreamQuery": (HANDLE,),
    "cuStreamWaitEvent": (HANDLE, HANDLE, ctypes.c_uint),
    "cuStreamDestroy_v2": (HANDLE,),
    "cuEventCreate": (OUT, ctypes.c_uint),
    "cuEventRecord": (HANDLE, HANDLE),
    "cuEventSynchronize": (HANDLE,),
    "cuEventElapsedTime": (OUT, HANDLE, HANDLE),
    "cuEventDestroy_v2": (HANDLE,),
    "cuMemGetInfo_v2": (OUT, OUT),
    "cuMemAlloc_v2": (OUT, SIZE),
    "cuMemFree_v2": (POINTER,),
    "cuMemHostAlloc": (OUT, SIZE, ctypes.c_uint),
    "cuMemFreeHost": (HANDLE,),
    "cuMemcpyHtoD_v2": (POINTER, HANDLE, SIZE),
    "cuMemcpyDtoH_v2": (HANDLE, POINTER, SIZE),
    "cuMemcpyHtoDAsync_v2": (POINTER, HANDLE, SIZE, HANDLE),
    "cuMemcpyDtoHAsync_v2": (HANDLE, POINTER, SIZE, HANDLE),
    "cuMemcpyDtoDAsync_v2": (POINTER, POINTER, SIZE, HANDLE),
    "cuMemcpyPeerAsync": (POINTER, HANDLE, POINTER, HANDLE, SIZE, HANDLE),
    "cuMemsetD32_v2": (POINTER, ctypes.c_uint, SIZE),
}
GRAPH: dict[str, tuple[Any, ...]] = {  # CUDA 11.4
    "cuGraphCreate": (OUT, ctypes.c_uint),
    "cuGraphAddKernelNode": (OUT, HANDLE, OUT, SIZE, OUT),
    "cuGraphInstantiateWithFlags": (OUT, HANDLE, ctypes.c_ulonglong),
    "cuGraphLaunch": (HANDLE, HANDLE),
    "cuGraphExecDestroy": (HANDLE,),
    "cuGraphDestroy": (HANDLE,),
}
OPTIONAL: dict[str, tuple[Any, ...]] = {
    "cuDeviceGetUuid_v2": (OUT, DEVICE),  # CUDA 11.4
    "cuModuleGetLoadingMode": (OUT,),  # CUDA 11.7
    "cuModuleGetGlobal_v2": (OUT, OUT, HANDLE, ctypes.c_char_p),
    "cuFuncGetAttribute": (OUT, ctypes.c_int, HANDLE),
    "cuGraphAddKernelNode_v2": (OUT, HANDLE, OUT, SIZE, OUT),  # CUDA 12.0
    **GRAPH,
}
"""What a driver may lack: only what needs it is missing then."""


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2 of cuda.h, which begins with all of _v1."""

    _fields_ = (
        ("function", HANDLE),
        *((f"{of}_{axis}", ctypes.c_uint) for of in ("grid", "block") for axis in "xyz"),
        ("shared_bytes", ctypes.c_uint),
        ("parameters", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", HANDLE),
        ("context", HANDLE),
    )


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def null_call(prototype: Sequence[Any], arguments: Sequence[object]) -> Callable[[], int]:
    """Build a call of ``abs`` with this prototype and these arguments, the first one replaced by 0.

    The arguments beyond the first are converted and passed like those of the real call; ``abs``
    looks at the first only and gives 0.
    """
    function = _libc()["abs"]  # an item, not the attribute: a function object of its own
    function.argtypes = tuple(prototype)
    function.restype = ctypes.c_int
    return partial(function, prototype[0](0), *arguments[1:])
