"""Who is connected, and who goes when there is no room left.

Every accepted connection counts, from before the TLS handshake to its end. A newcomer always gets
in: the connection that has been silent longest makes room, one that was never let in before one
that was, and one whose client does not read its answer after both. What is being answered stays.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol

from gpud.core.refusals import Refused

if TYPE_CHECKING:
    from gpud.agent.web.tally import Tally

MOST_STALLED: Final = 16
"""Answers that wait for their client at once: each may hold a whole page in memory."""
AT_ONCE: Final = 8
"""Connections that go together when room is made, so that a flood is not sorted for each one."""

NEVER_LET_IN, IDLE, STALLED = range(3)
"""Ranks, in the order in which they go."""


class Member(Protocol):
    """A connection as the room sees it."""

    peer: str
    since_s: float  # of the loop's clock: when it came into the state it is in

    @property
    def rank(self) -> int | None:
        """In which order they go; None stays, for it is being answered."""

    def drop(self) -> None:
        """Close at once. It has left the room when this returns."""

    def renew(self) -> None:
        """Close, or make this answer the last one: other terms hold now."""


class Room:
    """The connections there are; at most ``most``, and ``most_per_peer`` of one address."""

    def __init__(self, most: int, most_per_peer: int, tally: Tally) -> None:
        self._most = most
        self._most_per_peer = most_per_peer
        self._tally = tally
        self._members: set[Member] = set()
        self._peers: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._members)

    def admit(self, newcomer: Member) -> bool:
        """Take ``newcomer`` in, making room; False where everybody here is being answered."""
        if self._peers[newcomer.peer] >= self._most_per_peer:
            own = [member for member in self._members if member.peer == newcomer.peer]
            if not self._make_room(own):
                return self._refuse()
        if len(self._members) >= self._most and not self._make_room(self._members):
            return self._refuse()
        self._members.add(newcomer)
        self._peers[newcomer.peer] += 1
        return True

    def leave(self, member: Member) -> None:
        """Forget ``member``; twice does no harm."""
        if member in self._members:
            self._members.remove(member)
            self._peers -= Counter({member.peer: 1})

    def make_room(self) -> bool:
        """Let somebody go, because descriptors ran out; False where nobody can."""
        return self._make_room(self._members)

    def stalled(self) -> None:
        """Hear that a client does not read; of too many the one that has not longest goes."""
        waiting = [member for member in self._members if member.rank == STALLED]
        if len(waiting) > MOST_STALLED:
            self._make_room(waiting, 1, Refused.TOO_SLOW)

    def renew(self) -> None:
        """Have everybody come again under the terms that hold now."""
        for member in list(self._members):
            member.renew()

    def close(self) -> None:
        """Send everybody away."""
        for member in list(self._members):
            member.drop()

    def _refuse(self) -> bool:
        self._tally.count(Refused.TOO_MANY_CONNECTIONS)
        return False

    def _make_room(
        self,
        among: set[Member] | list[Member],
        most: int = AT_ONCE,
        reason: Refused = Refused.TOO_MANY_CONNECTIONS,
    ) -> bool:
        ranked = [
            (rank, -self._peers[member.peer], member.since_s, member)
            for member in among
            if (rank := member.rank) is not None
        ]
        strangers = sum(rank == NEVER_LET_IN for rank, *_ in ranked)
        last = NEVER_LET_IN if 2 * strangers < len(ranked) else None
        ranked.sort(key=lambda one: (one[0] == last, *one[:3]))
        for *_, member in ranked[:most]:
            self._tally.count(reason)
            member.drop()
        return bool(ranked)


def peer_of(address: tuple[object, ...] | str) -> str:
    """Name whose share a connection takes: its address, of IPv6 the network one household has."""
    host = str(address[0]) if isinstance(address, tuple) and address else ""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return host
