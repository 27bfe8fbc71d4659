"""Find the process that listens on a TCP port."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpud.core.proc import listening

if TYPE_CHECKING:
    from collections.abc import Mapping

TABLES: Final = ("proc/net/tcp", "proc/net/tcp6")
MOST_DESCRIPTORS: Final = 512
"""Of one process, that are looked at."""
IN_USE: Final = "address_in_use"
"""The reason of the component ``http``."""
UNNAMED: Final = "another user's process, or one of another distribution"


def listener_of(port: int, root: Path = Path("/")) -> str | None:
    """Name the process that listens on a port; None if none is listed here.

    ``root`` is where the machine's /proc is looked for. Errors: none.
    """
    sockets = set[str]()
    for table in TABLES:
        if not (root / table).is_file():  # a FIFO in its place would be waited for
            continue
        try:
            text = (root / table).read_text(errors="replace")
        except OSError:
            continue
        sockets |= {f"socket:[{inode}]" for inode in listening(text, port)}
    if not sockets:
        return None
    for process in (root / "proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended, or is another user's
            for descriptor in islice((process / "fd").iterdir(), MOST_DESCRIPTORS):
                with suppress(OSError):
                    if str(descriptor.readlink()) in sockets:
                        name = (process / "comm").read_text(errors="replace").strip()
                        return f"{name} (process {process.name})"
    return UNNAMED


def taken_message(address: str, listener: str | None) -> str:
    """Return the message that an address is taken, with the listener."""
    return f"{address} is taken {f'by {listener}' if listener else '(outside this distribution?)'}"


def with_listener(document: Mapping[str, Any], root: Path = Path("/")) -> dict[str, Any]:
    """Return the agent's document with the listener of a taken port, if we see more than the agent.

    The agent runs as a user of its own, and the kernel names it no other user's processes.
    """
    health = document["health"]
    http, address = health.get("http") or {}, str(document.get("url")).rpartition("/")[2]
    port = address.rpartition(":")[2]
    if http.get("reason") == IN_USE and port.isascii() and port.isdigit():
        listener = listener_of(int(port), root)
        if listener != UNNAMED:
            health = {**health, "http": {**http, "detail": taken_message(address, listener)}}
    return {**document, "health": health}
