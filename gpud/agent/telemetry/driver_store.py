"""Lister of the folders that hold NVIDIA's driver in Windows' driver store: a program.

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


def folders(store: str) -> list[dict[str, str | float]]:
    """Return name and modification time (Unix) of each, by name; none where there is no store.

    Errors: ``OSError`` when it cannot be read.
    """
    try:
        names = sorted(os.listdir(store))  # noqa: PTH208  # Path has no such error
    except FileNotFoundError:
        return []
    likely = [name for name in names if name.lower().startswith(PREFIX)]
    return _holding(store, likely) or _holding(store, names)


def _holding(store: str, names: list[str]) -> list[dict[str, str | float]]:
    holding: list[dict[str, str | float]] = []
    for name in names:
        place = f"{store}/{name}"
        if any(os.path.exists(f"{place}/{mark}") for mark in MARKS):  # noqa: PTH110  # Path raises
            holding.append({"name": name, "modified_s": os.stat(place).st_mtime})  # noqa: PTH116
    return holding[:MOST]


if __name__ == "__main__":
    try:
        print(json.dumps({"folders": folders(sys.argv[1])}))
    except OSError as error:
        sys.exit(f"{sys.argv[1]}: {error.strerror}")
