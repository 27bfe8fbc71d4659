"""Lists the folders of Windows' driver store that hold NVIDIA's driver, as a program of its own.

``python -I -m gpud.agent.telemetry.driver_store FOLDER`` prints one JSON document. The store lies
on 9p, where any call may wait for a Windows that does not answer: run it with a deadline.
Standard library only.
"""

from __future__ import annotations

import json
import os
import sys

from gpud.core.exposure import MARKS, PREFIX

MOST = 64


def found(folder: str) -> list[dict[str, str | float]]:
    """Give name and modification time (Unix) of each; none where there is no store.

    Errors: ``OSError`` when it cannot be read.
    """
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries)
    except FileNotFoundError:
        return []
    likely = [name for name in names if name.lower().startswith(PREFIX)]
    return _holding(folder, likely) or _holding(folder, [n for n in names if n not in set(likely)])


def _holding(folder: str, names: list[str]) -> list[dict[str, str | float]]:
    holding: list[dict[str, str | float]] = []
    for name in names:
        place = f"{folder}/{name}"
        if any(os.path.exists(f"{place}/{mark}") for mark in MARKS):  # noqa: PTH110  # Path raises
            holding.append({"name": name, "modified_s": os.stat(place).st_mtime})  # noqa: PTH116
        if len(holding) == MOST:
            break
    return holding


def main() -> int:
    """Print what is there; exit code 1 with the reason on stderr where that cannot be told."""
    try:
        folders = found(sys.argv[1])
    except OSError as error:
        print(f"{sys.argv[1]}: {error.strerror}", file=sys.stderr)
        return 1
    print(json.dumps({"folders": folders}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
