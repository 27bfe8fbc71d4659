"""Files of ``/proc``, read as text by whoever may: their columns are written down once."""

from __future__ import annotations

import re

LISTEN = "0A"
LEAST_FIELDS = 10

NO_MORE = frozenset("ZX")
"""States of a process that has ended and only waits to be reaped."""


def start_ticks(stat: str) -> int | None:
    """Find when a process began, in the text of ``/proc/PID/stat``; None for one that has ended.

    Units: clock ticks since boot. The name before the last ")" may hold anything.
    """
    fields = stat.rpartition(")")[2].split()
    try:
        return None if fields[0] in NO_MORE else int(fields[19])
    except (IndexError, ValueError):
        return None


def listening(table: str, port: int) -> set[str]:
    """Find the sockets that listen on a port in the text of ``/proc/net/tcp`` or ``tcp6``.

    Shapes: inodes, in decimal. Lines that are none of the table's are passed over.
    """
    inodes = set()
    for line in table.splitlines():
        fields = line.split()
        if len(fields) >= LEAST_FIELDS and fields[3] == LISTEN:
            number = fields[1].rpartition(":")[2]
            if re.fullmatch(r"[0-9A-Fa-f]{4}", number) and int(number, 16) == port:
                inodes.add(fields[9])
    return inodes
