"""GPUs as a person names them: by number, by UUID or by the beginning of one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from gpud.core.errors import ConfigError
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Mapping


class Label(NamedTuple):
    """Number and name of a GPU, of one that is not listed perhaps neither."""

    number: float = math.inf
    name: str = ""

    def words(self, uuid: str) -> str:
        """Write it for a person: "0 NVIDIA RTX A2000 (GPU-...)"."""
        number = "" if self.number == math.inf else f"{self.number} "
        return f"{number}{self.name} ({uuid})" if self.name else f"{number}{uuid}"


def uuid_of(name: str, gpus: Mapping[str, Label]) -> str:
    """Return the UUID of the one GPU that a person means; ``gpus`` are by UUID.

    Errors: ``ConfigError`` for none and for several, with the GPUs there are.
    """
    text = name.lower()
    if text.isascii() and text.isdigit():
        fitting = [uuid for uuid, gpu in gpus.items() if str(gpu.number) == text]
    else:
        fitting = [uuid for uuid in gpus if text and uuid.lower().startswith(text)]
        fitting = [uuid for uuid in fitting if uuid.lower() == text] or fitting
    if len(fitting) == 1:
        return fitting[0]
    fault = "more than one GPU is meant by" if fitting else "there is no GPU"
    there = sorted((gpu, uuid) for uuid, gpu in gpus.items())
    listed = ", ".join(gpu.words(uuid) for gpu, uuid in there)
    fix = f"one of: {escaped(listed)}" if gpus else None
    raise ConfigError(escaped(f"{fault} {name:.60}"), fix=fix)
