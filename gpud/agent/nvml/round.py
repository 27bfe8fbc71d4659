"""One collection: every call at most once, and what the answers make of the fields."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from gpud.agent.nvml import queries
from gpud.agent.nvml.calls import Call, Plain
from gpud.agent.nvml.refusals import LOST, NOT_ASKED, Refusal, guarded
from gpud.core.sample import Absent, Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpud.agent.nvml.queries import Query

NAME = "nvml"
"""The source of every reading, as the metrics name it."""

IDENTITY = frozenset({"name", "uuid", "pci_bus_id"})
"""What a GPU goes by; it stays true of one that is lost."""

Answer: TypeAlias = Plain | Refusal
Key: TypeAlias = tuple[Call, int | None]


class Round:
    """One collection. ``kept`` is what need not be asked; what will not change is added to it.

    ``said`` is what was asked just now. Errors: those of ``ask``, which asks a call of a GPU, or of
    the machine.
    """

    def __init__(
        self,
        ask: Callable[[Call, int | None], Answer],
        kept: dict[Key, Answer],
        said: dict[Key, Answer],
    ) -> None:
        self._ask = ask
        self._kept = kept
        self._said = said
        self._lost: dict[int | None, Refusal] = {}

    def readings(self, gpu: int | None, asked: Mapping[str, Query]) -> list[Reading]:
        """Give a reading of every field asked for, in order; absent ones too."""
        found = [self._reading(gpu, field, query) for field, query in asked.items()]
        lost = self._lost.get(gpu)
        if lost is None:
            return found
        return [
            reading if reading.field in IDENTITY else _absent(gpu, reading.field, lost)
            for reading in found
        ]

    def silence(self, gpu: int) -> Refusal | None:
        """Tell why a GPU gives nothing any more: it is lost, or failed in all it was asked."""
        said = [answer for (_, of), answer in self._said.items() if of == gpu]
        failed = [a for a in said if isinstance(a, Refusal) and a.absent is Absent.FAILED]
        if gpu in self._lost:
            return self._lost[gpu]
        return failed[0] if len(failed) == len(said) > 1 else None

    def _reading(self, gpu: int | None, field: str, query: Query) -> Reading:
        answers: list[Plain] = []
        refused = NOT_ASKED
        for group in query.groups:
            answer = self._first(group, gpu)
            if not isinstance(answer, Refusal):
                answers.append(answer)
            elif answer.absent is not Absent.UNSUPPORTED:  # a part of the whole is missing
                return _absent(gpu, field, answer)
            else:
                refused = answer
        if not answers:
            return _absent(gpu, field, refused)
        value = guarded(query.groups[0][0], partial(queries.valued, field, query, answers))
        if isinstance(value, Refusal):
            return _absent(gpu, field, value)
        return Reading(gpu, field, value, NAME)

    def _first(self, group: Sequence[Call], gpu: int | None) -> Answer:
        """Give the answer of the first call that the driver knows."""
        answer: Answer = NOT_ASKED
        for call in group:
            answer = self._answer(call, gpu)
            if not isinstance(answer, Refusal) or answer.absent is not Absent.UNSUPPORTED:
                break
        return answer

    def _answer(self, call: Call, gpu: int | None) -> Answer:
        key = call, gpu
        known = self._kept.get(key, self._said.get(key, self._lost.get(gpu)))
        if known is not None:
            return known
        answer = self._said[key] = self._ask(call, gpu)
        if isinstance(answer, Refusal):
            if answer.absent is Absent.UNSUPPORTED:
                self._kept[key] = answer
            elif answer.code == LOST:  # a call to a GPU that is gone may take long
                self._lost[gpu] = answer
        elif call.once:
            self._kept[key] = answer
        return answer


def _absent(gpu: int | None, field: str, refused: Refusal) -> Reading:
    return Reading(gpu, field, refused.absent, NAME, refused.words)
