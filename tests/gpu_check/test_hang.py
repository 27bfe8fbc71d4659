"""A driver that hangs beside `deploy/gpu-check`, and the count of its GPU contexts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud.requests import ContextsRequest, WaitLine
from tests.gpu_check import building
from tests.gpu_check.building import ROOT
from tests.gpu_check.test_command import GIVEN, SCRIPT, using
from tests.serving import listening
from tests.standins.build import build_libcuda
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from gpud.requests import AnswerLine, ApiRequest

WSL2, LINUX = "6.6.87.2-microsoft-standard-WSL2", "6.8.0-45-generic"
LIMIT_S, LONGER_S = 10, 250
"""For the process that hangs, and for all others: they are slow on a busy machine."""
ON_ANOTHER_KERNEL = """
import platform, sys
platform.release = lambda: {kernel!r}
sys.path[:0] = [{deploy!r}, {root!r}]
from gpu_check import main, processes
processes.FIRST_S, processes.RATIO, processes.REFERENCE_S = {child_s}, 0.0, {reference_s}
sys.exit(main.main(sys.argv[1:]))
"""


def command(library: Path, out: Path, kernel: str, *options: str, hangs: str = "") -> list[str]:
    """Give the command on a machine of that kernel, where one of both programs may hang."""
    limits = {
        f"{name}_s": LIMIT_S if name == hangs else LONGER_S for name in ("child", "reference")
    }
    program = ON_ANOTHER_KERNEL.format(
        kernel=kernel, deploy=str(ROOT / "deploy"), root=str(ROOT), **limits
    )
    given = (*GIVEN, "--pairs", "1", "--library", str(library), "--out", str(out), *options)
    return [sys.executable, "-S", "-c", program, *given]


def ended(home: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": building.path(), "HOME": str(home), "GPUD_HOME": str(home)}
    return subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=LONGER_S, env=environment
    )


@pytest.fixture
def left() -> Iterator[list[int]]:
    """Processes that the check leaves; they hang in no driver of this machine."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "their end")


@pytest.mark.parametrize(
    ("call", "hangs"),
    [("cuCtxSynchronize", "child"), ("cuGraphAddKernelNode", "reference")],
)
def test_in_wsl2_what_hangs_gets_no_signal_and_the_check_ends(
    tmp_path: Path, left: list[int], call: str, hangs: str
) -> None:
    library = build_libcuda(tmp_path, f"{SCRIPT}hang {call}\n")
    only = ("--only", "launch", "--only", "event")
    words = command(library, tmp_path / "out", WSL2, *only, hangs=hangs)
    check = ended(tmp_path, words)
    left += using(library)
    assert check.returncode == 2, check.stderr
    assert len(left) == 1, "nothing was started beside it"
    name = sys.executable if hangs == "child" else hangs
    words_of_it = f"{name} (process {left[0]}) did not end within {LIMIT_S} s and was left alone"
    assert words_of_it in check.stderr
    assert "wsl --shutdown" in check.stderr
    assert "Traceback" not in check.stderr


def test_on_plain_linux_what_hangs_is_ended(tmp_path: Path, left: list[int]) -> None:
    library = build_libcuda(tmp_path, f"{SCRIPT}hang cuGraphAddKernelNode\n")
    words = command(library, tmp_path / "out", LINUX, "--only", "launch", hangs="reference")
    check = ended(tmp_path, words)
    left += using(library)
    assert check.returncode == 2, check.stderr
    assert left == []
    assert f"did not end within {LIMIT_S} s\n" in check.stderr


class Counting:
    """An agent that counts contexts, and finds their budget spent."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    async def answer(self, request: ApiRequest, _: int) -> AsyncGenerator[AnswerLine | bytes, None]:
        assert isinstance(request, ContextsRequest)
        self.counts.append(request.count)
        yield WaitLine(message="all are used up")


def test_contexts_are_counted_by_the_gpud_that_runs(tmp_path: Path) -> None:
    ledger, agent = tmp_path / "ledger", Counting()
    library = build_libcuda(tmp_path, f"{SCRIPT}ledger {ledger}\n")
    words = command(library, tmp_path / "out", WSL2, "--only", "event", "--pairs", "6")
    with listening(tmp_path / "run/gpud/api", agent):
        check = ended(tmp_path, words)
    made = [line for line in ledger.read_text().splitlines() if json.loads(line)]
    assert agent.counts == [10, 2]
    assert len(made) == 12
    assert check.stderr.count("gpu-check: all are used up") == len(agent.counts)
    assert "in no count of gpud" not in check.stderr


@pytest.mark.parametrize(("kernel", "said"), [(WSL2, True), (LINUX, False)])
def test_where_no_gpud_counts_contexts_a_person_in_wsl2_hears_it(
    tmp_path: Path, kernel: str, *, said: bool
) -> None:
    library = build_libcuda(tmp_path, SCRIPT)
    check = ended(tmp_path, command(library, tmp_path / "out", kernel, "--only", "event"))
    message = "2 GPU contexts of this check are in no count of gpud: no gpud runs (`gpud up`"
    assert (message in check.stderr) == said
