"""Components of gpud and of the machine that stay failed.

One that fails and starts again all the time is never failed for long, so it counts as failed until
it is well, or has not failed for a minute. Pure: looked at once a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gpud.agent.alerts.functions import CONTAINER, CUDA, NVML, PROBE
from gpud.core.health import Level

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpud.core.clock import Instant
    from gpud.core.health import Health

STAYS_S: Final = 120.0
RESTS_S: Final = 60.0
PATIENCE_S: Final = 900.0
"""How long a component waits whose function may yet be found lost."""
COVERED: Final[Mapping[str, frozenset[str]]] = {
    CUDA: frozenset({"cuda", "devices", "gpu", "probes", "nvml"}),
    PROBE: frozenset({"probes"}),
    NVML: frozenset({"nvml"}),
    CONTAINER: frozenset({"containers"}),
}
"""Components that the loss of a function explains, by its kind."""


class Failed(NamedTuple):
    """The first and the last moment at which a component was failed."""

    first_s: float
    last_s: float


class Components:
    """Components that fail, and those of them that are reported. A restart begins with neither."""

    def __init__(self) -> None:
        self.failed: dict[str, Failed] = {}
        self.reported: frozenset[str] = frozenset()

    def update(
        self,
        health: Mapping[str, Health],
        now: Instant,
        *,
        lost: Iterable[str] = (),
        pending: Iterable[str] = (),
    ) -> None:
        """Look at the health of all components.

        ``lost`` and ``pending`` are kinds of functions: those that are lost, and those of which it
        is not decided yet.
        """
        failed = {}
        for name, one in health.items():
            before = self.failed.get(name)
            if one.level is Level.FAILED:
                failed[name] = Failed(before.first_s if before else now.mono_s, now.mono_s)
            elif one.level > Level.OK and before and now.mono_s - before.last_s < RESTS_S:
                failed[name] = before
        explained, undecided = covered(lost), covered(pending)
        self.failed = failed
        self.reported = frozenset(
            name
            for name, since in failed.items()
            if name not in explained
            and (
                name in self.reported
                or now.mono_s - since.first_s >= (PATIENCE_S if name in undecided else STAYS_S)
            )
        )


def covered(kinds: Iterable[str]) -> frozenset[str]:
    """Return the components that these kinds of functions explain."""
    return frozenset().union(*(COVERED.get(kind, frozenset()) for kind in kinds))
