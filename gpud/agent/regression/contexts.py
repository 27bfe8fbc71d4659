"""Contexts: the driver and the machine that a figure was measured with, by which detectors compare.

A *generation* is one set of versions. It goes on while a part becomes known or unknown, ends when
a part becomes another, and is taken up again when what is known fits an earlier one. Windows'
driver and what it brings into WSL (NVML's own version, CUDA's, the folder in the driver store) are
replaced together but seen one after the other: the latter decide only where the driver is unnamed.
"""

from __future__ import annotations

from collections.abc import Mapping  # states are decoded by this type
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from gpud.agent.regression.changes import (
    CUDA_VERSION,
    DRIVER_FOLDER,
    DRIVER_VERSION,
    KERNEL,
    NVML_VERSION,
    WINDOWS_BUILD,
    WSL_VERSION,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.core.sample import Condition

OF_THE_CPU: Final = (KERNEL, WINDOWS_BUILD, WSL_VERSION)
"""What changes a CPU's figures by itself. The driver does not."""
OF_A_GPU: Final = (DRIVER_VERSION, *OF_THE_CPU)
FOLLOWERS: Final = (NVML_VERSION, CUDA_VERSION, DRIVER_FOLDER)
"""What a driver brings with it: its name where it has no other."""
MOST: Final = 64
"""Generations that are remembered: years of updates."""
LONGEST: Final = 64
"""Characters of a version in a label."""
UNKNOWN: Final = "unknown"

_WORDS: Final = {
    DRIVER_VERSION: "{}",
    NVML_VERSION: "NVML {}",
    CUDA_VERSION: "CUDA {}",
    DRIVER_FOLDER: "driver folder {}",
    KERNEL: "kernel {}",
    WINDOWS_BUILD: "Windows {}",
    WSL_VERSION: "WSL {}",
}
"""How a part is written, the one that names a generation first."""


class Difference(NamedTuple):
    """One part in which two generations differ: "driver_version", "572.16", "576.02"."""

    kind: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Generation:
    """One set of versions. ``name`` is for the detector and never changes, ``label`` for people."""

    name: str
    parts: Mapping[str, str]
    label: str


@dataclass(frozen=True, slots=True)
class Contexts:
    """The generations so far, in the order in which they last held: the present one is the last.

    ``deciding`` are the parts that make a generation each by itself.
    """

    deciding: tuple[str, ...]
    generations: tuple[Generation, ...] = ()
    begun: int = 0  # generations, those that are forgotten included

    @property
    def present(self) -> Generation:
        """The generation that holds. Errors: ``IndexError`` before the first run."""
        return self.generations[-1]

    def seen(self, conditions: Mapping[str, Condition]) -> Contexts:
        """Give the contexts after a run with these conditions; ``present`` is the one it is of."""
        known = dict(self._known(conditions))
        if not self.generations:
            return self._begun(known)
        here = self.present
        if not self._agree(here.parts, known):
            known = self._unsaid(here.parts, known) | known
        elif DRIVER_VERSION in here.parts or DRIVER_VERSION not in known:
            return self._grown(here, known)
        # The driver is another, or is named only now: in both cases it may be one of before.
        for one in reversed(self.generations[:-1]):
            if self._agree(one.parts, known) and self._share_a_driver(one.parts, known):
                return self._grown(one, known)
        return self._grown(here, known) if self._agree(here.parts, known) else self._begun(known)

    def label(self, name: str) -> str:
        """Give what people call the generation; one that is forgotten is unknown."""
        return next((one.label for one in self.generations if one.name == name), UNKNOWN)

    def difference(self, old: str, new: str) -> tuple[Difference, ...]:
        """Say in what two generations, by name, differ; a part that either does not know is none.

        What follows the driver is left out where the driver itself is named.
        """
        parts = {one.name: one.parts for one in self.generations}
        before, after = parts.get(old, {}), parts.get(new, {})
        named = DRIVER_VERSION in before and DRIVER_VERSION in after
        kinds = self.deciding if named else (*self.deciding, *self._followers)
        return tuple(
            Difference(kind, before[kind], after[kind])
            for kind in kinds
            if kind in before and kind in after and not _same(kind, before[kind], after[kind])
        )

    @property
    def _followers(self) -> tuple[str, ...]:
        return FOLLOWERS if DRIVER_VERSION in self.deciding else ()

    def _known(self, conditions: Mapping[str, Condition]) -> Iterator[tuple[str, str]]:
        for kind in (*self.deciding, *self._followers):
            text = conditions.get(kind)
            if isinstance(text, str) and text:
                # Half a character, as JSON can spell, could be told to nobody.
                yield kind, text.encode(errors="replace").decode()

    def _agree(self, one: Mapping[str, str], other: Mapping[str, str]) -> bool:
        """Say whether nothing that both know differs."""
        both = one.keys() & other.keys()
        kinds = self.deciding if DRIVER_VERSION in both else (*self.deciding, *self._followers)
        return all(_same(kind, one[kind], other[kind]) for kind in kinds if kind in both)

    def _share_a_driver(self, one: Mapping[str, str], other: Mapping[str, str]) -> bool:
        """Say whether something tells that both have the same driver, or neither has any."""
        kinds = {*self.deciding[:1], *self._followers}
        return not kinds & other.keys() or bool(kinds & other.keys() & one.keys())

    def _unsaid(self, parts: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
        """Give the parts that go on, as far as is known, beside those that became others."""
        driver = (DRIVER_VERSION, *FOLLOWERS)
        if self._agree({k: parts[k] for k in driver if k in parts}, known):
            return dict(parts)
        return {kind: text for kind, text in parts.items() if kind not in driver}

    def _begun(self, parts: dict[str, str]) -> Contexts:
        label = self._called(parts, self.generations)
        one = Generation(f"g{self.begun + 1}", parts, label)
        return replace(self, generations=(*self.generations, one)[-MOST:], begun=self.begun + 1)

    def _grown(self, one: Generation, known: Mapping[str, str]) -> Contexts:
        """Go on with a generation, about which more may be known now."""
        newer = {kind: known[kind] for kind in FOLLOWERS if kind in known}
        parts = {**known, **one.parts, **newer}
        if one is self.generations[-1] and parts == one.parts:
            return self
        others = tuple(other for other in self.generations if other is not one)
        if _name_giving(one.parts) == _name_giving(parts):
            label = one.label  # it has been told to people, and stays
        else:
            label = self._called(parts, others)
        return replace(self, generations=(*others, Generation(one.name, parts, label)))

    def _called(self, parts: Mapping[str, str], others: tuple[Generation, ...]) -> str:
        """Find a label that no other has: "572.16", or "572.16, kernel 6.6.87.2"."""
        taken = {other.label for other in others}
        kind = _name_giving(parts)
        label = UNKNOWN if kind is None else _word(kind, parts[kind])
        if label not in taken:
            return label
        twin = next(other.parts for other in reversed(others) if other.label == label)
        rest = [part for part in _WORDS if part in parts and part != kind]
        differing = [part for part in rest if twin.get(part) != parts[part]]
        for more in (differing, rest):
            longer = ", ".join([label, *(_word(part, parts[part]) for part in more)])
            if longer not in taken:
                return longer
        return f"{label} ({self.begun + 1})"


def _same(kind: str, one: str, other: str) -> bool:
    """Say whether two texts are one version: two sources may write 572.16 and 572.160."""
    if one == other:
        return True
    dotted = kind == DRIVER_VERSION and "." in one and "." in other
    return dotted and one.rstrip("0") == other.rstrip("0")


def _name_giving(parts: Mapping[str, str]) -> str | None:
    return next((kind for kind in _WORDS if kind in parts), None)


def _word(kind: str, text: str) -> str:
    """Write one part; of a kernel only its number: "6.6.87.2" of "6.6.87.2-microsoft-...-WSL2"."""
    short = text.partition("-")[0] if kind == KERNEL else text
    return _WORDS[kind].format((short or text)[:LONGEST])
