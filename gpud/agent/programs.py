"""Programs that may lie on a drive of Windows, started without touching the drive.

``/usr/lib/wsl`` and ``/mnt/c`` come over 9p, and a server that hangs keeps whoever opens, lists or
executes there in a sleep that no signal ends; ``Popen`` itself waits for the exec of its child. So
a shell, which lies on the distribution's own disk, looks for the program and becomes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.agent import children, processes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpud.core.report import ProcessRef

SHELL: Final = "/bin/sh"
_START: Final = """
set -f; IFS='
'
places=$1; shift
for path in $places; do
  [ -f "$path" ] && [ -x "$path" ] || continue
  cd "${path%/*}" && exec "$path" "$@" || exit 126
done
exit 127"""
"""Windows knows no folder of Linux: a program of its is started in its own one."""

CANNOT_EXECUTE, NOT_THERE = 126, 127
"""Exit codes of a shell that cannot become a program."""


async def run(  # noqa: PLR0913  # each is one thing a caller chooses
    places: Sequence[str],
    arguments: Sequence[str],
    *,
    deadline_s: float,
    grace_s: float = children.GRACE_S,
    started: Callable[[ProcessRef], None] = lambda _: None,
    environment: Mapping[str, str] = children.ENVIRONMENT,
    stdin: bytes = b"",
) -> children.Ended:
    """Run the first program that is at one of the absolute ``places``.

    One that writes more than a MiB is killed then. Exit code ``NOT_THERE`` where there is none.
    Errors: ``OSError`` when the shell cannot be started.
    """
    return await children.run(
        [SHELL, "-c", _START, SHELL, "\n".join(places), *arguments],
        stdin,
        deadline_s=deadline_s,
        grace_s=grace_s,
        started=started,
        environment=environment,
        end_talkative=True,
    )


class Left:
    """A program that was killed and stayed, in the kernel or with Windows: the next one waits."""

    def __init__(self) -> None:
        self._last: ProcessRef | None = None
        self._stays = False

    def began(self, process: ProcessRef) -> None:
        """Remember who runs; to be given as ``started``."""
        self._last = process

    def ended(self, ended: children.Ended) -> None:
        """Remember whether it went."""
        self._stays = ended.code is None

    def condition(self) -> str | None:
        """Tell what keeps the one that stayed; None when there is none, or it has gone since."""
        if not self._stays or self._last is None:
            return None
        return processes.condition(self._last)
