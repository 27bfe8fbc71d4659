"""The launch probe on a device that refuses a single launch and then goes on as if nothing was."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpud.child.budget import Budget
from gpud.child.cpu import CpuGpu
from gpud.child.probes import launch
from gpud.core.errors import ProbeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpud.child.device import Argument, Call, Kernel


class Refusing(CpuGpu):
    """The CPU reference, on which launches of given numbers, from 1, give given codes."""

    def __init__(self, codes: dict[int, int]) -> None:
        super().__init__()
        self.codes = codes
        self.launched = 0

    def launch(
        self, kernel: Kernel, grid: tuple[int, int], block: tuple[int, int], *arguments: Argument
    ) -> Call:
        call = super().launch(kernel, grid, block, *arguments)

        def counted() -> int:
            self.launched += 1
            return self.codes.get(self.launched) or call.real()

        return replace(call, real=counted)


@pytest.fixture
def refusing() -> Iterator[Callable[[dict[int, int]], Refusing]]:
    made: list[Refusing] = []

    def make(codes: dict[int, int]) -> Refusing:
        made.append(Refusing(codes))
        return made[-1]

    yield make
    for gpu in made:
        gpu.close()


def test_every_launch_is_one_that_was_asked_for(
    refusing: Callable[[dict[int, int]], Refusing],
) -> None:
    gpu = refusing({})
    outcome = launch.run(gpu, Budget(30), seed=1)
    counts = {sample.mode: sample.n for sample in outcome.samples}
    assert counts == {"submit": 4000, "roundtrip": 300, "pipelined": 5, "first_launch": 1}
    assert gpu.launched == 1 + 200 + 4000 + 300 + 5 * 200 + 250


@pytest.mark.parametrize("number", [1, 2, 201, 202, 450, 4201, 4202, 4501, 4502, 5501, 5502, 5751])
def test_one_refused_launch_spoils_the_run_wherever_it_is(
    refusing: Callable[[dict[int, int]], Refusing], number: int
) -> None:
    with pytest.raises(ProbeError, match="gave 700"):
        launch.run(refusing({number: 700}), Budget(30), seed=1)


@pytest.mark.parametrize("number", [300, 4600])
def test_codes_of_one_row_are_not_mixed_into_a_third(
    refusing: Callable[[dict[int, int]], Refusing], number: int
) -> None:
    with pytest.raises(ProbeError, match=r"gave (600|719)$"):
        launch.run(refusing({number: 600, number + 1: 719}), Budget(30), seed=1)
