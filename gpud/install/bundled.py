"""Installation as root from a person's packages: copied first, each checked by its hash."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from gpud.install import options
from gpud.install.__main__ import guarded, install, uninstall
from gpud.install.source import Wheel
from gpud.install.wheels import copied

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def main(words: Sequence[str], wheels: Mapping[str, str]) -> NoReturn:
    """Run a verb with its options, and wheels by their paths with their hashes."""
    verb, *rest = words
    given = options.read(verb, f"gpud {verb}", rest)
    if verb == "uninstall":
        sys.exit(guarded(lambda: uninstall(given, "gpud uninstall")))
    known: dict[Path, str | None] = {Path(path): digest for path, digest in wheels.items()}

    def run() -> int:
        with tempfile.TemporaryDirectory(prefix="gpud-wheel-", dir="/run") as folder:
            ours = {path: known.pop(path) for path in list(known) if path.name.startswith("gpud-")}
            (wheel,) = copied(ours, Path(folder, "wheel")).iterdir()
            return install(given, Wheel(wheel), "gpud install", known or None)

    sys.exit(guarded(run))
