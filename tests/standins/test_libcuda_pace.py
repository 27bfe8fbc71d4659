"""Launches of the stand-in take the time their script says, whatever its distribution."""

import ctypes
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.standins.build import build_libcuda, build_submit_loop
from tests.standins.loaded import COMPILED, Cuda, loop, run, virtual_time

Open = Callable[..., Cuda]

SIZE = 1 << 20


def paced(folder: Path, script: str, *arguments: object) -> tuple[int, ...]:
    """Median, clock pair, 10th, 90th and 99th percentile in virtual nanoseconds."""
    return loop(build_libcuda(folder, script), *arguments)


def test_a_second_way_of_launching_takes_its_share(tmp_path: Path) -> None:
    script = "launch_ns 5000\nlaunch_ns_second 40000 0.3\n"
    middle, _, low, high, _ = paced(tmp_path, script, 2000)
    assert low == middle == 5_020
    assert high == 40_020
    middle, _, low, _, _ = paced(tmp_path, script.replace("0.3", "0.7"), 2000)
    assert (low, middle) == (5_020, 40_020)


def test_a_tail_leaves_the_middle_where_it_was(tmp_path: Path) -> None:
    script = "launch_ns 5000\nlaunch_tail_ns 100000 0.2\n"
    middle, _, low, high, far = paced(tmp_path, script, 2000)
    assert low == middle == 5_020
    # Pareto: half of a fifth lies above the scale times 2^(2/3) - 1, a twentieth of it above 6.37.
    assert high >= 5_000 + 58_700 * 0.8
    assert far >= 5_000 + 637_000 * 0.7
    assert far <= 5_000 + 100 * 100_000


def slow_launches(library: Path) -> list[int]:
    """Which of 300 launches in a fresh process took the long way."""
    said = run(
        library,
        """
        import time
        out, context, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        ptx = b".version 6.0\\n.target sm_50\\n.entry gpud_empty()"
        made = ctypes.byref
        lib.cuInit(0), lib.cuDevicePrimaryCtxRetain(made(context), 0), lib.cuCtxSetCurrent(context)
        lib.cuModuleLoadDataEx(made(module), ptx, 0, None, None)
        lib.cuModuleGetFunction(made(function), module, b"gpud_empty")
        for index in range(300):
            begun = time.perf_counter_ns()
            code = lib.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
            if code or time.perf_counter_ns() - begun >= 300_000:
                print(index)
        """,
        virtual_time(library.parent, COMPILED),
    )
    assert said.returncode == 0, said.stderr
    return [int(word) for word in said.stdout.split()]


def test_every_process_draws_the_same_launches(tmp_path: Path) -> None:
    library = build_libcuda(tmp_path, "launch_ns_second 300000 0.2\n")
    chosen = slow_launches(library)
    assert slow_launches(library) == chosen
    assert 40 < len(chosen) < 80
    assert len({index % 5 for index in chosen}) == 5


def test_the_first_launches_of_a_process_are_those_of_an_idle_gpu(tmp_path: Path) -> None:
    library = build_libcuda(tmp_path, "idle_launches 20\nidle_launch_ns 300000\n")
    assert slow_launches(library) == list(range(20))


def test_the_first_kernels_are_slower_until_the_clocks_are_up(open_cuda: Open) -> None:
    cuda = open_cuda("kernel_ns 1000\nwarmup_kernels 4\nwarmup_factor 3\n")
    launch = partial(cuda.launch, "gpud_empty", (1, 1), (1, 1))
    taken = [cuda.elapsed_ms(launch) for _ in range(6)]
    assert taken == pytest.approx([0.003, 0.0025, 0.002, 0.0015, 0.001, 0.001], rel=1e-5)


def test_a_gpu_that_never_settles_takes_another_time_for_each_kernel(open_cuda: Open) -> None:
    cuda = open_cuda("kernel_ns 100000\nkernel_jitter 0.5\n")
    launch = partial(cuda.launch, "gpud_empty", (1, 1), (1, 1))
    taken = [cuda.elapsed_ms(launch) for _ in range(100)]
    assert len(set(taken)) == 100
    assert 0.1 <= min(taken) < 0.11
    assert 0.14 < max(taken) <= 0.15


def costs(cuda: Cuda) -> tuple[float, ...]:
    """Milliseconds of an empty kernel, a triad and a copy each way."""
    a, host, size = cuda.alloc(SIZE), ctypes.create_string_buffer(SIZE), ctypes.c_size_t(SIZE)
    work: tuple[Callable[[], object], ...] = (
        partial(cuda.launch, "gpud_empty", (1, 1), (1, 1)),
        partial(cuda.triad, SIZE // 16, a, a, a),
        partial(cuda.call, "cuMemcpyHtoDAsync_v2", a, host, size, cuda.stream),
        partial(cuda.call, "cuMemcpyDtoHAsync_v2", host, a, size, cuda.stream),
    )
    return tuple(cuda.elapsed_ms(each) for each in work)


def test_each_gpu_has_a_speed_of_its_own(tmp_path: Path, open_cuda: Open) -> None:
    script = "devices 2\nlaunch_ns 5000\ndevice.1.launch_ns 50000\n"
    assert paced(tmp_path, script, 500, "submit", 0)[0] == 5_020
    assert paced(tmp_path, script, 500, "submit", 1)[0] == 50_020
    cuda = open_cuda(
        "devices 2\nkernel_ns 1000\nbytes_per_second 1e10\nhost_copy_bytes_per_second 1e9\n"
        "device.1.kernel_ns 3000\ndevice.1.bytes_per_second 4e10\n"
        "device.1.h2d_bytes_per_second 5e9\ndevice.1.d2h_bytes_per_second 6e9\n"
    )
    assert costs(cuda) == pytest.approx((0.001, 3 * SIZE / 1e7, SIZE / 1e6, SIZE / 1e6), rel=1e-5)
    cuda.setup(1)
    assert costs(cuda) == pytest.approx((0.003, 3 * SIZE / 4e7, SIZE / 5e6, SIZE / 6e6), rel=1e-5)


@pytest.mark.parametrize(
    ("mode", "sequence_ns"),
    [
        ("submit", 20_000),
        ("roundtrip", 20_000 + 1_000 + 100_000),
        ("pipelined", 10 * 20_000 + 1_000 + 100_000),
        ("graph", 50_000 + 10 * 3_000 + 10 * 1_000 + 100_000),
    ],
)
def test_the_loop_measures_what_its_mode_says(tmp_path: Path, mode: str, sequence_ns: int) -> None:
    script = "launch_ns 20000\nkernel_ns 1000\nsync_ns 100000\n"
    script += "graph_launch_ns 50000\ngraph_node_ns 3000\n"
    middle, pair, low, high, far = paced(tmp_path, script, 300, mode, 0, 10)
    assert pair == 20
    assert low == middle == high == far == sequence_ns + pair


@pytest.mark.parametrize("arguments", [("0",), ("5", "sideways"), ("5", "graph", "0", "0")])
def test_the_loop_refuses_what_it_does_not_know(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    command = list(map(str, (build_submit_loop(tmp_path), build_libcuda(tmp_path), *arguments)))
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2
