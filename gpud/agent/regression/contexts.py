"""Contexts: the driver and the machine that a figure was measured with, by which detectors compare.

A *generation* is one set of versions. It goes on while a part becomes known or unknown, ends when
a part becomes another, and is taken up again when what is known fits an earlier one. Windows'
driver and what it brings into WSL (NVML's own version, CUDA's, the folder in the driver store) are
replaced together but seen one after the other: the latter decide only where the driver is unnamed.
"""

from __future__ import annotations

from collections.abc import Mapping  # states are decoded by this type
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpud.agent.state.facts import (
    CUDA_VERSION,
    DRIVER_FOLDER,
    DRIVER_VERSION,
    KERNEL,
    NVML_VERSION,
    WINDOWS_BUILD,
    WSL_VERSION,
    same_version,
)
from gpud.core.alerts import Cause

if TYPE_CHECKING:
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

    def after(self, conditions: Mapping[str, Condition]) -> Contexts:
        """Return the contexts after a run with these conditions; it is of ``present``."""
        parts = self._versions(conditions)
        if not self.generations:
            return self._begin(parts)
        here = self.present
        if not self._agree(here.parts, parts):
            parts = self._unchanged(here.parts, parts) | parts
        elif DRIVER_VERSION in here.parts or DRIVER_VERSION not in parts:
            return self._extend(here, parts)
        # The driver is another, or is named only now: in both cases it may be an earlier one.
        for earlier in reversed(self.generations[:-1]):
            if self._agree(earlier.parts, parts) and self._share_a_driver(earlier.parts, parts):
                return self._extend(earlier, parts)
        return self._extend(here, parts) if self._agree(here.parts, parts) else self._begin(parts)

    def label(self, name: str) -> str:
        """Return what people call the generation; one that is forgotten is unknown."""
        labels = (each.label for each in self.generations if each.name == name)
        return next(labels, UNKNOWN)

    def difference(self, old: str, new: str) -> tuple[Cause, ...]:
        """Return in what two generations, by name, differ: "driver_version", "572.16", "576.02".

        A part that either lacks is none. What follows the driver is skipped where that is named.
        """
        parts = {each.name: each.parts for each in self.generations}
        before, after = parts.get(old, {}), parts.get(new, {})
        return tuple(
            Cause(kind, before[kind], after[kind])
            for kind in self._compared(before, after)
            if not same_version(kind, before[kind], after[kind])
        )

    @property
    def _kinds(self) -> tuple[str, ...]:
        followers = FOLLOWERS if DRIVER_VERSION in self.deciding else ()
        return (*self.deciding, *followers)

    def _compared(self, parts: Mapping[str, str], others: Mapping[str, str]) -> list[str]:
        """Return the kinds that both have, without the driver's followers where both name it."""
        named = DRIVER_VERSION in parts and DRIVER_VERSION in others
        kinds = self.deciding if named else self._kinds
        return [kind for kind in kinds if kind in parts and kind in others]

    def _versions(self, conditions: Mapping[str, Condition]) -> dict[str, str]:
        """Return the parts of a run's conditions."""
        texts = {kind: conditions.get(kind) for kind in self._kinds}
        return {kind: text for kind, text in texts.items() if isinstance(text, str) and text}

    def _agree(self, parts: Mapping[str, str], others: Mapping[str, str]) -> bool:
        """Return whether nothing that both have differs."""
        kinds = self._compared(parts, others)
        return all(same_version(kind, parts[kind], others[kind]) for kind in kinds)

    def _share_a_driver(self, earlier: Mapping[str, str], parts: Mapping[str, str]) -> bool:
        """Return whether something shows that both have the same driver, or neither has any."""
        kinds = {self.deciding[0], *self._kinds[len(self.deciding) :]} & parts.keys()
        return not kinds or bool(kinds & earlier.keys())

    def _unchanged(self, here: Mapping[str, str], parts: Mapping[str, str]) -> dict[str, str]:
        """Return the present parts that go on, as far as is known, beside those that changed."""
        driver = (DRIVER_VERSION, *FOLLOWERS)
        if self._agree({kind: here[kind] for kind in driver if kind in here}, parts):
            return dict(here)
        return {kind: text for kind, text in here.items() if kind not in driver}

    def _begin(self, parts: dict[str, str]) -> Contexts:
        begun = self.begun + 1
        generation = Generation(f"g{begun}", parts, self._new_label(parts, self.generations))
        return replace(self, generations=(*self.generations, generation)[-MOST:], begun=begun)

    def _extend(self, generation: Generation, parts: Mapping[str, str]) -> Contexts:
        """Go on with a generation, about which more may be known now."""
        newer = {kind: parts[kind] for kind in FOLLOWERS if kind in parts}
        parts = {**parts, **generation.parts, **newer}
        if generation is self.generations[-1] and parts == generation.parts:
            return self
        others = tuple(other for other in self.generations if other is not generation)
        label = generation.label  # people have read it, and it stays while its part does
        if _name_giving(generation.parts) != _name_giving(parts):
            label = self._new_label(parts, others)
        return replace(self, generations=(*others, Generation(generation.name, parts, label)))

    def _new_label(self, parts: Mapping[str, str], others: tuple[Generation, ...]) -> str:
        """Return a label that no other has: "572.16", or "572.16, kernel 6.6.87.2"."""
        taken = {other.label: other.parts for other in others}  # the latest of each
        kind = _name_giving(parts)
        label = UNKNOWN if kind is None else _word(kind, parts[kind])
        if label not in taken:
            return label
        rest = [part for part in _WORDS if part in parts and part != kind]
        differing = [part for part in rest if taken[label].get(part) != parts[part]]
        for more in (differing, rest):
            longer = ", ".join([label, *(_word(part, parts[part]) for part in more)])
            if longer not in taken:
                return longer
        return f"{label} ({self.begun + 1})"


def _name_giving(parts: Mapping[str, str]) -> str | None:
    return next((kind for kind in _WORDS if kind in parts), None)


def _word(kind: str, text: str) -> str:
    """Write one part; of a kernel only its number: "6.6.87.2" of "6.6.87.2-microsoft-...-WSL2"."""
    short = text.partition("-")[0] if kind == KERNEL else text
    return _WORDS[kind].format((short or text)[:LONGEST])
