"""What becomes a label value."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpud.agent.state.snapshot import ProbeKey

LONGEST_LABEL = 128


def gpu_of(key: ProbeKey) -> str:
    """CPU probes have no GPU, and an empty label is no label to Prometheus."""
    return "" if key.gpu is None else str(key.gpu)


def clean(text: str) -> str:
    """Make a string from outside fit to be a label: printable, and not a novel."""
    return "".join(character for character in text if character.isprintable())[:LONGEST_LABEL]
