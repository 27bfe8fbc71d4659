"""Launches of the stand-in take the time their script says, whatever its distribution."""

import subprocess
from collections.abc import Callable
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
