"""Tables of ``/proc``, read as text by whoever may: their columns are written down once."""

from __future__ import annotations

import re

LISTEN = "0A"
LEAST_FIELDS = 10


def listening(table: str, port: int) -> set[str]:
    """Find the sockets that listen on a port in the text of ``/proc/net/tcp`` or ``tcp6``.

    Shapes: inodes, in decimal. Lines that are none of the table's are passed over.
    """
    found = set()
    for line in table.splitlines():
        fields = line.split()
        if len(fields) >= LEAST_FIELDS and fields[3] == LISTEN:
            number = fields[1].rpartition(":")[2]
            if re.fullmatch(r"[0-9A-Fa-f]{4}", number) and int(number, 16) == port:
                found.add(fields[9])
    return found
