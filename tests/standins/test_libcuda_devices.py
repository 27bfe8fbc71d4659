"""What kind of GPU a stand-in says it is: an instance of one, one that is shared, a small one."""

import ctypes
from collections.abc import Callable

import pytest

from tests.standins.loaded import Cuda

Open = Callable[..., Cuda]

OPTIN, MPS = 97, 133  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, _MPS_ENABLED


def attribute(cuda: Cuda, number: int, device: int) -> int:
    value = ctypes.c_int(-1)
    cuda.call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
    return value.value


def uuid(cuda: Cuda, function: str, device: int) -> str:
    raw = ctypes.create_string_buffer(16)
    cuda.call(function, raw, device)
    return raw.raw.hex()


def test_an_instance_has_its_profile_in_its_name_and_a_uuid_of_its_own(open_cuda: Open) -> None:
    given = "00112233-4455-6677-8899-aabbccddeeff"
    cuda = open_cuda(
        "devices 3\ndevice.1.name NVIDIA A100\ndevice.1.mig 1g.5gb\n"
        f"device.1.uuid {given}\ndevice.2.mig 2g.10gb\ndevice.2.mig_uuid {given}\n"
    )
    name = ctypes.create_string_buffer(64)
    cuda.call("cuDeviceGetName", name, 64, 1)
    assert name.value == b"NVIDIA A100 MIG 1g.5gb"
    plain = [uuid(cuda, "cuDeviceGetUuid", device) for device in range(3)]
    newer = [uuid(cuda, "cuDeviceGetUuid_v2", device) for device in range(3)]
    assert plain[1] == newer[2] == given.replace("-", "")
    assert newer[0] == plain[0]
    assert len({*plain, *newer}) == 4
    assert cuda.lib.cuDeviceGetUuid_v2(ctypes.create_string_buffer(16), 3) == 101


def test_a_gpu_that_is_shared_says_so(open_cuda: Open) -> None:
    cuda = open_cuda("devices 2\ndevice.1.mps 1\n")
    assert [attribute(cuda, MPS, device) for device in range(2)] == [0, 1]


def test_a_driver_before_12_3_does_not_know_whether_it_is_shared(open_cuda: Open) -> None:
    cuda, value = open_cuda("driver_version 12020\ndevice.0.mps 1\n"), ctypes.c_int()
    assert cuda.lib.cuDeviceGetAttribute(ctypes.byref(value), MPS, 0) == 1


@pytest.mark.parametrize(
    ("capability", "kib"), [((5, 0), 48), ((7, 5), 64), ((8, 0), 163), ((8, 9), 99), ((9, 0), 227)]
)
def test_a_block_may_ask_for_what_its_generation_has(
    open_cuda: Open, capability: tuple[int, int], kib: int
) -> None:
    major, minor = capability
    cuda = open_cuda(f"device.0.cc_major {major}\ndevice.0.cc_minor {minor}\n")
    assert attribute(cuda, OPTIN, 0) == kib * 1024
